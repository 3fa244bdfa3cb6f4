/*
 * How long a run is and when things are due, in steps, and its learning rate schedule. Written by
 * these functions only.
 */
#pragma once

#include "trainer/algorithms/schedule.h"

struct run_length {
	uint64_t steps, eval_every, checkpoint_every; /* 0 for only at the end */
	struct schedule schedule;
};

/* plateau is the caller's. */
void run_length_init(struct run_length *length, const struct recipe *recipe,
		     const struct plateau *plateau, uint64_t batches_per_epoch);
/* Ends the run at this step. */
void run_length_stop_at(struct run_length *length, uint64_t step);
/* True at the end of the run, and every so many steps before, except at the beginning. */
bool run_length_is_due(const struct run_length *length, uint64_t step, uint64_t every);
