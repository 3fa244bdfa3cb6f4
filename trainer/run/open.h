/* Internal to run/: stages of run_open(). All ranks call them, or rank 0 alone where noted. */
#pragma once

#include "trainer/run/run_internal.h"

/* Rank 0: opens the checkpoint to resume from; NULL if there is none (resume.c). */
int open_find_checkpoint(struct run *run);
/* Rank 0: determines where to resume. */
int open_begin(struct run *run);
/* Takes over rank 0's state. */
int open_share_state(struct run *run);
/* Rank 0: fills in the weights and, on a resume, the rest of the checkpoint (initial_weights.c). */
int open_fill_params(struct run *run);
/* Takes over rank 0's parameters. */
int open_share_params(struct run *run);
