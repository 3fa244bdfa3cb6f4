#include "format/augment/grammar/grammar_rules.h"
#include "format/base/text/nearest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Names of the transforms in other libraries. Compared ignoring case and underscores. */
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
	{"ioucrop", "random_iou_crop"},
	{"miniourandomcrop", "random_iou_crop"},
	{"ssdcrop", "random_iou_crop"},
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
	{"photometricdistort", "random_photometric_distort"},
	{"photometricdistortion", "random_photometric_distort"},
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
	{"simplecopypaste", "copy_paste"},
	{"copyandpaste", "copy_paste"},
	{"randommixup", "mixup"},
	{"randomcutmix", "cutmix"},
	{"softtargets", "targets"},
};

/* Transform names for an error message, each followed by ", ": as many as fit. */
static const char common_names[] =
#define GEOMETRY(constant, where, name, ...) name ", "
#define FORM(constant, name, ...)            name ", "
	TRANSFORMS_OF_GEOMETRY(GEOMETRY) TRANSFORMS_OF_FORM(FORM);
#undef FORM
#undef GEOMETRY

const struct rule *grammar_find(const char *name)
{
	for (const struct rule *rule = grammar_rules; rule->name; rule++)
		if (strcmp(rule->name, name) == 0)
			return rule;
	return NULL;
}

const char *transform_name(enum transform_kind kind)
{
	const struct rule *rule = grammar_rules;

	while (rule->kind != kind)
		rule++;
	return rule->name;
}

int grammar_fail_name(struct pipeline_error *error, int position, const char *name)
{
	struct nearest nearest = nearest_to(name);

	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (nearest_distance(name, aliases[i].alias) == 0)
			return pipeline_fail(error, -EINVAL, position,
					     "there is no transform '%s'; did you mean '%s'?", name,
					     aliases[i].name);
	for (unsigned i = 0; grammar_rules[i].name; i++)
		nearest_offer(&nearest, grammar_rules[i].name);
	if (nearest.meant)
		return pipeline_fail(error, -EINVAL, position,
				     "there is no transform '%s'; did you mean '%s'?", name,
				     nearest.meant);
	return pipeline_fail(error, -EINVAL, position,
			     "there is no transform '%s'; expected one of %sor another from "
			     "PIPELINES in loaderd(1)",
			     name, common_names);
}

int grammar_fail_key(struct pipeline_error *error, int position, const struct rule *rule,
		     const char *key)
{
	char list[128];
	size_t used = 0;

	list[0] = 0;
	for (unsigned i = 0; i < PARAMETERS_MAX && rule->parameters[i].key; i++) {
		if (nearest_distance(key, rule->parameters[i].key) != NEAREST_NONE)
			return pipeline_fail(error, -EINVAL, position,
					     "%s has no argument '%s'; did you mean '%s'?",
					     rule->name, key, rule->parameters[i].key);
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
					 rule->parameters[i].key);
	}
	return pipeline_fail(error, -EINVAL, position,
			     "%s has no argument '%s'; expected one of %s", rule->name, key, list);
}
