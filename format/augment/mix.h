/*
 * Mixup (Zhang, Cisse, Dauphin, Lopez-Paz, ICLR 2018, "mixup: Beyond Empirical Risk Minimization",
 * section 2) and CutMix (Yun et al., ICCV 2019, "CutMix: Regularization Strategy to Train Strong
 * Classifiers with Localizable Features", section 3.1), alternating as in timm's Mixup. Each sample
 * is blended with a partner. Beta(alpha, alpha) determines the weight of the sample itself: in
 * Mixup, the weight of its pixels and label; in CutMix, the fraction of its area outside the box of
 * the partner's pixels.
 *
 * The draws, which the daemon and the trainer share. They depend only on the arguments. Pure
 * functions.
 */
#pragma once

#include <stdint.h>

struct mix_rule {
	double mixup, cutmix; /* alpha of each; 0 for none */
	double prob;          /* probability of a blend */
	double switch_prob;   /* with both: probability of CutMix */
};

/* Blend of a sample with its partner. */
struct mix_blend {
	/* weight of the sample outside the box, 0..1; the partner's is 1 - share */
	float share;
	/* box of the partner's pixels: rows top to bottom - 1, columns left to right - 1 */
	uint32_t top, bottom, left, right;
};

/*
 * Draws a blend of images of height x width. seed, step and number identify the draw; number is
 * that of the samples that share it. Returns the weight of the sample's label; the partner's label
 * has the rest. Without a blend, the weight is 1, share is 1 and the box is empty.
 */
double mix_draw_blend(const struct mix_rule *rule, uint64_t seed, uint64_t step, uint64_t number,
		      uint32_t height, uint32_t width, struct mix_blend *ret_blend);
/*
 * Computes CutMix's box, centred at row and column, for a sample that keeps `share` of its area,
 * and clips it at the borders. Leaves ret_blend->share. Returns the fraction of the area outside
 * the clipped box.
 */
double mix_box(uint32_t height, uint32_t width, double share, uint32_t row, uint32_t column,
	       struct mix_blend *ret_blend);
