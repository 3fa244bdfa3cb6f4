#include "format/augment/transform_list.h"

#include "format/augment/grammar/grammar_rules.h"
#include "format/augment/grammar/policy.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)TRANSFORM_ARGUMENTS_MAX == (int)PARAMETERS_MAX, "one argument per parameter");

static const struct row {
	const char *name, *text;
	/* the arguments are alternatives, of which one is required: normalize */
	bool alternatives;
	struct parameter parameters[PARAMETERS_MAX];
} rows[] = {
#define GEOMETRY(constant, where, name, text, size, geometry, set, ...)                            \
	{name, text, false, {__VA_ARGS__}},
#define BOXES(constant, name, text, step, ...)              {name, text, false, {__VA_ARGS__}},
#define PIXELS(constant, where, name, text, set, draw, ...) {name, text, false, {__VA_ARGS__}},
#define EFFECT(constant, how, where, name, text, p, ...)                                           \
	{name, text, false, {__VA_ARGS__ __VA_OPT__(, ) PARAM_P(p)}},
#define FORM(constant, name, text, ...)    {name, text, true, {__VA_ARGS__}},
#define VALUES(constant, name, text, ...)  {name, text, false, {__VA_ARGS__}},
#define BATCHES(constant, name, text, ...) {name, text, false, {__VA_ARGS__}},
	TRANSFORMS_OF_GEOMETRY(GEOMETRY) TRANSFORMS_OF_BOXES(BOXES)
		TRANSFORMS_OF_PIXELS(PIXELS, EFFECT_TRANSFORMS(EFFECT)) TRANSFORMS_OF_FORM(FORM)
			TRANSFORMS_OF_VALUES(VALUES) TRANSFORMS_OF_BATCHES(BATCHES)
#undef BATCHES
#undef VALUES
#undef FORM
#undef EFFECT
#undef PIXELS
#undef BOXES
#undef GEOMETRY
};

static const char *const forms[] = {
	[VALUE_SIZE] = "N, WxH or a schedule",
	[VALUE_EXTENT] = "N or WxH",
	[VALUE_NUMBER] = "N",
	[VALUE_WHOLE] = "N",
	[VALUE_RANGE] = "LOW:HIGH",
	[VALUE_SPREAD] = "N or LOW:HIGH",
	[VALUE_COLOUR] = "N or R:G:B",
	[VALUE_PAIR] = "N or X:Y",
	[VALUE_LIST] = "N or N:N:...",
	[VALUE_SHEAR] = "N, LOW:HIGH or LOW:HIGH:LOW:HIGH",
	[VALUE_WORD] = "",
};

static void write_default(const struct parameter *parameter, char text[TRANSFORM_DEFAULT_MAX])
{
	const double *otherwise = parameter->otherwise;
	const char *words = parameter->words;

	if (parameter->given) {
		snprintf(text, TRANSFORM_DEFAULT_MAX, "none");
	} else if (parameter->type == VALUE_WORD) {
		for (int i = 0; i < (int)otherwise[0]; i++)
			words = strchr(words, '|') + 1;
		snprintf(text, TRANSFORM_DEFAULT_MAX, "%.*s", (int)strcspn(words, "|"), words);
	} else if (parameter->type == VALUE_LIST) {
		int used = 0;

		for (unsigned i = 0; i < parameter->otherwise_count; i++)
			used += snprintf(text + used, (size_t)(TRANSFORM_DEFAULT_MAX - used),
					 "%s%.5g", i ? ":" : "", otherwise[i]);
	} else if (parameter->type == VALUE_RANGE || parameter->type == VALUE_PAIR ||
		   (parameter->type != VALUE_COLOUR && otherwise[1])) {
		snprintf(text, TRANSFORM_DEFAULT_MAX, "%.5g:%.5g", otherwise[0], otherwise[1]);
	} else {
		snprintf(text, TRANSFORM_DEFAULT_MAX, "%.5g", otherwise[0]);
	}
}

static void write_argument(const struct row *row, const struct parameter *parameter,
			   struct transform_argument *argument)
{
	bool is_size = parameter->type == VALUE_SIZE || parameter->type == VALUE_EXTENT;

	*argument = (struct transform_argument){
		.name = parameter->key,
		.form = forms[parameter->type],
		.min = parameter->type == VALUE_SIZE ? 1 : parameter->min,
		.max = is_size && parameter->max <= 0 ? PIPELINE_SIDE_MAX : parameter->max,
		.words = parameter->words ? parameter->words : "",
		.required = parameter->required,
	};
	if (!parameter->required && !row->alternatives)
		write_default(parameter, argument->otherwise);
}

bool transform_list_get(size_t i, struct transform_entry *ret_entry)
{
	if (i >= sizeof(rows) / sizeof(rows[0]))
		return false;
	*ret_entry = (struct transform_entry){.name = rows[i].name, .text = rows[i].text};
	for (size_t k = 0; k < PARAMETERS_MAX && rows[i].parameters[k].key; k++)
		write_argument(&rows[i], &rows[i].parameters[k],
			       &ret_entry->arguments[ret_entry->argument_count++]);
	return true;
}
