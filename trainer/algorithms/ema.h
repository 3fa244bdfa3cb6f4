/*
 * Decay per update of the exponential moving average of weights and norm statistics. The device
 * computes the average (device_hyper.ema_decay) in the optimizer pass. Depends only on recipe and
 * step, so a resume needs no state.
 */
#pragma once

#include "trainer/recipe/recipe.h"

/*
 * Decay of the update that makes step `step` (from 1). The updates of train.ema_warmup copy (0), as
 * does the device's first update whatever its decay; steps that are not a multiple of
 * train.ema_every leave the average unchanged (1). Otherwise train.ema p^train.ema_rise at position
 * p of the run, from 0 to 1.
 */
float ema_decay(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
