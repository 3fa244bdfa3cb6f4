/*
 * Mixup (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond Empirical Risk Minimization", ICLR 2018,
 * section 2) and CutMix (Yun et al.: "CutMix: Regularization Strategy to Train Strong Classifiers
 * with Localizable Features", ICCV 2019, section 3.1), chosen between as timm's Mixup does: a share
 * drawn from Beta(alpha, alpha) is that of a sample's own pixels and label, or what a box of its
 * partner's pixels leaves of it.
 *
 * Neighbours of the global batch are each other's partners, samples 0 and 1, 2 and 3, where timm
 * takes them from both ends: in a batch in random order that is the same, and no rank and no
 * micro-batch of an even size divides a pair. What is drawn depends on seed, step and the place in
 * the global batch alone. Plain functions.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/recipe/recipe.h"

/* Samples of a step: those of a rank. */
struct mix_batch {
	uint64_t seed, step;
	uint32_t first;         /* in the global batch, of the first one: even */
	uint32_t count;         /* even */
	uint32_t micro;         /* samples of a micro-batch, even: partners are counted within it */
	uint32_t height, width; /* of the input */
};

bool mix_is_on(const struct recipe_train *recipe);
/*
 * Micro-batches that a share of a batch can be cut into, without dividing a pair where there are
 * any: the least number that is at least twice `parts`; 0: there is none.
 */
uint32_t mix_parts_after(const struct recipe_train *recipe, uint32_t parts, uint32_t share);
/* [count] each: ret_shares are the samples' shares of their own labels. */
void mix_draw(const struct recipe_train *recipe, const struct mix_batch *batch,
	      struct device_blend *ret_blends, float *ret_shares);
/*
 * CutMix's box, of as large a part of the picture as its share leaves, around row and column; cut
 * off at the borders. Returns the share that it does leave.
 */
double mix_box(const struct mix_batch *batch, double share, uint32_t row, uint32_t column,
	       struct device_blend *ret_blend);
