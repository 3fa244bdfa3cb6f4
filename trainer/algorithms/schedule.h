/*
 * The learning rate over a run, as a factor on optim.lr. Positions and lengths are in epochs, so a
 * schedule does not depend on the batch size; the loop evaluates it at every step, at step /
 * steps_per_epoch. A plain value. Only plateau has state, which belongs to the run; all else
 * depends only on the recipe, so a resume needs no further state.
 */
#pragma once

#include "trainer/algorithms/plateau.h"

struct schedule {
	struct recipe_schedule keys;
	double epochs; /* length of the run, including warm-up */
	/* owned by the caller; NULL if there are no evaluations */
	const struct plateau *plateau;
};

void schedule_init(struct schedule *schedule, const struct recipe *recipe);

/*
 * Factor at a position from 0 to epochs (beyond, the final value). Warm-up is linear from
 * warmup_from to the schedule's value at the end of warm-up. step, multi_step and exponential count
 * epochs from the start of the run; the others span the epochs after warm-up. With
 * schedule.by_epoch the value at the start of an epoch holds throughout.
 */
double schedule_factor(const struct schedule *schedule, double epoch);
/*
 * Momentum at a position. It moves from `highest`, the recipe's value, to schedule.base_momentum as
 * the cycle's rate rises, so it is highest where the rate is lowest (Smith 2018, arXiv:1803.09820,
 * 4.3).
 */
double schedule_momentum(const struct schedule *schedule, double epoch, double highest);
