#include "format/augment/grammar/policy.h"
#include "format/augment/grammar/warp.h"
#include "format/base/portable_math.h"

#include <math.h>
#include <string.h>

/*
 * Returns number i of `count` evenly spaced numbers from start to end. Steps from the nearer
 * end and rounds as PyTorch's linspace does.
 */
static double evenly_spaced(float start, float end, unsigned i, unsigned count)
{
	float step = (end - start) / (float)(count - 1);

	if (i < count / 2)
		return (double)fmaf(step, (float)i, start);
	return (double)fmaf(-step, (float)(count - i - 1), end);
}

/*
 * Returns the last magnitude of an operation; the first is 0. Posterize's magnitude is the number
 * of bits removed from 8 or 4. Solarize does not use it: its threshold falls from 1 to 0.
 */
static double magnitude_end(enum policy_space space, enum policy_operation operation,
			    uint32_t width, uint32_t height)
{
	switch (operation) {
	case POLICY_SHEAR_X:
	case POLICY_SHEAR_Y:
		return space == POLICY_TRIVIAL ? 0.99 : 0.3;
	case POLICY_TRANSLATE_X:
	case POLICY_TRANSLATE_Y: {
		uint32_t side = operation == POLICY_TRANSLATE_X ? width : height;

		return space == POLICY_TRIVIAL ? 32
		       : space == POLICY_MIX   ? side / 3.0
					       : 150.0 / 331.0 * side;
	}
	case POLICY_ROTATE:
		return space == POLICY_TRIVIAL ? 135 : 30;
	case POLICY_POSTERIZE:
		return space == POLICY_TRIVIAL ? 6 : 4;
	default:
		return space == POLICY_TRIVIAL ? 0.99 : 0.9;
	}
}

static void set_warp(enum policy_operation operation, double magnitude, uint32_t width,
		     uint32_t height, const struct effect_warp *outside, struct effect *effect)
{
	struct warp warp = {.scale = 1};

	/* Shears keep the first row or column fixed. */
	if (operation == POLICY_SHEAR_X || operation == POLICY_SHEAR_Y) {
		warp.centre_x = -0.5 * width;
		warp.centre_y = -0.5 * height;
	}
	switch (operation) {
	case POLICY_SHEAR_X:
		warp.slope_x = magnitude;
		break;
	case POLICY_SHEAR_Y:
		warp.slope_y = magnitude;
		break;
	case POLICY_TRANSLATE_X:
		warp.translate_x = trunc(magnitude);
		break;
	case POLICY_TRANSLATE_Y:
		warp.translate_y = trunc(magnitude);
		break;
	default:
		warp.degrees = -magnitude;
		break;
	}
	effect->kind = EFFECT_WARP;
	effect->warp = *outside;
	warp_matrix(&warp, effect->warp.matrix);
}

bool policy_effect(enum policy_space space, enum policy_operation operation, unsigned bin,
		   unsigned bins, bool negative, uint32_t width, uint32_t height,
		   const struct effect_warp *outside, struct effect *ret_effect)
{
	static const enum effect_kind kinds[] = {
		[POLICY_AUTOCONTRAST] = EFFECT_AUTOCONTRAST,
		[POLICY_EQUALIZE] = EFFECT_EQUALIZE,
		[POLICY_BRIGHTNESS] = EFFECT_BRIGHTNESS,
		[POLICY_COLOR] = EFFECT_SATURATION,
		[POLICY_CONTRAST] = EFFECT_CONTRAST,
		[POLICY_SHARPNESS] = EFFECT_SHARPNESS,
		[POLICY_INVERT] = EFFECT_INVERT,
	};
	double end = magnitude_end(space, operation, width, height);
	double magnitude = evenly_spaced(0, (float)end, bin, bins);

	memset(ret_effect, 0, sizeof(*ret_effect));
	switch (operation) {
	case POLICY_IDENTITY:
		return false;
	case POLICY_SHEAR_X:
	case POLICY_SHEAR_Y:
	case POLICY_TRANSLATE_X:
	case POLICY_TRANSLATE_Y:
	case POLICY_ROTATE:
		set_warp(operation, negative ? -magnitude : magnitude, width, height, outside,
			 ret_effect);
		return true;
	case POLICY_POSTERIZE:
		ret_effect->kind = EFFECT_POSTERIZE;
		ret_effect->factor = rint((space == POLICY_MIX ? 4 : 8) - bin / ((bins - 1) / end));
		return true;
	case POLICY_SOLARIZE:
		ret_effect->kind = EFFECT_SOLARIZE;
		ret_effect->factor = 255 * evenly_spaced(1, 0, bin, bins);
		return true;
	default:
		ret_effect->kind = kinds[operation];
		ret_effect->factor = 1 + (negative ? -magnitude : magnitude);
		return true;
	}
}

