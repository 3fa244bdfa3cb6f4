/*
 * Policies: the effects and magnitudes that AutoAugment, RandAugment, TrivialAugmentWide and AugMix
 * choose, with torchvision's operations, magnitudes and probabilities. Papers: Cubuk and others,
 * "AutoAugment" (2019) and "RandAugment" (2020); Mueller and Hutter, "TrivialAugment" (2021);
 * Hendrycks and others, "AugMix" (2020). The only state is the stream of random numbers; any
 * thread.
 */
#pragma once

#include "format/augment/grammar/transforms.h"
#include "format/augment/kernels/effects.h"
#include "format/base/random.h"

enum policy_operation {
	POLICY_SHEAR_X,
	POLICY_SHEAR_Y,
	POLICY_TRANSLATE_X,
	POLICY_TRANSLATE_Y,
	POLICY_ROTATE,
	POLICY_POSTERIZE,
	POLICY_SOLARIZE,
	POLICY_AUTOCONTRAST,
	POLICY_EQUALIZE,
	/* AugMix without all_ops uses the operations before this one. */
	POLICY_BRIGHTNESS,
	POLICY_COLOR,
	POLICY_CONTRAST,
	POLICY_SHARPNESS,
	/* AugMix with all_ops uses the operations before this one. */
	POLICY_IDENTITY,
	/* RandAugment and TrivialAugmentWide use the operations before this one. */
	POLICY_INVERT,
};

/* Selects a table of magnitudes. */
enum policy_space { POLICY_AUTO_OR_RAND, POLICY_TRIVIAL, POLICY_MIX };

enum {
	POLICY_AUTO_PAIRS = 25,
	POLICY_AUTO_BINS = 10, /* magnitude bins of AutoAugment and AugMix */
};

/* Picture size, random stream and effect list of a drawing. */
struct drawing {
	uint32_t width, height; /* size of the picture */
	struct random_stream *random;
	struct effect_list *list;
};

/* One of the two operations of an AutoAugment sub-policy. */
struct policy_auto {
	enum policy_operation operation;
	double probability;
	unsigned bin;
};

/* Indexed by enum transform_learned. */
extern const struct policy_auto policy_learned[TRANSFORM_LEARNED_COUNT][POLICY_AUTO_PAIRS][2];

/*
 * Makes the effect of an operation at magnitude `bin` of `bins`, for a picture of width x height.
 * negative: negate the magnitude, if the operation has a direction. outside: interpolation and fill
 * for warps. Returns false for identity, which has no effect.
 */
bool policy_effect(enum policy_space space, enum policy_operation operation, unsigned bin,
		   unsigned bins, bool negative, uint32_t width, uint32_t height,
		   const struct effect_warp *outside, struct effect *ret_effect);

/* Draws a policy transform and appends its effects, at most policy_effects_max(). */
void policy_draw(const struct transform *transform, const struct drawing *to);
unsigned policy_effects_max(const struct transform *transform);
