#include "format/base/portable_math.h"
#include "loaderd/augment/grammar/grammar_rules.h"
#include "loaderd/augment/grammar/policy.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static bool given(const struct value *value)
{
	return value->position >= 0;
}

static double number_or(const struct value *value, double otherwise)
{
	return given(value) ? value->numbers[0] : otherwise;
}

static void range_or(const struct value *value, double low, double high, double ret_range[2])
{
	ret_range[0] = given(value) ? value->numbers[0] : low;
	ret_range[1] = given(value) ? value->numbers[1] : high;
}

static void colour_or(const struct value *value, uint8_t otherwise, uint8_t ret_colour[3])
{
	for (int i = 0; i < 3; i++)
		ret_colour[i] = given(value) ? (uint8_t)rint(value->numbers[i]) : otherwise;
}

static void set_region(const struct value *scale, const struct value *ratio,
		       const double scale_default[2], const double ratio_default[2],
		       struct step *step)
{
	range_or(scale, scale_default[0], scale_default[1], step->scale);
	range_or(ratio, ratio_default[0], ratio_default[1], step->ratio);
	step->ratio_log[0] = portable_log(step->ratio[0]);
	step->ratio_log[1] = portable_log(step->ratio[1]);
}

static void set_border(const struct value *extent, const struct value *fill, struct step *step)
{
	step->pad_x = given(extent) ? (uint32_t)extent->numbers[0] : 0;
	step->pad_y = given(extent) ? (uint32_t)extent->numbers[1] : 0;
	colour_or(fill, 0, step->fill);
	step->reflect = given(fill) && fill->count == 0;
}

/* A single number spreads round the neutral value, not below zero for factors. */
static int set_jitter(const struct call *call, struct step *step)
{
	step->probability = number_or(&call->values[4], 1);
	for (int i = 0; i < STEP_JITTERS; i++) {
		const struct value *value = &call->values[i];
		double neutral = i == STEP_JITTER_HUE ? 0 : 1, amount = number_or(value, 0);

		if (given(value) && value->count == 1 && amount < 0)
			return transform_fail(
				call->error, -EINVAL, value->position,
				"%s of %.7g: give a positive number, or a range such as %.7g:%.7g",
				call->rule->parameters[i].key, amount, amount, -amount);
		step->jitter[i][0] = neutral - amount;
		step->jitter[i][1] = neutral + amount;
		if (i != STEP_JITTER_HUE && step->jitter[i][0] < 0)
			step->jitter[i][0] = 0;
		if (value->count == 2)
			memcpy(step->jitter[i], value->numbers, sizeof(step->jitter[i]));
	}
	return 0;
}

/* One number stands for both ends, the lower one negated: torchvision's angles. */
static int set_angles(struct transform_error *error, const char *key, const struct value *value,
		      const double *numbers, unsigned count, double ret_range[2])
{
	ret_range[0] = count == 1 ? -numbers[0] : count ? numbers[0] : 0;
	ret_range[1] = count == 1 ? numbers[0] : count ? numbers[1] : 0;
	if (count == 1 && numbers[0] < 0)
		return transform_fail(error, -EINVAL, value->position,
				      "%s of %.7g: give a positive number, or a range such as "
				      "%.7g:%.7g",
				      key, numbers[0], numbers[0], -numbers[0]);
	return 0;
}

static void set_outside(const struct value *interpolation, const struct value *fill,
			struct step *step)
{
	step->warp.bilinear = given(interpolation) && strcmp(interpolation->word, "bilinear") == 0;
	step->warp.filled = true;
	colour_or(fill, 0, step->fill);
}

