#include "format/augment/grammar/draw.h"
#include "format/augment/grammar/parser.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pipeline_fail(struct pipeline_error *error, int result, int position, const char *format, ...)
{
	if (!error)
		return result;
	int used = 0;
	va_list arguments;

	error->position = position;
	if (position >= 0)
		used = snprintf(error->text, sizeof(error->text), "at byte %d: ", position);
	va_start(arguments, format);
	vsnprintf(error->text + used, sizeof(error->text) - (size_t)used, format, arguments);
	va_end(arguments);
	return result;
}

/* Formats "after 'KEY='" if the argument was written with its key, else "for KEY". */
static const char *place(const struct parameter *parameter, bool keyed, char buffer[48])
{
	snprintf(buffer, 48, keyed ? "after '%s='" : "for %s", parameter->key);
	return buffer;
}

/* Parses N or WxH. Returns 1 for WxH, 0 for N (height is then the width). */
static int parse_extent(struct parser *parser, const char *where, const char *example, int64_t min,
			int64_t max, uint32_t *ret_width, uint32_t *ret_height)
{
	int position = parser->at;
	int64_t width = parser_take_integer(parser), height = width;
	bool pair = width >= 0 && parser->text[parser->at] == 'x';

	if (width < 0)
		return fail_expected(parser, "%s %s", example, where);
	if (pair) {
		parser->at++;
		height = parser_take_integer(parser);
		if (height < 0)
			return fail_expected(parser, "a height after '%lldx'", (long long)width);
	}
	if (width < min || height < min)
		return fail(parser, position, "a size of 0 makes no image; expected %s %s", example,
			    where);
	if (width > max || height > max)
		return pipeline_fail(parser->error, -E2BIG, position,
				     "a side is at most %lld pixels", (long long)max);
	*ret_width = (uint32_t)width;
	*ret_height = (uint32_t)height;
	return pair;
}

/* Parses a size or a schedule of sizes: 128@0;160@6. */
static int parse_sizes(struct parser *parser, const char *where, struct transform *transform)
{

	for (;;) {
		struct transform_size *size = &transform->sizes[transform->size_count];
		int position = parser->at;

		if (transform->size_count == TRANSFORM_SIZES_MAX)
			return pipeline_fail(parser->error, -E2BIG, position,
					     "a schedule has at most %d sizes",
					     TRANSFORM_SIZES_MAX);
		int r = parse_extent(parser, where, "a size such as 224, 224x192 or 128@0;224@10",
				     1, PIPELINE_SIDE_MAX, &size->width, &size->height);
		if (r < 0)
			return r;
		/*
		 * One number is the length of the short side for resize, and both sides for other
		 * transforms.
		 */
		if (r == 0 && transform->kind == TRANSFORM_RESIZE)
			size->height = 0;
		transform->size_count++;
		if (parser->text[parser->at] != '@') {
			if (transform->size_count > 1)
				return fail_expected(parser, "'@' and an epoch after the size");
			return 0;
		}
		position = ++parser->at;
		int64_t epoch = parser_take_integer(parser);

		if (epoch < 0)
			return fail_expected(parser, "an epoch after '@'");
		if (transform->size_count == 1 && epoch != 0)
			return fail(parser, position,
				    "the first size of a schedule starts at epoch 0");
		if (transform->size_count > 1 && (uint64_t)epoch <= size[-1].epoch)
			return fail(parser, position,
				    "epochs of a schedule must grow: %lld after %llu",
				    (long long)epoch, (unsigned long long)size[-1].epoch);
		size->epoch = (uint64_t)epoch;
		if (parser->text[parser->at] != ';')
			return 0;
		parser->at++;
	}
}

/* Returns the maximum count of numbers in a value of this type. */
static unsigned numbers_max(enum value_type type)
{
	static const unsigned most[] = {[VALUE_RANGE] = 2,
					[VALUE_SPREAD] = 2,
					[VALUE_PAIR] = 2,
					[VALUE_COLOUR] = 3,
					[VALUE_LIST] = TRANSFORM_LIST_MAX,
					[VALUE_SHEAR] = 4};

	return type < sizeof(most) / sizeof(*most) && most[type] ? most[type] : 1;
}

