#include "format/augment/grammar/grammar_rules.h"
#include "format/augment/grammar/policy.h"
#include "format/base/portable_math.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static bool given(const struct value *value)
{
	return value->position >= 0;
}

/*
 * A single number is the half-width of a range around the neutral value. A range of factors starts
 * at zero or above.
 */
static int set_jitter(const struct call *call, struct transform *transform)
{
	for (int i = 0; i < TRANSFORM_JITTERS; i++) {
		const struct value *value = &call->values[i];
		double neutral = i == TRANSFORM_JITTER_HUE ? 0 : 1, amount = value->numbers[0];

		if (given(value) && value->count == 1 && amount < 0)
			return pipeline_fail(
				call->error, -EINVAL, value->position,
				"%s of %.7g: give a positive number, or a range such as %.7g:%.7g",
				call->rule->parameters[i].key, amount, amount, -amount);
		transform->jitter[i][0] = neutral - amount;
		transform->jitter[i][1] = neutral + amount;
		if (i != TRANSFORM_JITTER_HUE && transform->jitter[i][0] < 0)
			transform->jitter[i][0] = 0;
		if (value->count == 2)
			memcpy(transform->jitter[i], value->numbers, sizeof(transform->jitter[i]));
	}
	return 0;
}

/* A single number N means -N:N, as for torchvision's angles. */
static int set_angles(struct pipeline_error *error, const char *key, const struct value *value,
		      const double *numbers, unsigned count, double ret_range[2])
{
	ret_range[0] = count == 1 ? -numbers[0] : count ? numbers[0] : 0;
	ret_range[1] = count == 1 ? numbers[0] : count ? numbers[1] : 0;
	if (count == 1 && numbers[0] < 0)
		return pipeline_fail(error, -EINVAL, value->position,
				     "%s of %.7g: give a positive number, or a range such as "
				     "%.7g:%.7g",
				     key, numbers[0], numbers[0], -numbers[0]);
	return 0;
}

static int set_affine(const struct call *call, struct transform *transform)
{
	const struct value *translate = &call->values[1], *shear = &call->values[3];
	struct transform_warp *warp = &transform->warp;
	int r = set_angles(call->error, "degrees", &call->values[0], call->values[0].numbers,
			   call->values[0].count, warp->degrees);

	if (r < 0)
		return r;
	warp->translate[0] = translate->numbers[0];
	warp->translate[1] = translate->numbers[translate->count == 2];
	warp->filled = true;
	r = set_angles(call->error, "shear", shear, shear->numbers,
		       shear->count > 2 ? 2 : shear->count, warp->shear_x);
	if (r < 0 || shear->count != 4)
		return r;
	return set_angles(call->error, "shear", shear, shear->numbers + 2, 2, warp->shear_y);
}

static int set_blur(const struct call *call, struct transform *transform)
{
	const struct value *sigma = &call->values[1];
	uint32_t side = transform->kernel[transform->kernel[0] % 2];

	if (side % 2 == 0)
		return pipeline_fail(
			call->error, -EINVAL, call->values[0].position,
			"kernel_size must be odd, so that it has a middle: not %u, but %u or %u",
			side, side - 1, side + 1);
	const double *otherwise = call->rule->parameters[1].otherwise;

	transform->sigma[0] = given(sigma) ? sigma->numbers[0] : otherwise[0];
	transform->sigma[1] = given(sigma) ? sigma->numbers[sigma->count - 1] : otherwise[1];
	return 0;
}

static int set_erased(const struct call *call, struct transform *transform)
{
	const struct value *value = &call->values[transform->kind == TRANSFORM_ERASING ? 3 : 2];

	for (int i = 0; value->count && i < 3; i++) {
		if (!transform->finished && (value->numbers[i] < 0 || value->numbers[i] > 255))
			return pipeline_fail(
				call->error, -EINVAL, value->position,
				"a value of %.7g is not within 0 to 255, which pixels "
				"have here; after normalize it is in the result's units",
				value->numbers[i]);
		transform->value[i] = (float)value->numbers[i];
	}
	return 0;
}

static int set_rand_augment(const struct call *call, struct transform *transform)
{
	const struct transform_policy *policy = &transform->policy;

	if (policy->magnitude >= policy->bins)
		return pipeline_fail(call->error, -EINVAL,
				     given(&call->values[1]) ? call->values[1].position
							     : call->values[2].position,
				     "magnitude %u needs num_magnitude_bins=%u or more, or a "
				     "magnitude of at most %u",
				     policy->magnitude, policy->magnitude + 1, policy->bins - 1);
	return 0;
}

static int set_aug_mix(const struct call *call, struct transform *transform)
{
	double depth = call->values[2].numbers[0];

	transform->policy.depth = depth > 0 ? (unsigned)depth : 0;
	transform->policy.all_operations = call->values[4].choice == 0;
	return 0;
}

/* -EINVAL if two arguments are the ends of a range and in the wrong order. */
static int check_ends(const struct call *call, unsigned low, const double ends[2])
{
	const struct value *values = &call->values[low];

	if (ends[0] <= ends[1])
		return 0;
	return pipeline_fail(call->error, -EINVAL,
			     given(&values[1]) ? values[1].position : values[0].position,
			     "%s of %.7g is above %s, %.7g", call->rule->parameters[low].key,
			     ends[0], call->rule->parameters[low + 1].key, ends[1]);
}

static int set_iou_crop(const struct call *call, struct transform *transform)
{
	int r = check_ends(call, 0, transform->scale);

	return r < 0 ? r : check_ends(call, 2, transform->ratio);
}