static int set_affine(const struct call *call, struct step *step)
{
	const struct value *translate = &call->values[1], *shear = &call->values[3];
	struct step_warp *warp = &step->warp;
	int r = set_angles(call->error, "degrees", &call->values[0], call->values[0].numbers,
			   call->values[0].count, warp->degrees);

	if (r < 0)
		return r;
	warp->translate[0] = number_or(translate, 0);
	warp->translate[1] = translate->count == 2 ? translate->numbers[1] : warp->translate[0];
	range_or(&call->values[2], 1, 1, warp->scale);
	set_outside(&call->values[4], &call->values[5], step);
	r = set_angles(call->error, "shear", shear, shear->numbers,
		       shear->count > 2 ? 2 : shear->count, warp->shear_x);
	if (r < 0 || shear->count != 4)
		return r;
	return set_angles(call->error, "shear", shear, shear->numbers + 2, 2, warp->shear_y);
}

static int set_blur(const struct call *call, struct step *step)
{
	const struct value *kernel = &call->values[0], *sigma = &call->values[1];

	step->kernel_width = (uint32_t)kernel->numbers[0];
	step->kernel_height = (uint32_t)kernel->numbers[1];
	if (step->kernel_width % 2 == 0 || step->kernel_height % 2 == 0)
		return transform_fail(
			call->error, -EINVAL, kernel->position,
			"kernel_size is odd, so that it has a middle; not %u, but %u or %u",
			step->kernel_width % 2 ? step->kernel_height : step->kernel_width,
			(step->kernel_width % 2 ? step->kernel_height : step->kernel_width) - 1,
			(step->kernel_width % 2 ? step->kernel_height : step->kernel_width) + 1);
	step->sigma[0] = number_or(sigma, 0.1);
	step->sigma[1] = given(sigma) ? sigma->numbers[sigma->count - 1] : 2;
	step->probability = number_or(&call->values[2], 1);
	return 0;
}

static int set_erased(struct transform_error *error, const struct value *value, struct step *step)
{
	step->noise = given(value) && value->count == 0;
	for (int i = 0; given(value) && value->count && i < 3; i++) {
		if (!step->finished && (value->numbers[i] < 0 || value->numbers[i] > 255))
			return transform_fail(
				error, -EINVAL, value->position,
				"a value of %.7g is not within 0 to 255, which pixels "
				"have here; after normalize it is in the result's units",
				value->numbers[i]);
		step->value[i] = (float)value->numbers[i];
	}
	return 0;
}

/*
 * Where the fill of a policy is not given, bilinear fades into black as torchvision's fill=None
 * does.
 */
static void set_policy_outside(const struct value *interpolation, const struct value *fill,
			       bool bilinear, struct step *step)
{
	set_outside(interpolation, fill, step);
	step->warp.filled = given(fill);
	if (!given(interpolation))
		step->warp.bilinear = bilinear;
}

static int set_rand_augment(const struct call *call, struct step *step)
{
	struct step_policy *policy = &step->policy;

	policy->operations = (unsigned)number_or(&call->values[0], 2);
	policy->magnitude = (unsigned)number_or(&call->values[1], 9);
	policy->bins = (unsigned)number_or(&call->values[2], 31);
	set_policy_outside(&call->values[3], &call->values[4], false, step);
	if (policy->magnitude >= policy->bins)
		return transform_fail(call->error, -EINVAL,
				      given(&call->values[1]) ? call->values[1].position
							      : call->values[2].position,
				      "magnitude %u needs num_magnitude_bins=%u or more, or a "
				      "magnitude of at most %u",
				      policy->magnitude, policy->magnitude + 1, policy->bins - 1);
	return 0;
}

static int set_aug_mix(const struct call *call, struct step *step)
{
	struct step_policy *policy = &step->policy;
	double depth = number_or(&call->values[2], -1);

	policy->magnitude = (unsigned)number_or(&call->values[0], 3);
	policy->width = (unsigned)number_or(&call->values[1], 3);
	policy->depth = depth > 0 ? (unsigned)depth : 0;
	policy->alpha = number_or(&call->values[3], 1);
	policy->all_operations =
		!given(&call->values[4]) || strcmp(call->values[4].word, "true") == 0;
	set_policy_outside(&call->values[5], &call->values[6], true, step);
	return 0;
}

