#include "loaderd/augment/grammar/grammar_rules.h"
#include "format/base/nearest.h"
#include "loaderd/augment/grammar/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Bounds of the numbers are generous: what lies beyond them is a slip of the pen. */
const struct rule grammar_rules[] = {
	{"random_resized_crop",
	 STEP_RANDOM_RESIZED_CROP,
	 {{"size", VALUE_SIZE, .required = true},
	  {"scale", VALUE_RANGE, 1e-6, 1},
	  {"ratio", VALUE_RANGE, 0.01, 100},
	  {"chroma", VALUE_WORD, .words = "exact|fast"}}},
	{"resize",
	 STEP_RESIZE,
	 {{"size", VALUE_SIZE, .required = true}, {"chroma", VALUE_WORD, .words = "exact|fast"}}},
	{"center_crop", STEP_CENTER_CROP, {{"size", VALUE_SIZE, .required = true}}},
	{"pad",
	 STEP_PAD,
	 {{"size", VALUE_EXTENT, .required = true},
	  {"fill", VALUE_COLOUR, 0, 255, .words = "reflect"}}},
	{"random_crop",
	 STEP_RANDOM_CROP,
	 {{"size", VALUE_SIZE, .required = true},
	  {"padding", VALUE_EXTENT},
	  {"fill", VALUE_COLOUR, 0, 255, .words = "reflect"}}},
	{"hflip", STEP_HFLIP, {{"p", VALUE_NUMBER, 0, 1, .words = "alternate"}}},
	{"vflip", STEP_VFLIP, {{"p", VALUE_NUMBER, 0, 1, .words = "alternate"}}},
	{"color_jitter",
	 STEP_COLOR_JITTER,
	 {{"brightness", VALUE_SPREAD, 0, 1000},
	  {"contrast", VALUE_SPREAD, 0, 1000},
	  {"saturation", VALUE_SPREAD, 0, 1000},
	  {"hue", VALUE_SPREAD, -0.5, 0.5},
	  {"p", VALUE_NUMBER, 0, 1}}},
	{"random_grayscale", STEP_EFFECT, {{"p", VALUE_NUMBER, 0, 1}}, EFFECT_GRAYSCALE, 0.1},
	{"random_invert", STEP_EFFECT, {{"p", VALUE_NUMBER, 0, 1}}, EFFECT_INVERT, 0.5},
	{"random_solarize",
	 STEP_EFFECT,
	 {{"threshold", VALUE_NUMBER, 0, 255, .required = true}, {"p", VALUE_NUMBER, 0, 1}},
	 EFFECT_SOLARIZE,
	 0.5},
	{"random_posterize",
	 STEP_EFFECT,
	 {{"bits", VALUE_WHOLE, 0, 8, .required = true}, {"p", VALUE_NUMBER, 0, 1}},
	 EFFECT_POSTERIZE,
	 0.5},
	{"random_autocontrast", STEP_EFFECT, {{"p", VALUE_NUMBER, 0, 1}}, EFFECT_AUTOCONTRAST, 0.5},
	{"random_equalize", STEP_EFFECT, {{"p", VALUE_NUMBER, 0, 1}}, EFFECT_EQUALIZE, 0.5},
	{"random_adjust_sharpness",
	 STEP_EFFECT,
	 {{"sharpness_factor", VALUE_NUMBER, 0, 1000, .required = true}, {"p", VALUE_NUMBER, 0, 1}},
	 EFFECT_SHARPNESS,
	 0.5},
	{"gaussian_blur",
	 STEP_BLUR,
	 {{"kernel_size", VALUE_EXTENT, 1, EFFECT_BLUR_SIDE_MAX, .required = true},
	  {"sigma", VALUE_SPREAD, 0.01, 100},
	  {"p", VALUE_NUMBER, 0, 1}}},
	{"random_rotation",
	 STEP_ROTATION,
	 {{"degrees", VALUE_SPREAD, -360, 360, .required = true},
	  {"interpolation", VALUE_WORD, .words = "nearest|bilinear"},
	  {"fill", VALUE_COLOUR, 0, 255}}},
	{"random_affine",
	 STEP_AFFINE,
	 {{"degrees", VALUE_SPREAD, -360, 360, .required = true},
	  {"translate", VALUE_PAIR, 0, 1},
	  {"scale", VALUE_RANGE, 0.001, 1000},
	  {"shear", VALUE_SHEAR, -89, 89},
	  {"interpolation", VALUE_WORD, .words = "nearest|bilinear"},
	  {"fill", VALUE_COLOUR, 0, 255}}},
	{"random_erasing",
	 STEP_ERASING,
	 {{"p", VALUE_NUMBER, 0, 1},
	  {"scale", VALUE_RANGE, 0, 1},
	  {"ratio", VALUE_RANGE, 0.01, 100},
	  {"value", VALUE_COLOUR, -1e6, 1e6, .words = "random"}}},
	{"cutout",
	 STEP_CUTOUT,
	 {{"size", VALUE_EXTENT, 1, TRANSFORM_SIDE_MAX, .required = true},
	  {"p", VALUE_NUMBER, 0, 1},
	  {"value", VALUE_COLOUR, -1e6, 1e6, .words = "random"}}},
	{"rand_augment",
	 STEP_RAND_AUGMENT,
	 {{"num_ops", VALUE_WHOLE, 1, 16},
	  {"magnitude", VALUE_WHOLE, 0, 999},
	  {"num_magnitude_bins", VALUE_WHOLE, 2, 1000},
	  {"interpolation", VALUE_WORD, .words = "nearest|bilinear"},
	  {"fill", VALUE_COLOUR, 0, 255}}},
	{"trivial_augment_wide",
	 STEP_TRIVIAL_AUGMENT,
	 {{"num_magnitude_bins", VALUE_WHOLE, 2, 1000},
	  {"interpolation", VALUE_WORD, .words = "nearest|bilinear"},
	  {"fill", VALUE_COLOUR, 0, 255}}},
	{"aug_mix",
	 STEP_AUG_MIX,
	 {{"severity", VALUE_WHOLE, 1, POLICY_AUTO_BINS},
	  {"mixture_width", VALUE_WHOLE, 1, STEP_MIX_WIDTH_MAX},
	  {"chain_depth", VALUE_WHOLE, -1, 8},
	  {"alpha", VALUE_NUMBER, 0.01, 1000},
	  {"all_ops", VALUE_WORD, .words = "true|false"},
	  {"interpolation", VALUE_WORD, .words = "nearest|bilinear"},
	  {"fill", VALUE_COLOUR, 0, 255}}},
	{"auto_augment",
	 STEP_AUTO_AUGMENT,
	 {{"policy", VALUE_WORD, .words = "imagenet|cifar10|svhn"},
	  {"interpolation", VALUE_WORD, .words = "nearest|bilinear"},
	  {"fill", VALUE_COLOUR, 0, 255}}},
	{"normalize",
	 STEP_NORMALIZE,
	 {{"statistics", VALUE_WORD, .words = "imagenet|dataset"},
	  {"mean", VALUE_COLOUR, -1e6, 1e6},
	  {"std", VALUE_COLOUR, 0, 1e6}}},
	{"to", STEP_TO, {{"type", VALUE_WORD, .words = "u8|f16|bf16|f32", .required = true}}},
	{"layout", STEP_LAYOUT, {{"layout", VALUE_WORD, .words = "nhwc|nchw", .required = true}}},
	{"channels", STEP_CHANNELS, {{"channels", VALUE_WORD, .words = "3|4", .required = true}}},
	{0},
};

