/*
 * Stochastic weight averaging (Izmailov et al., UAI 2018, arXiv:1803.05407, algorithm 1): the steps
 * whose weights are averaged. Pure functions of recipe and step.
 */
#pragma once

#include "trainer/recipe/recipe.h"

/* True if the average includes any weights after step `step` (from 1). */
bool swa_begun(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
/*
 * Factor of the weights after step `step` in the average: 1/n if they are the n-th to enter; 0 if
 * they do not enter.
 */
float swa_share(const struct recipe_train *recipe, uint64_t step, uint64_t batches_per_epoch);
