/*
 * Selective backprop: during part of the run, a forward pass computes the losses of a whole batch,
 * and the training step uses only a fraction of the samples, preferably those with high loss (Jiang
 * et al. 2019, arXiv:1910.00762, section 3.2; schedule and rank-based probabilities as in MosaicML
 * Composer's SelectiveBackprop). Draws depend on seed, step and index in the batch. Pure functions.
 */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

bool select_is_on(const struct recipe_train *recipe);
/*
 * True if the next step selects samples, when `step` of `steps` steps are done. batch: index of
 * that step's batch in the epoch, from 0.
 */
bool select_is_due(const struct recipe_train *recipe, uint64_t step, uint64_t steps,
		   uint64_t batch);
/* Number of samples kept out of `count`. */
uint32_t select_count(const struct recipe_train *recipe, uint32_t count);
/*
 * Draws select_count() ascending indices into losses[count]. Higher losses are likelier; NaN counts
 * as the highest. step: number of the current step, from 1. -ENOMEM.
 */
int select_draw(const struct recipe_train *recipe, uint64_t step, const float *losses,
		uint32_t count, uint32_t *ret_picks);