static int set_auto_augment(const struct call *call, struct step *step)
{
	const char *word = given(&call->values[0]) ? call->values[0].word : "imagenet";

	step->policy.learned = strcmp(word, "imagenet") == 0  ? STEP_LEARNED_IMAGENET
			       : strcmp(word, "cifar10") == 0 ? STEP_LEARNED_CIFAR10
							      : STEP_LEARNED_SVHN;
	set_policy_outside(&call->values[1], &call->values[2], false, step);
	return 0;
}

static int set_trivial_augment(const struct call *call, struct step *step)
{
	step->policy.bins = (unsigned)number_or(&call->values[0], 31);
	set_policy_outside(&call->values[1], &call->values[2], false, step);
	return 0;
}

/* p comes last. */
static int set_effect(const struct call *call, struct step *step)
{
	bool has_amount = call->rule->parameters[1].key;

	step->effect = call->rule->effect;
	step->amount = has_amount ? call->values[0].numbers[0] : 0;
	step->probability = number_or(&call->values[has_amount], call->rule->probability);
	return 0;
}

static int set_resized_crop(const struct call *call, struct step *step)
{
	set_region(&call->values[1], &call->values[2], (const double[]){0.08, 1},
		   (const double[]){3.0 / 4.0, 4.0 / 3.0}, step);
	step->chroma_fast = strcmp(call->values[3].word, "fast") == 0;
	return 0;
}

static int set_resize(const struct call *call, struct step *step)
{
	step->chroma_fast = strcmp(call->values[1].word, "fast") == 0;
	return 0;
}

static int set_nothing(const struct call *call, struct step *step)
{
	return 0;
}

static int set_pad(const struct call *call, struct step *step)
{
	set_border(&call->values[0], &call->values[1], step);
	return 0;
}

static int set_random_crop(const struct call *call, struct step *step)
{
	set_border(&call->values[1], &call->values[2], step);
	return 0;
}

static int set_flip(const struct call *call, struct step *step)
{
	step->alternate = given(&call->values[0]) && call->values[0].count == 0;
	step->probability = number_or(&call->values[0], 0.5);
	return 0;
}

static int set_rotation(const struct call *call, struct step *step)
{
	step->warp.scale[0] = step->warp.scale[1] = 1;
	set_outside(&call->values[1], &call->values[2], step);
	return set_angles(call->error, "degrees", &call->values[0], call->values[0].numbers,
			  call->values[0].count, step->warp.degrees);
}

static int set_erasing(const struct call *call, struct step *step)
{
	step->probability = number_or(&call->values[0], 0.5);
	set_region(&call->values[1], &call->values[2], (const double[]){0.02, 0.33},
		   (const double[]){0.3, 3.3}, step);
	return set_erased(call->error, &call->values[3], step);
}

static int set_cutout(const struct call *call, struct step *step)
{
	step->pad_x = (uint32_t)call->values[0].numbers[0];
	step->pad_y = (uint32_t)call->values[0].numbers[1];
	step->probability = number_or(&call->values[1], 1);
	return set_erased(call->error, &call->values[2], step);
}

const struct rule grammar_rules[] = {
#define GEOMETRY(constant, name, set, size, plan, ...)                                             \
	{name, STEP_##constant, {__VA_ARGS__}, set, EFFECT_NONE, 0},
#define PIXELS(constant, name, set, draw, ...)                                                     \
	{name, STEP_##constant, {__VA_ARGS__}, set, EFFECT_NONE, 0},
#define FORM(constant, name, ...) {name, STEP_##constant, {__VA_ARGS__}, NULL, EFFECT_NONE, 0},
#define EFFECT(constant, how, name, p, ...)                                                        \
	{name, STEP_EFFECT, {__VA_ARGS__ __VA_OPT__(, ) STEP_P}, set_effect, EFFECT_##constant, p},
	STEPS_OF_GEOMETRY(GEOMETRY) STEPS_OF_PIXELS(PIXELS, EFFECT_STEPS(EFFECT))
		STEPS_OF_FORM(FORM)
#undef EFFECT
#undef FORM
#undef PIXELS
#undef GEOMETRY
			{0},
};