static int check_numbers(struct parser *parser, const struct parameter *parameter,
			 const char *where, struct value *value)
{
	bool ordered = parameter->type == VALUE_RANGE || parameter->type == VALUE_SPREAD ||
		       parameter->type == VALUE_SHEAR;

	if (parameter->type == VALUE_RANGE && value->count == 1)
		return fail_expected(parser, "':' and the upper end of %s", parameter->key);
	for (unsigned i = 0; ordered && i + 1 < value->count; i += 2)
		if (value->numbers[i] > value->numbers[i + 1])
			return fail(parser, value->position,
				    "%s runs from low to high: %.7g is above %.7g", parameter->key,
				    value->numbers[i], value->numbers[i + 1]);
	if (parameter->type == VALUE_SHEAR && value->count == 3)
		return fail(parser, parser->at,
			    "expected a number, LOW:HIGH, or LOW:HIGH for x and for y (four "
			    "numbers) %s",
			    where);
	if (parameter->type == VALUE_LIST && parser->text[parser->at] == ':')
		return fail(parser, parser->at, "%s has at most %d numbers", parameter->key,
			    TRANSFORM_LIST_MAX);
	if (parameter->type == VALUE_WHOLE && value->numbers[0] != rint(value->numbers[0]))
		return fail(parser, value->position, "%s is a whole number, not %.7g",
			    parameter->key, value->numbers[0]);
	if (parameter->type == VALUE_COLOUR && value->count == 2)
		return fail(parser, parser->at, "expected one number or three (R:G:B) %s", where);
	if (parameter->type == VALUE_COLOUR && value->count == 1)
		value->numbers[1] = value->numbers[2] = value->numbers[0];
	return 0;
}

/* Parses NUMBER { ":" NUMBER }, with at most as many numbers as the type has. */
static int parse_numbers(struct parser *parser, const struct parameter *parameter,
			 const char *where, struct value *value)
{
	unsigned max = numbers_max(parameter->type);

	for (;;) {
		int position = parser->at;
		double number;

		if (!parser_take_number(parser, &number)) {
			if (max > 1 && strchr("([{", parser->text[position]) &&
			    parser->text[position])
				return fail(parser, position,
					    "expected a number %s, found %s; several are written "
					    "without brackets, with ':' between them",
					    where, parser_found(parser, (char[FOUND_MAX]){0}));
			if (value->count == 0)
				return fail_expected(parser, "a number %s", where);
			return fail_expected(parser, "a number after ':'");
		}
		if (!(number >= parameter->min && number <= parameter->max))
			return fail(parser, position, "%s is from %.7g to %.7g%s%s", parameter->key,
				    parameter->min, parameter->max, parameter->hint ? ": " : "",
				    parameter->hint ? parameter->hint : "");
		value->numbers[value->count++] = number;
		if (parser->text[parser->at] != ':' || value->count == max)
			break;
		parser->at++;
	}
	if (max > 1 && strncmp(parser->text + parser->at, "..", 2) == 0)
		return fail(parser, parser->at, "%s is written with ':' between its ends, not '..'",
			    parameter->key);
	return check_numbers(parser, parameter, where, value);
}

static int parse_choice(struct parser *parser, const struct parameter *parameter, const char *where,
			struct value *value)
{
	int position = parser->at;
	const char *choice = parameter->words;

	size_t size = (size_t)parser_take_word(parser, value->word);

	while (size > 0 && *choice) {
		size_t length = strcspn(choice, "|");

		if (length == size && strncmp(choice, value->word, size) == 0)
			return 0;
		choice += length + (choice[length] == '|');
		value->choice++;
	}
	parser->at = position;
	return fail_expected(parser, "one of %s %s", parameter->words, where);
}

static int parse_value(struct parser *parser, const struct parameter *parameter, bool keyed,
		       struct transform *transform, struct value *value)
{
	char buffer[48];
	const char *where = place(parameter, keyed, buffer);
	uint32_t width, height;
	int r;

	value->position = parser->at;
	switch (parameter->type) {
	case VALUE_SIZE:
		return parse_sizes(parser, where, transform);
	case VALUE_EXTENT:
		r = parse_extent(parser, where, "a number of pixels such as 4 or 4x2",
				 (int64_t)parameter->min,
				 parameter->max > 0 ? (int64_t)parameter->max : PIPELINE_SIDE_MAX,
				 &width, &height);
		value->numbers[0] = width;
		value->numbers[1] = height;
		value->count = 2;
		return r < 0 ? r : 0;
	case VALUE_WORD:
		return parse_choice(parser, parameter, where, value);
	default:
		if (parameter->words && parser_is_word(parser->text[parser->at]) &&
		    !parser_is_digit(parser->text[parser->at]))
			return parse_choice(parser, parameter, where, value);
		return parse_numbers(parser, parameter, where, value);
	}
}

