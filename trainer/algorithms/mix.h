/*
 * Mixup and CutMix on the device: which samples are blended, and how (format/augment/mix.h).
 *
 * Partners are adjacent in the global batch: samples 0 and 1, 2 and 3 and so on. timm pairs first
 * and last sample and so on; in a randomly ordered batch this is equivalent. Adjacent partners are
 * never on different ranks, nor in different micro-batches of even size. Draws depend only on seed,
 * step and index in the global batch. Pure functions.
 */
#pragma once

#include "trainer/device/steps.h"
#include "trainer/recipe/recipe.h"

/* One rank's samples of a step. */
struct mix_batch {
	uint64_t seed, step;
	uint32_t first; /* index of the first sample in the global batch; even */
	uint32_t count; /* even */
	/* samples per micro-batch, even; a partner's index is relative to the micro-batch */
	uint32_t micro;
	uint32_t height, width; /* size of the input */
};

bool mix_is_on(const struct recipe_train *recipe);
/*
 * Next number of micro-batches to try for a rank's `share` samples: the smallest that is at least
 * twice `parts`, divides `share` and splits no pair; 0 if there is none.
 */
uint32_t mix_parts_after(const struct recipe_train *recipe, uint32_t parts, uint32_t share);
/*
 * Fills [count] blends, and for each sample the weight of its label; the partner's label has the
 * rest.
 */
void mix_draw(const struct recipe_train *recipe, const struct mix_batch *batch,
	      struct device_blend *ret_blends, float *ret_shares);
