/*
 * The learning rate over a run, as a factor on optim.lr. Positions and lengths are in epochs, so a
 * schedule means the same at any batch size; the loop evaluates it at every step at step /
 * steps_per_epoch. A plain value without resources; it only depends on the recipe, so resuming
 * needs no state of it.
 */
#pragma once

#include "trainer/recipe/recipe.h"

struct schedule {
	struct recipe_schedule keys;
	double epochs; /* of the whole run, warm-up included */
};

void schedule_init(struct schedule *schedule, const struct recipe *recipe);

/*
 * Factor at a position from 0 to epochs (beyond, the value of the end). Warm-up is a straight line
 * from warmup_from to the value that the schedule has at its end; cosine, linear, polynomial,
 * one_cycle and triangular then take the epochs that remain, while the drops of step, multi_step
 * and exponential count from the start of the run.
 */
double schedule_factor(const struct schedule *schedule, double epoch);