/* What other libraries call the steps, without case and underscores. */
static const struct {
	const char *alias, *name;
} aliases[] = {
	{"randomhorizontalflip", "hflip"},
	{"horizontalflip", "hflip"},
	{"flip", "hflip"},
	{"fliplr", "hflip"},
	{"randomflip", "hflip"},
	{"randomverticalflip", "vflip"},
	{"verticalflip", "vflip"},
	{"flipud", "vflip"},
	{"rrc", "random_resized_crop"},
	{"centrecrop", "center_crop"},
	{"crop", "center_crop"},
	{"resizedcrop", "random_resized_crop"},
	{"normalise", "normalize"},
	{"cast", "to"},
	{"dtype", "to"},
	{"astype", "to"},
	{"totensor", "to"},
	{"todtype", "to"},
	{"convert", "to"},
	{"padding", "pad"},
	{"format", "layout"},
	{"grayscale", "random_grayscale"},
	{"togray", "random_grayscale"},
	{"invert", "random_invert"},
	{"solarize", "random_solarize"},
	{"posterize", "random_posterize"},
	{"autocontrast", "random_autocontrast"},
	{"equalize", "random_equalize"},
	{"jitter", "color_jitter"},
	{"sharpness", "random_adjust_sharpness"},
	{"adjustsharpness", "random_adjust_sharpness"},
	{"blur", "gaussian_blur"},
	{"rotate", "random_rotation"},
	{"rotation", "random_rotation"},
	{"affine", "random_affine"},
	{"erasing", "random_erasing"},
	{"randomerase", "random_erasing"},
	{"randaug", "rand_augment"},
	{"trivialaugment", "trivial_augment_wide"},
	{"taw", "trivial_augment_wide"},
	{"autoaug", "auto_augment"},
};

const struct rule *grammar_find(const char *name)
{
	for (const struct rule *rule = grammar_rules; rule->name; rule++)
		if (strcmp(rule->name, name) == 0)
			return rule;
	return NULL;
}

int grammar_fail_name(struct transform_error *error, int position, const char *name)
{
	struct nearest nearest = nearest_to(name);

	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (nearest_slips(name, aliases[i].alias) == 0)
			return transform_fail(error, -EINVAL, position,
					      "there is no step '%s'; did you mean '%s'?", name,
					      aliases[i].name);
	for (unsigned i = 0; grammar_rules[i].name; i++)
		nearest_offer(&nearest, grammar_rules[i].name);
	if (nearest.meant)
		return transform_fail(error, -EINVAL, position,
				      "there is no step '%s'; did you mean '%s'?", name,
				      nearest.meant);
	return transform_fail(
		error, -EINVAL, position,
		"there is no step '%s'; expected one of random_resized_crop, resize, "
		"center_crop, random_crop, hflip, color_jitter, rand_augment, normalize, to, "
		"or another from PIPELINES in loaderd(1)",
		name);
}

int grammar_fail_key(struct transform_error *error, int position, const struct rule *rule,
		     const char *key)
{
	char list[128];
	size_t used = 0;

	list[0] = 0;
	for (unsigned i = 0; i < PARAMETERS_MAX && rule->parameters[i].key; i++) {
		if (nearest_slips(key, rule->parameters[i].key) != NEAREST_NONE)
			return transform_fail(error, -EINVAL, position,
					      "%s has no argument '%s'; did you mean '%s'?",
					      rule->name, key, rule->parameters[i].key);
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
					 rule->parameters[i].key);
	}
	return transform_fail(error, -EINVAL, position,
			      "%s has no argument '%s'; expected one of %s", rule->name, key, list);
}