/* Returns true if an argument consists of digits only. */
static bool is_whole(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && strchr(" \t,)", text[digits]);
}

/*
 * Improves the error if both sides were given as two arguments, such as 32,32, and the second was
 * rejected: suggests 32x32. For unequal sides suggests both orders, because torchvision's is
 * (height, width). Leaves other errors unchanged.
 */
static int explain_sides(struct parser *parser, const struct rule *rule, const int positions[2],
			 int r)
{
	const char *first = parser->text + positions[0], *second = parser->text + positions[1];
	enum value_type type = rule->parameters[0].type;
	int a = atoi(first), b = atoi(second);

	if (r >= 0 || (type != VALUE_SIZE && type != VALUE_EXTENT) || !is_whole(first) ||
	    !is_whole(second))
		return r;
	if (a == b)
		return fail(parser, positions[0],
			    "%s takes both sides in one argument; did you mean %dx%d?", rule->name,
			    a, b);
	return fail(
		parser, positions[0],
		"%s takes both sides in one argument, as WIDTHxHEIGHT: %dx%d, or %dx%d for what "
		"torchvision calls (%d, %d)",
		rule->name, a, b, b, a, a, b);
}

/* Parses [ KEY "=" ] value and stores the value at its parameter's index in values. */
static int parse_argument(struct parser *parser, const struct rule *rule, unsigned *positional,
			  struct transform *transform, struct value values[PARAMETERS_MAX])
{
	int position = parser->at;
	char key[NAME_MAX_SIZE];
	unsigned index;

	parser_take_word(parser, key);
	parser_skip_space(parser);
	bool keyed = key[0] && parser_take_mark(parser, '=');
	if (keyed) {
		for (index = 0; index < PARAMETERS_MAX && rule->parameters[index].key; index++)
			if (strcmp(rule->parameters[index].key, key) == 0)
				break;
		if (index == PARAMETERS_MAX || !rule->parameters[index].key)
			return grammar_fail_key(parser->error, position, rule, key);
	} else {
		parser->at = position;
		index = (*positional)++;
		if (index == PARAMETERS_MAX || !rule->parameters[index].key)
			return fail(parser, position, "%s takes no more arguments", rule->name);
	}
	if (values[index].position >= 0)
		return fail(parser, position, "%s is given twice", rule->parameters[index].key);
	return parse_value(parser, &rule->parameters[index], keyed, transform, &values[index]);
}

static int parse_arguments(struct parser *parser, const struct rule *rule,
			   struct transform *transform, struct value values[PARAMETERS_MAX])
{
	unsigned positional = 0;
	int positions[2] = {0}, count = 0;
	int r;

	parser_skip_space(parser);
	if (!parser_take_mark(parser, '('))
		return 0;
	for (bool more = parser->text[parser->at] != ')'; more;
	     more = parser_take_mark(parser, ',')) {
		if (count < 2)
			positions[count] = parser->at;
		r = parse_argument(parser, rule, &positional, transform, values);
		if (++count == 2)
			r = explain_sides(parser, rule, positions, r);
		if (r < 0)
			return r;
		parser_skip_space(parser);
	}
	if (parser->text[parser->at] != ')')
		return fail_expected(parser, "',' or ')' in %s(...)", rule->name);
	parser->at++;
	return 0;
}

static int set_normalize(struct parser *parser, const struct transform *transform,
			 const struct value *values)
{
	static const double imagenet_mean[3] = {0.485, 0.456, 0.406};
	static const double imagenet_std[3] = {0.229, 0.224, 0.225};
	const struct value *word = &values[0], *mean = &values[1], *std = &values[2];
	struct pipeline *pipeline = parser->pipeline;

	if (word->position < 0 && (mean->position < 0 || std->position < 0))
		return fail(parser, transform->position,
			    "normalize needs mean= and std=, or imagenet, or dataset");
	if (word->position >= 0 && (mean->position >= 0 || std->position >= 0))
		return fail(parser, word->position,
			    "normalize takes mean= and std=, or %s, not both", word->word);
	pipeline->statistics = STATISTICS_GIVEN;
	pipeline->statistics_known = true;
	parser->normalize_position = transform->position;
	if (word->choice == 1) {
		pipeline->statistics = STATISTICS_DATASET;
		pipeline->statistics_known = false;
		return 0;
	}
	const double *mean_values = word->position >= 0 ? imagenet_mean : mean->numbers;
	const double *std_values = word->position >= 0 ? imagenet_std : std->numbers;

	for (int i = 0; i < 3; i++) {
		pipeline->mean[i] = mean_values[i];
		pipeline->std[i] = std_values[i];
	}
	return 0;
}

