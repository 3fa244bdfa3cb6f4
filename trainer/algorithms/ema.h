/*
 * Decay of the exponential moving average (EMA) of weights and norm statistics, for each update.
 * The device computes the average in the optimizer pass (device_hyper.ema_decay). The decay depends
 * only on recipe and step, so a resume needs no state.
 */
#pragma once

#include "trainer/recipe/recipe.h"

/*
 * Returns the EMA decay of the update that makes step `step` (from 1):
 * - 0 during train.ema_warmup, so that the average is a copy; the device also copies on its first
 *   update
 * - 1 if the step is not a multiple of train.ema_every, so that the average stays unchanged
 * - train.ema * pow(p, train.ema_rise) otherwise, where p is the position in the run, from 0 to 1
 */
float ema_decay(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
