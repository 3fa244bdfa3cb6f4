/*
 * Stochastic weight averaging (Izmailov et al., UAI 2018, arXiv:1803.05407, algorithm 1): which
 * steps' weights enter the mean. Pure functions of recipe and step.
 */
#pragma once

#include "trainer/recipe/recipe.h"

/* True if the mean contains any weights after step `step` (from 1). */
bool swa_begun(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
/*
 * Share of the weights after that step in the mean that includes them, 1/n; 0 if they do not enter.
 */
float swa_share(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