static int set_patches(const struct call *call, struct transform *transform)
{
	const struct transform_patches *patches = &transform->patches;
	const unsigned side_max = PIPELINE_SIDE_MAX / patches->size;

	if (patches->tokens_min > patches->tokens_max)
		return pipeline_fail(call->error, -EINVAL,
				     given(&call->values[2]) ? call->values[2].position
							     : call->values[1].position,
				     "min_tokens of %u is above max_tokens, %u",
				     patches->tokens_min, patches->tokens_max);
	if (patches->tokens_max > side_max * side_max)
		return pipeline_fail(call->error, -E2BIG,
				     given(&call->values[1]) ? call->values[1].position
							     : transform->position,
				     "an image has at most %u patches of %u x %u pixels, since its "
				     "sides have %d pixels at most, not %u",
				     side_max * side_max, patches->size, patches->size,
				     PIPELINE_SIDE_MAX, patches->tokens_max);
	return 0;
}

static int set_rotation(const struct call *call, struct transform *transform)
{
	transform->warp.scale[0] = transform->warp.scale[1] = 1;
	transform->warp.filled = true;
	return set_angles(call->error, "degrees", &call->values[0], call->values[0].numbers,
			  call->values[0].count, transform->warp.degrees);
}

static int set_effect(const struct call *call, struct transform *transform)
{
	transform->effect = call->rule->effect;
	/* p is the last parameter. If there are two, the first is the amount. */
	transform->amount = call->rule->parameters[1].key ? call->values[0].numbers[0] : 0;
	return 0;
}

const struct rule grammar_rules[] = {
#define GEOMETRY(constant, where, name, text, size, geometry, set, ...)                            \
	{name, TRANSFORM_##constant, {__VA_ARGS__}, set, EFFECT_NONE},
#define BOXES(constant, name, text, step, ...)                                                     \
	{name, TRANSFORM_##constant, {__VA_ARGS__}, NULL, EFFECT_NONE},
#define PIXELS(constant, where, name, text, set, draw, ...)                                        \
	{name, TRANSFORM_##constant, {__VA_ARGS__}, set, EFFECT_NONE},
#define FORM(constant, name, text, ...)                                                            \
	{name, TRANSFORM_##constant, {__VA_ARGS__}, NULL, EFFECT_NONE},
#define VALUES(constant, name, text, ...)                                                          \
	{name, TRANSFORM_##constant, {__VA_ARGS__}, NULL, EFFECT_NONE},
#define BATCHES(constant, name, text, ...)                                                         \
	{name, TRANSFORM_##constant, {__VA_ARGS__}, NULL, EFFECT_NONE},
#define EFFECT(constant, how, where, name, text, p, ...)                                           \
	{name,                                                                                     \
	 TRANSFORM_EFFECT,                                                                         \
	 {__VA_ARGS__ __VA_OPT__(, ) PARAM_P(p)},                                                  \
	 set_effect,                                                                               \
	 EFFECT_##constant},
	TRANSFORMS_OF_GEOMETRY(GEOMETRY) TRANSFORMS_OF_BOXES(BOXES)
		TRANSFORMS_OF_PIXELS(PIXELS, EFFECT_TRANSFORMS(EFFECT)) TRANSFORMS_OF_FORM(FORM)
			TRANSFORMS_OF_VALUES(VALUES) TRANSFORMS_OF_BATCHES(BATCHES)
#undef EFFECT
#undef BATCHES
#undef VALUES
#undef FORM
#undef PIXELS
#undef BOXES
#undef GEOMETRY
				{0},
};

static void put_value(const struct parameter *parameter, const struct value *value,
		      struct transform *transform)
{
	const double *numbers = given(value) ? value->numbers : parameter->otherwise;
	char *base = (char *)transform;
	void *at = base + parameter->into;

	if (parameter->word)
		base[parameter->word] = value->word[0] != 0;
	if (parameter->given)
		base[parameter->given] = given(value);
	if (!parameter->into)
		return;
	switch (parameter->type) {
	case VALUE_NUMBER:
		*(double *)at = numbers[0];
		break;
	case VALUE_RANGE:
		memcpy(at, numbers, 2 * sizeof(*numbers));
		break;
	case VALUE_LIST: {
		struct transform_list *list = at;

		list->count = given(value) ? value->count : parameter->otherwise_count;
		memcpy(list->numbers, numbers, list->count * sizeof(*numbers));
		break;
	}
	case VALUE_WHOLE:
		*(unsigned *)at = (unsigned)numbers[0];
		break;
	case VALUE_EXTENT:
		for (int i = 0; i < 2; i++)
			((uint32_t *)at)[i] = (uint32_t)numbers[i];
		break;
	case VALUE_COLOUR:
		for (int i = 0; i < 3; i++)
			((uint8_t *)at)[i] = (uint8_t)rint(numbers[i]);
		break;
	default:
		*(uint8_t *)at = (uint8_t)(given(value) ? value->choice : numbers[0]);
	}
}

int grammar_set(const struct call *call, struct transform *transform)
{
	const struct rule *rule = call->rule;

	for (unsigned i = 0; i < PARAMETERS_MAX && rule->parameters[i].key; i++)
		put_value(&rule->parameters[i], &call->values[i], transform);
	for (int i = 0; i < 2 && transform->ratio[i] > 0; i++)
		transform->ratio_log[i] = portable_log(transform->ratio[i]);
	if (transform->bicubic && transform->chroma_fast)
		return pipeline_fail(call->error, -EINVAL, transform->position,
				     "interpolation=bicubic resizes pixels as Pillow does, and "
				     "chroma=fast planes: leave one of them out");
	return rule->set ? rule->set(call, transform) : 0;
}
