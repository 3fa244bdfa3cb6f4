/*
 * Stochastic weight averaging (Izmailov et al., UAI 2018, arXiv:1803.05407, algorithm 1): which
 * steps leave weights that belong to the mean. Plain functions of the recipe and the step.
 */
#pragma once

#include "trainer/recipe/recipe.h"

/* Whether the mean has weights, after step `step` (from 1). */
bool swa_begun(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
/* What the weights after that step count in the mean that includes them: 1/n; 0: they are none. */
float swa_share(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
