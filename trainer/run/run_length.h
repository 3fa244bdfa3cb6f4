/*
 * The length of a run and the intervals of evaluations and checkpoints, in steps; and its learning
 * rate schedule. Only the functions below write the struct.
 */
#pragma once

#include "trainer/algorithms/schedule.h"

struct run_length {
	/* eval_every, checkpoint_every: interval; 0 for only at the end */
	uint64_t steps, eval_every, checkpoint_every;
	struct schedule schedule;
};

/* The caller owns plateau. */
void run_length_init(struct run_length *length, const struct recipe *recipe,
		     const struct plateau *plateau, uint64_t batches_per_epoch);
/* Makes `step` the last one. */
void run_length_stop_at(struct run_length *length, uint64_t step);
/* True at the end of the run and at every multiple of `every` (0 for none), except step 0. */
bool run_length_is_due(const struct run_length *length, uint64_t step, uint64_t every);
