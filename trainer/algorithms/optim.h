/*
 * Translates the recipe for the device's optimizer: the kind of optimizer once, the hyperparameters
 * at every step. Pure functions of recipe and step.
 */
#pragma once

#include "trainer/algorithms/schedule.h"
#include "trainer/device/params.h"

void optim_spec(const struct recipe *recipe, struct device_optimizer_spec *ret_spec);

/*
 * Sets the hyperparameters of the update that makes step `step` (from 1). Evaluates the schedule at
 * the start of the step.
 */
void optim_hyper(const struct recipe *recipe, const struct schedule *schedule, uint64_t step,
		 uint64_t batches_per_epoch, struct device_hyper *ret_hyper);

/* Mean number of forward and backward passes over a batch per update. */
double optim_passes(const struct recipe *recipe);
