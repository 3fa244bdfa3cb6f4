/*
 * The exponential moving average of weights and of the norms' statistics: which decay each update
 * has. The averaging itself is the device's (device_hyper.ema_decay), in the pass of the optimizer.
 * A function of the recipe and the step, so resuming needs no state.
 */
#pragma once

#include "trainer/recipe/recipe.h"

/*
 * Decay of the update that makes step `step` (from 1). Those of train.ema_warmup copy (0), and so
 * does, whatever its decay, the first that the device makes; steps that are not a multiple of
 * train.ema_every leave the average alone (1). At position p of the run, from 0 to 1, it is
 * train.ema p^train.ema_rise.
 */
float ema_decay(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