/* Applies a format transform: normalize, to, layout or channels. */
static int set_format(struct parser *parser, const struct rule *rule,
		      const struct transform *transform, const struct value *values)
{
	struct pipeline *pipeline = parser->pipeline;

	if (parser->seen & 1u << (rule->kind - TRANSFORM_NORMALIZE))
		return fail(parser, transform->position, "%s is given twice", rule->name);
	parser->seen |= 1u << (rule->kind - TRANSFORM_NORMALIZE);
	switch (rule->kind) {
	case TRANSFORM_NORMALIZE:
		return set_normalize(parser, transform, values);
	case TRANSFORM_TO:
		if (values[0].choice > PIPELINE_F32 - PIPELINE_U8)
			return fail(parser, values[0].position,
				    "images are u8, f16, bf16 or f32; %s is for single masks and "
				    "rasters: write their names before it, as in 'mask: to(%s)'",
				    values[0].word, values[0].word);
		pipeline->element = PIPELINE_U8 + values[0].choice;
		return 0;
	case TRANSFORM_LAYOUT:
		pipeline->layout = PIPELINE_NHWC + values[0].choice;
		return 0;
	default:
		pipeline->channels = 3 + values[0].choice;
		return 0;
	}
}

/* Returns the length of the value's name at `text`, 0 if there is none. */
static int value_name_size(const char *text)
{
	int size = 0;

	while (parser_is_word(text[size]) || (size > 0 && text[size] == '.'))
		size++;
	return parser_is_digit(*text) ? 0 : size;
}

/* Returns true if the text continues with names of values and a colon. */
static bool names_come(const struct parser *parser)
{
	struct parser ahead = *parser;

	do {
		int size = value_name_size(ahead.text + ahead.at);

		if (size == 0)
			return false;
		ahead.at += size;
		parser_skip_space(&ahead);
	} while (parser_take_mark(&ahead, ','));
	return parser_take_mark(&ahead, ':');
}

/* Parses a name and finds or adds its value. Returns the value's number. */
static int take_value(struct parser *parser)
{
	struct pipeline *pipeline = parser->pipeline;
	const char *name = parser->text + parser->at;
	int size = value_name_size(name), position = parser->at;
	unsigned i = 0;

	if (size > PIPELINE_NAME_MAX)
		return fail(parser, position, "the name of a value has at most %d bytes",
			    PIPELINE_NAME_MAX);
	parser->at += size;
	while (i < pipeline->value_count &&
	       (strncmp(pipeline->values[i].name, name, (size_t)size) != 0 ||
		pipeline->values[i].name[size]))
		i++;
	if (i == PIPELINE_VALUES_MAX)
		return pipeline_fail(parser->error, -E2BIG, position,
				     "a pipeline names at most %d values", PIPELINE_VALUES_MAX);
	if (i == pipeline->value_count) {
		struct pipeline_value *value = &pipeline->values[pipeline->value_count++];

		*value = (struct pipeline_value){.position = position,
						 .fill_position = -1,
						 .filter_position = -1,
						 .to_position = -1,
						 .boxes_position = -1,
						 .pixels_position = -1,
						 .paste_position = -1};
		memcpy(value->name, name, (size_t)size);
	}
	return (int)i;
}

/* Parses [ names ":" ]. Sets the bits of the values; 0 without names. */
static int parse_names(struct parser *parser, uint32_t *ret_values)
{
	uint32_t values = 0;

	if (!names_come(parser)) {
		*ret_values = 0;
		return 0;
	}
	do {
		int number = take_value(parser);

		if (number < 0)
			return number;
		values |= 1u << number;
		parser_skip_space(parser);
	} while (parser_take_mark(parser, ','));
	parser_take_mark(parser, ':');
	*ret_values = values;
	return 0;
}

static int check_iou_crop(struct parser *parser, const struct rule *rule,
			  const struct transform *transform, int names_at)
{
	if (pipeline_iou_crop(parser->pipeline))
		return fail(parser, transform->position, "%s is given twice", rule->name);
	if (__builtin_popcount(transform->values) > 1)
		return fail(parser, names_at, "%s chooses by the boxes of one value: name one",
			    rule->name);
	return 0;
}

