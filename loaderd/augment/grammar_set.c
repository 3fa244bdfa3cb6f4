#include "grammar_rules.h"
#include "portable_math.h"

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

static void set_pad(const struct value *extent, const struct value *fill, struct step *step)
{
	step->pad_x = given(extent) ? (uint32_t)extent->numbers[0] : 0;
	step->pad_y = given(extent) ? (uint32_t)extent->numbers[1] : 0;
	colour_or(fill, 0, step->fill);
}

/* A single number spreads round the neutral value, not below zero for factors. */
static int set_jitter(struct transform_error *error, const struct rule *rule,
		      const struct value *values, struct step *step)
{
	for (int i = 0; i < STEP_JITTERS; i++) {
		const struct value *value = &values[i];
		double neutral = i == STEP_JITTER_HUE ? 0 : 1, amount = number_or(value, 0);

		if (given(value) && value->count == 1 && amount < 0)
			return transform_fail(
				error, -EINVAL, value->position,
				"%s of %.7g: give a positive number, or a range such as %.7g:%.7g",
				rule->parameters[i].key, amount, amount, -amount);
		step->jitter[i][0] = neutral - amount;
		step->jitter[i][1] = neutral + amount;
		if (i != STEP_JITTER_HUE && step->jitter[i][0] < 0)
			step->jitter[i][0] = 0;
		if (value->count == 2)
			memcpy(step->jitter[i], value->numbers, sizeof(step->jitter[i]));
	}
	return 0;
}

int grammar_set(struct transform_error *error, const struct rule *rule,
		const struct value values[PARAMETERS_MAX], struct step *step)
{
	step->probability = 1;
	switch (rule->kind) {
	case STEP_RANDOM_RESIZED_CROP:
		set_region(&values[1], &values[2], (const double[]){0.08, 1},
			   (const double[]){3.0 / 4.0, 4.0 / 3.0}, step);
		return 0;
	case STEP_PAD:
		set_pad(&values[0], &values[1], step);
		return 0;
	case STEP_RANDOM_CROP:
		set_pad(&values[1], &values[2], step);
		return 0;
	case STEP_HFLIP:
	case STEP_VFLIP:
	case STEP_INVERT:
	case STEP_AUTOCONTRAST:
	case STEP_EQUALIZE:
		step->probability = number_or(&values[0], 0.5);
		return 0;
	case STEP_GRAYSCALE:
		step->probability = number_or(&values[0], 0.1);
		return 0;
	case STEP_COLOR_JITTER:
		step->probability = number_or(&values[4], 1);
		return set_jitter(error, rule, values, step);
	case STEP_SOLARIZE:
	case STEP_POSTERIZE:
		step->amount = values[0].numbers[0];
		step->probability = number_or(&values[1], 0.5);
		return 0;
	default:
		return 0;
	}
}
