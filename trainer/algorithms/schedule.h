/*
 * The learning rate over a run, as a factor on optim.lr. Positions and lengths are in epochs, so a
 * schedule means the same at any batch size; the loop evaluates it at every step at step /
 * steps_per_epoch. A plain value without resources; it depends on the recipe alone but for plateau,
 * whose state is the run's, so resuming needs none of its own.
 */
#pragma once

#include "trainer/algorithms/plateau.h"

struct schedule {
	struct recipe_schedule keys;
	double epochs; /* of the whole run, warm-up included */
	/* what evaluations have come to, the caller's, once there may be some; NULL: none yet */
	const struct plateau *plateau;
};

void schedule_init(struct schedule *schedule, const struct recipe *recipe);

/*
 * Factor at a position from 0 to epochs (beyond, the value of the end). Warm-up is a straight line
 * from warmup_from to the value that the schedule has at its end; the drops of step, multi_step and
 * exponential count from the start of the run, while all others take the epochs that remain. With
 * schedule.by_epoch an epoch has the value of its start.
 */
double schedule_factor(const struct schedule *schedule, double epoch);
/*
 * Momentum there, of which `highest` is what the recipe gives: as far on the way to
 * schedule.base_momentum as the cycle's rate is on its way up. So it is highest where the rate is
 * lowest, and the other way round (Smith 2018, arXiv:1803.09820, 4.3).
 */
double schedule_momentum(const struct schedule *schedule, double epoch, double highest);