/* Returns true if the transform may act on single values. */
static bool takes_names(enum transform_kind kind)
{
	if (kind == TRANSFORM_ROTATION || kind == TRANSFORM_AFFINE || kind > TRANSFORM_COPY_PASTE)
		return false;
	return (kind >= TRANSFORM_GEOMETRY_COUNT && kind < TRANSFORM_RAND_AUGMENT) ||
	       kind == TRANSFORM_TO || kind >= TRANSFORM_FORM_COUNT;
}

/* Checks whether the transform takes names. `names_at` is the position of the first one. */
static int check_names(struct parser *parser, const struct rule *rule,
		       const struct transform *transform, int names_at)
{
	bool needs = rule->kind >= TRANSFORM_FORM_COUNT && rule->kind < TRANSFORM_VALUES_COUNT;

	if (rule->kind == TRANSFORM_IOU_CROP)
		return check_iou_crop(parser, rule, transform, names_at);
	if (needs && !transform->values)
		return fail(parser, transform->position,
			    "%s is for single values: write their names before it, as in 'mask: "
			    "%s(...)'",
			    rule->name, rule->name);
	if (transform->values && !takes_names(rule->kind))
		return fail(parser, names_at, "%s acts on %s: write it without names before it",
			    rule->name,
			    rule->kind < TRANSFORM_RAND_AUGMENT
				    ? "all values of a sample, so that they stay together"
			    : rule->kind < TRANSFORM_VALUES_COUNT ? "all images of a sample"
								  : "whole batches");
	return 0;
}

/* Returns where the value keeps the position of such a transform. */
static int *position_of(struct pipeline_value *value, enum transform_kind kind)
{
	switch (kind) {
	case TRANSFORM_FILL:
		return &value->fill_position;
	case TRANSFORM_FILTER:
		return &value->filter_position;
	case TRANSFORM_TO:
		return &value->to_position;
	case TRANSFORM_COPY_PASTE:
		return &value->paste_position;
	default:
		return kind < TRANSFORM_BOXES_COUNT ? &value->boxes_position
						    : &value->pixels_position;
	}
}

/* Stores a transform's settings for the values that it names. */
static int set_values(struct parser *parser, const struct rule *rule,
		      const struct transform *transform)
{
	for (unsigned i = 0; i < parser->pipeline->value_count; i++) {
		struct pipeline_value *value = &parser->pipeline->values[i];
		int *position = position_of(value, rule->kind);

		if (!(transform->values & 1u << i))
			continue;
		if (rule->kind >= TRANSFORM_PIXELS_COUNT && *position >= 0)
			return fail(parser, transform->position, "%s of '%s' is given twice",
				    rule->name, value->name);
		if (*position < 0)
			*position = transform->position;
		if (rule->kind == TRANSFORM_FILL)
			value->fill = transform->amount_outside;
		else if (rule->kind == TRANSFORM_FILTER)
			value->filter = (enum pipeline_filter)transform->filter;
		else if (rule->kind == TRANSFORM_TO)
			value->element = transform->element;
	}
	return 0;
}

/* Handles `to` of single values. */
static int set_elements(struct parser *parser, const struct rule *rule, struct transform *transform,
			const struct value *type)
{
	if (type->choice == PIPELINE_F16 - PIPELINE_U8 ||
	    type->choice == PIPELINE_BF16 - PIPELINE_U8)
		return fail(parser, type->position,
			    "masks and rasters are u8, u16, i16, i32, i64 or f32, and %s is for "
			    "images, without names",
			    type->word);
	transform->element = PIPELINE_U8 + type->choice;
	return set_values(parser, rule, transform);
}

