/*
 * The learning rate over a run, as a factor on optim.lr. Positions and lengths are in epochs, so a
 * schedule does not depend on the batch size. The loop evaluates it at every step, at step /
 * steps_per_epoch. struct schedule owns nothing and may be copied. The factor depends only on the
 * recipe, except that of plateau, whose state belongs to the run.
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
 * Factor at a position from 0 to `epochs`; later positions have the final value. Warm-up is linear,
 * from warmup_from to the schedule's value at the end of warm-up. The schedules step, multi_step
 * and exponential count epochs from the start of the run; the others span the epochs after warm-up.
 * With schedule.by_epoch, the factor is constant within an epoch.
 */
double schedule_factor(const struct schedule *schedule, double epoch);
/*
 * Momentum at a position. It falls from `highest`, the recipe's value, to schedule.base_momentum
 * while the cycle's learning rate rises, and rises again while the rate falls (Smith 2018,
 * arXiv:1803.09820, section 4.3).
 */
double schedule_momentum(const struct schedule *schedule, double epoch, double highest);
