/*
 * Mixup (Zhang, Cisse, Dauphin, Lopez-Paz, ICLR 2018, "mixup: Beyond Empirical Risk Minimization",
 * section 2) and CutMix (Yun et al., ICCV 2019, "CutMix: Regularization Strategy to Train Strong
 * Classifiers with Localizable Features", section 3.1), alternating as in timm's Mixup. Each sample
 * is blended with a partner. Beta(alpha, alpha) determines the weight of the sample itself: in
 * Mixup, the weight of its pixels and label; in CutMix, the fraction of its area outside the box of
 * the partner's pixels.
 *
 * Partners are adjacent in the global batch: samples 0 and 1, 2 and 3 and so on. timm pairs first
 * and last sample and so on; in a randomly ordered batch this is equivalent. Adjacent partners are
 * never on different ranks, nor in different micro-batches of even size. Draws depend only on seed,
 * step and index in the global batch. Pure functions.
 */
#pragma once

#include "trainer/device/device.h"
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
/*
 * Computes CutMix's box, centred at row and column, for a sample that keeps `share` of its area,
 * and clips it at the borders. Returns the fraction of the area outside the clipped box.
 */
double mix_box(const struct mix_batch *batch, double share, uint32_t row, uint32_t column,
	       struct device_blend *ret_blend);
