/*
 * Selective backprop: in part of the run's steps a forward pass over the whole batch finds losses,
 * and only a share of the samples, those with high ones by preference, goes through a step (Jiang
 * et al. 2019, arXiv:1910.00762, section 3.2; schedule and probabilities are those of MosaicML
 * Composer's SelectiveBackprop, by the rank of a loss in its batch). Draws depend on seed, step and
 * the sample's place in the batch. Plain functions.
 */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

bool select_is_on(const struct recipe_train *recipe);
/*
 * Whether the step that follows `step` of `steps` is one of these; batch: its number in the epoch,
 * from 0.
 */
bool select_is_due(const struct recipe_train *recipe, uint64_t step, uint64_t steps,
		   uint64_t batch);
/* Samples that are kept of so many. */
uint32_t select_count(const struct recipe_train *recipe, uint32_t count);
/*
 * Which of the samples with losses[count]: select_count() of them, rising. The higher a loss, the
 * likelier; one that is not a number counts as the highest. step: that is made, from 1. -ENOMEM.
 */
int select_draw(const struct recipe_train *recipe, uint64_t step, const float *losses,
		uint32_t count, uint32_t *ret_picks);
