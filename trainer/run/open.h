/* Internal to run/: stages of run_open(). All ranks call them, except those marked "Rank 0". */
#pragma once

#include "trainer/run/run_internal.h"

/* Rank 0: opens the checkpoint to resume from; NULL if there is none (resume.c). */
int open_find_checkpoint(struct run *run);
/* Rank 0: determines the state to begin with, fresh or resumed. */
int open_begin(struct run *run);
/* Copies rank 0's state to all ranks. */
int open_share_state(struct run *run);
/* Initialises rank 0's weights and, on a resume, the rest of its state (initial_weights.c). */
int open_fill_params(struct run *run);
/* Copies rank 0's parameters to all ranks. */
int open_share_params(struct run *run);