/* Draws the direction and appends the operation's effect. */
static void policy_add(const struct transform *transform, enum policy_space space,
		       enum policy_operation operation, unsigned bin, unsigned bins,
		       const struct drawing *to)
{
	struct effect_warp outside = {.bilinear = transform->warp.bilinear,
				      .filled = transform->warp.filled};
	struct effect effect;
	bool negative = random_u32(to->random) >> 31;

	memcpy(outside.fill, transform->fill, sizeof(outside.fill));
	if (policy_effect(space, operation, bin, bins, negative, to->width, to->height, &outside,
			  &effect))
		*effect_list_add(to->list) = effect;
}

static void draw_auto(const struct transform *transform, const struct drawing *to)
{
	const struct policy_auto *pair =
		policy_learned[transform->policy.learned]
			      [random_below(to->random, POLICY_AUTO_PAIRS)];

	for (int i = 0; i < 2; i++)
		if ((double)random_float(to->random) < pair[i].probability)
			policy_add(transform, POLICY_AUTO_OR_RAND, pair[i].operation, pair[i].bin,
				   POLICY_AUTO_BINS, to);
}

/* Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). */
static double gamma_variate(struct random_stream *random, double alpha)
{
	double scale = 1;

	if (alpha < 1) {
		scale = portable_exp(portable_log(1 - (double)random_float(random)) / alpha);
		alpha += 1;
	}
	double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);

	for (;;) {
		double radius = sqrt(-2 * portable_log(1 - (double)random_float(random)));
		double x =
			radius * portable_cos(0x1.921fb54442d18p2 * (double)random_float(random));
		double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
		double u = 1 - (double)random_float(random);

		if (v > 0 && portable_log(u) < 0.5 * x * x + d - d * v + d * portable_log(v))
			return scale * d * v;
	}
}

/* Draws weights that sum to one, from the symmetric Dirichlet distribution. */
static void dirichlet(struct random_stream *random, double alpha, unsigned count, double weights[])
{
	double sum = 0;

	for (unsigned i = 0; i < count; i++)
		sum += weights[i] = gamma_variate(random, alpha);
	/* With a tiny alpha all weights may underflow to zero. */
	for (unsigned i = 0; i < count; i++)
		weights[i] = sum > 0 ? weights[i] / sum : i == 0;
}

static void draw_mix(const struct transform *transform, const struct drawing *to)
{
	const struct transform_policy *policy = &transform->policy;
	unsigned operations = policy->all_operations ? POLICY_IDENTITY : POLICY_BRIGHTNESS;
	double own[2], weights[TRANSFORM_MIX_WIDTH_MAX];

	dirichlet(to->random, policy->alpha, 2, own);
	dirichlet(to->random, policy->alpha, policy->width, weights);
	*effect_list_add(to->list) =
		(struct effect){.kind = EFFECT_MIX_BEGIN, .weight = (float)own[0]};
	for (unsigned i = 0; i < policy->width; i++) {
		unsigned depth = policy->depth ? policy->depth : 1 + random_below(to->random, 3);

		for (unsigned k = 0; k < depth; k++) {
			enum policy_operation operation = random_below(to->random, operations);
			unsigned bin = random_below(to->random, policy->magnitude);

			policy_add(transform, POLICY_MIX, operation, bin, POLICY_AUTO_BINS, to);
		}
		*effect_list_add(to->list) = (struct effect){
			.kind = EFFECT_MIX_ADD, .weight = (float)weights[i] * (float)own[1]};
	}
	*effect_list_add(to->list) = (struct effect){.kind = EFFECT_MIX_END};
}

void policy_draw(const struct transform *transform, const struct drawing *to)
{
	const struct transform_policy *policy = &transform->policy;

	switch (transform->kind) {
	case TRANSFORM_RAND_AUGMENT:
		for (unsigned i = 0; i < policy->operations; i++)
			policy_add(transform, POLICY_AUTO_OR_RAND,
				   random_below(to->random, POLICY_INVERT), policy->magnitude,
				   policy->bins, to);
		return;
	case TRANSFORM_TRIVIAL_AUGMENT: {
		enum policy_operation operation = random_below(to->random, POLICY_INVERT);

		policy_add(transform, POLICY_TRIVIAL, operation,
			   random_below(to->random, policy->bins), policy->bins, to);
		return;
	}
	case TRANSFORM_AUG_MIX:
		draw_mix(transform, to);
		return;
	default:
		draw_auto(transform, to);
	}
}

unsigned policy_effects_max(const struct transform *transform)
{
	const struct transform_policy *policy = &transform->policy;

	switch (transform->kind) {
	case TRANSFORM_RAND_AUGMENT:
		return policy->operations;
	case TRANSFORM_TRIVIAL_AUGMENT:
		return 1;
	case TRANSFORM_AUG_MIX:
		return policy->width * ((policy->depth ? policy->depth : 3) + 1) + 2;
	default:
		return 2;
	}
}
