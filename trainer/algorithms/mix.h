/*
 * Mixup (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond Empirical Risk Minimization", ICLR 2018,
 * section 2) and CutMix (Yun et al.: "CutMix: Regularization Strategy to Train Strong Classifiers
 * with Localizable Features", ICCV 2019, section 3.1), alternating as in timm's Mixup. A share
 * drawn from Beta(alpha, alpha) is the weight of a sample's own pixels and label in Mixup, or the
 * area that a box of its partner's pixels leaves in CutMix.
 *
 * Partners are neighbours in the global batch: samples 0 and 1, 2 and 3 and so on. timm pairs from
 * both ends; in a randomly ordered batch this is equivalent, and neighbours never split across
 * ranks or micro-batches of even size. Draws depend only on seed, step and position in the global
 * batch. Pure functions.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

/* A rank's samples of a step. */
struct mix_batch {
	uint64_t seed, step;
	uint32_t first; /* index in the global batch of the first sample; even */
	uint32_t count; /* even */
	/* samples per micro-batch, even; partner indices are relative to the micro-batch */
	uint32_t micro;
	uint32_t height, width; /* of the input */
};

bool mix_is_on(const struct recipe_train *recipe);
/*
 * Next number of micro-batches for a rank's share: the smallest that is at least twice `parts`,
 * divides the share and splits no pair; 0 if there is none.
 */
uint32_t mix_parts_after(const struct recipe_train *recipe, uint32_t parts, uint32_t share);
/* Fills [count] blends and the weights of the samples' own labels. */
void mix_draw(const struct recipe_train *recipe, const struct mix_batch *batch,
	      struct device_blend *ret_blends, float *ret_shares);
/*
 * CutMix's box around row and column, sized for the share and clipped at the borders. Returns the
 * share that the clipped box leaves.
 */
double mix_box(const struct mix_batch *batch, double share, uint32_t row, uint32_t column,
	       struct device_blend *ret_blend);