static int parse_transform(struct parser *parser)
{
	struct pipeline *pipeline = parser->pipeline;
	char name[NAME_MAX_SIZE];
	struct value values[PARAMETERS_MAX] = {0};
	struct transform transform = {.probability = 1};
	int names_at = parser->at, r = parse_names(parser, &transform.values);
	int position = transform.position = parser->at;

	if (r < 0)
		return r;
	if (parser_is_digit(parser->text[position]) || parser_take_word(parser, name) == 0)
		return fail_expected(parser, "the name of a transform");
	const struct rule *rule = grammar_find(name);
	if (!rule)
		return grammar_fail_name(parser->error, position, name);
	transform.kind = rule->kind;
	r = check_names(parser, rule, &transform, names_at);
	if (r < 0)
		return r;
	for (int i = 0; i < PARAMETERS_MAX; i++)
		values[i].position = -1;
	r = parse_arguments(parser, rule, &transform, values);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < PARAMETERS_MAX && rule->parameters[i].key; i++)
		if (rule->parameters[i].required && values[i].position < 0)
			return fail(parser, position, "%s needs its argument %s", name,
				    rule->parameters[i].key);
	if (rule->kind >= TRANSFORM_VALUES_COUNT) {
		r = grammar_set(&(struct call){rule, values, parser->error}, &transform);
		r = r < 0 ? r : parser_batch_step(parser, rule, &transform);
		return r < 0 ? r : set_values(parser, rule, &transform);
	}
	r = parser_check_last(parser, rule, position);
	if (r < 0)
		return r;
	if (rule->kind >= TRANSFORM_FORM_COUNT) {
		r = grammar_set(&(struct call){rule, values, parser->error}, &transform);
		return r < 0 ? r : set_values(parser, rule, &transform);
	}
	if (rule->kind == TRANSFORM_TO && transform.values)
		return set_elements(parser, rule, &transform, &values[0]);
	if (rule->kind >= TRANSFORM_PIXELS_COUNT) {
		if (!parser->seen) {
			parser->format_at = position;
			parser->format_size = parser->at - position;
		}
		return set_format(parser, rule, &transform, values);
	}
	transform.finished = parser->seen != 0;
	if (parser->seen && rule->kind != TRANSFORM_ERASING && rule->kind != TRANSFORM_CUTOUT &&
	    !transform_is_of_boxes(rule->kind))
		return fail(parser, position,
			    "%s must stand before '%.*s': it works on a picture of bytes, 0 to "
			    "255; normalize, to, layout and channels say how the finished one is "
			    "delivered",
			    name, parser->format_size < 40 ? parser->format_size : 40,
			    parser->text + parser->format_at);
	if (pipeline->transform_count == PIPELINE_TRANSFORMS_MAX)
		return pipeline_fail(parser->error, -E2BIG, position,
				     "a pipeline has at most %d transforms",
				     PIPELINE_TRANSFORMS_MAX);
	r = grammar_set(&(struct call){rule, values, parser->error}, &transform);
	if (r < 0)
		return r;
	parser->effects +=
		transform.kind >= TRANSFORM_BOXES_COUNT ? draw_effects_max(&transform) : 0;
	if (parser->effects > EFFECTS_MAX)
		return pipeline_fail(
			parser->error, -E2BIG, position,
			"the pipeline may come to more than %d operations on a picture; "
			"leave some out, or lower mixture_width and chain_depth",
			EFFECTS_MAX);
	pipeline->transforms[pipeline->transform_count++] = transform;
	return transform.values ? set_values(parser, rule, &transform) : 0;
}

bool parser_view_comes(const struct parser *parser)
{
	static const char word[] = "view";
	const char *text = parser->text + parser->at;

	return strncmp(text, word, strlen(word)) == 0 && !parser_is_word(text[strlen(word)]) &&
	       !names_come(parser);
}

int parser_steps(struct parser *parser, char end)
{
	for (;;) {
		parser_skip_space(parser);
		if (!parser->text[parser->at] || parser->text[parser->at] == end ||
		    parser_view_comes(parser))
			return 0;
		int r = parse_transform(parser);
		if (r < 0)
			return r;
	}
}

int parser_check_format(struct parser *parser)
{
	const struct pipeline *pipeline = parser->pipeline;

	if (pipeline->statistics == STATISTICS_NONE || pipeline->element != PIPELINE_U8)
		return 0;
	return fail(parser, parser->normalize_position,
		    "normalize needs a float output: add to(f16), to(bf16) or to(f32)");
}

int grammar_parse(const char *text, struct pipeline *pipeline, struct pipeline_error *error)
{
	struct parser parser = {.text = text, .pipeline = pipeline, .error = error};
	size_t size = strnlen(text, PIPELINE_TEXT_MAX + 1);

	if (size > PIPELINE_TEXT_MAX)
		return pipeline_fail(error, -E2BIG, PIPELINE_TEXT_MAX,
				     "a pipeline's text has at most %d bytes", PIPELINE_TEXT_MAX);
	int r = parser_steps(&parser, 0);
	if (r < 0)
		return r;
	if (text[parser.at])
		return parser_views(&parser);
	r = parser_check_format(&parser);
	return r < 0 ? r : parser_check_batch(&parser);
}
