#include "format/base/schema.h"
#include "format/base/schema_rules.h"
#include "format/base/text/nearest.h"
#include "format/base/text/sentence.h"
#include "format/base/text/text.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	WORD_MAX = 64,             /* bytes of a word in an error, terminator included */
	FOUND_MAX = WORD_MAX + 12, /* bytes of a description of what was found */
};

struct schema_parser {
	const char *text;
	size_t size, at;
	struct schema *schema;
	struct schema_error *error;
	/* start of each part of each value, for errors found in the complete schema */
	size_t starts[SCHEMA_VALUES_MAX][SCHEMA_PARTS];
};

static int schema_parse_fail(const struct schema_parser *parser, size_t position, int code,
			     const char *format, ...)
{
	struct schema_error *error = parser->error;
	unsigned line = 1, column = 1;
	va_list arguments;

	if (!error)
		return code;
	for (size_t i = 0; i < position; i++) {
		bool ends = parser->text[i] == '\n';

		line += ends;
		column = ends ? 1 : column + 1;
	}
	error->position = (int)position;
	int used = snprintf(error->text, sizeof(error->text), "line %u, column %u: ", line, column);
	va_start(arguments, format);
	vsnprintf(error->text + used, sizeof(error->text) - (size_t)used, format, arguments);
	va_end(arguments);
	return code;
}

#define fail(parser, position, ...) schema_parse_fail((parser), (position), -EINVAL, __VA_ARGS__)

/* The character at the current position; '\n' at the end of a line, 0 at the end of the text. */
static char next(const struct schema_parser *parser)
{
	return parser->at < parser->size ? parser->text[parser->at] : 0;
}

static bool at_end(const struct schema_parser *parser)
{
	return parser->at == parser->size || parser->text[parser->at] == '\n';
}

/* Skips blanks, and a comment up to the end of its line. */
static void skip_blanks(struct schema_parser *parser)
{
	while (!at_end(parser) && strchr(" \t\r", next(parser)) && next(parser))
		parser->at++;
	if (next(parser) == '#')
		while (!at_end(parser))
			parser->at++;
}

static bool take(struct schema_parser *parser, char mark)
{
	if (at_end(parser) || next(parser) != mark)
		return false;
	parser->at++;
	skip_blanks(parser);
	return true;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_plain(char c)
{
	return is_letter(c) || is_digit(c) || c == '.';
}

/* Describes the text at the current position. */
static const char *found(const struct schema_parser *parser, char buffer[FOUND_MAX])
{
	const char *start = parser->text + parser->at;
	size_t left = parser->size - parser->at, size = 0;

	if (parser->at == parser->size)
		return "the end of the text";
	if (*start == '\n')
		return "the end of the line";
	while (size < left && size < WORD_MAX && is_plain(start[size]))
		size++;
	if (size == 0)
		size = text_utf8_sequence((const uint8_t *)start, left);
	if (size == 0 || (unsigned char)*start < ' ' || *start == 0x7f)
		snprintf(buffer, FOUND_MAX, "byte 0x%02x", (unsigned char)*start);
	else
		snprintf(buffer, FOUND_MAX, "'%.*s'", (int)size, start);
	return buffer;
}

#define fail_expected(parser, what)                                                                \
	fail(parser, (parser)->at, "expected " what ", found %s",                                  \
	     found(parser, (char[FOUND_MAX]){0}))

/* Takes a word of letters, digits, '_' and '.', cut to fit. Returns its full length. */
static size_t take_word(struct schema_parser *parser, char word[WORD_MAX])
{
	size_t size = 0;

	while (parser->at < parser->size && is_plain(next(parser))) {
		if (size + 1 < WORD_MAX)
			word[size] = next(parser);
		size++;
		parser->at++;
	}
	word[size < WORD_MAX ? size : WORD_MAX - 1] = 0;
	return size;
}

static_assert(WORD_MAX == SCHEMA_NAME_MAX + 1, "a name is taken as a word");

/* Takes the rest of a name after its opening quote. */
static int take_quoted(struct schema_parser *parser, size_t start, char name[WORD_MAX])
{
	size_t size = 0;

	while (!at_end(parser) && next(parser) != '"') {
		if (next(parser) == '\\') {
			parser->at++;
			if (at_end(parser))
				break;
		}
		if (next(parser) == 0)
			return fail(parser, parser->at, "a name holds a NUL");
		if (size == SCHEMA_NAME_MAX)
			return fail(parser, start, "a name has more than %d bytes; shorten it",
				    SCHEMA_NAME_MAX);
		name[size++] = next(parser);
		parser->at++;
	}
	name[size] = 0;
	if (at_end(parser))
		return fail(parser, start, "the quote of a name is not closed");
	parser->at++;
	return 0;
}

static int take_name(struct schema_parser *parser, char name[WORD_MAX])
{
	size_t start = parser->at;
	int r = 0;

	if (next(parser) == '"') {
		parser->at++;
		r = take_quoted(parser, start, name);
	} else if (!is_letter(next(parser))) {
		return fail_expected(parser, "a name (other than letters, digits, '_' and '.' in "
					     "double quotes)");
	} else if (take_word(parser, name) > SCHEMA_NAME_MAX) {
		return fail(parser, start, "a name has more than %d bytes; shorten it",
			    SCHEMA_NAME_MAX);
	}
	skip_blanks(parser);
	return r;
}

/* Lists the names of all roles. */
static const char *list_roles(char text[SCHEMA_ERROR_MAX])
{
	for (unsigned i = 1, used = 0; i < SCHEMA_ROLES; i++)
		used += (unsigned)snprintf(text + used, SCHEMA_ERROR_MAX - used, "%s%s",
					   i > 1 ? ", " : "", schema_roles[i].name);
	return text;
}

static int parse_role(struct schema_parser *parser, struct schema_value *value)
{
	char word[WORD_MAX];
	struct nearest nearest = nearest_to(word);
	size_t start = parser->at;

	if (take_word(parser, word) == 0)
		return fail_expected(parser, "a role, such as image or class");
	for (unsigned i = 1; i < SCHEMA_ROLES; i++) {
		nearest_offer(&nearest, schema_roles[i].name);
		if (strcmp(schema_roles[i].name, word) == 0)
			value->role = (enum schema_role)i;
	}
	if (!value->role && nearest.meant)
		return fail(parser, start, "unknown role '%s'; did you mean '%s'?", word,
			    nearest.meant);
	if (!value->role)
		return fail(parser, start, "unknown role '%s'; it is one of %s", word,
			    list_roles((char[SCHEMA_ERROR_MAX]){0}));
	skip_blanks(parser);
	return 0;
}

static int parse_of(struct schema_parser *parser, struct schema_value *value)
{
	char name[WORD_MAX];
	size_t start = parser->at;

	if (!take(parser, '('))
		return 0;
	parser->starts[parser->schema->count][SCHEMA_PART_OF] = start + 1;
	start = parser->at;
	int r = take_name(parser, name);
	if (r < 0)
		return r;
	int of = schema_find(parser->schema, name);
	const char *meant = schema_nearest(parser->schema, name);
	if (of < 0)
		return fail(parser, start, "no value before this line is named '%s'%s%s%s", name,
			    meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
	value->of = (uint16_t)of;
	return take(parser, ')') ? 0 : fail_expected(parser, "')'");
}

/* Parses one dimension, at the current position, as dimension value->dims. */
static int parse_dim(struct schema_parser *parser, struct schema_value *value)
{
	size_t start = parser->at;
	uint64_t number = 0;

	if (value->dims == SCHEMA_DIMS_MAX)
		return fail(parser, start, "more than %d dimensions", SCHEMA_DIMS_MAX);
	unsigned dim = value->dims++;
	bool pixels = schema_has_pixels(value);

	if (pixels && dim < 2 && take(parser, dim == 0 ? 'h' : 'w'))
		return 0;
	if (!pixels && dim == 0 && take(parser, '*'))
		return 0;
	while (is_digit(next(parser)) && number <= UINT32_MAX) {
		number = number * 10 + (uint64_t)(next(parser) - '0');
		parser->at++;
	}
	if (start == parser->at && pixels && dim < 2)
		return fail_expected(parser, "h, w or a number of pixels");
	if (start == parser->at)
		return fail_expected(parser, "a number, or '*' as the first dimension");
	if (number == 0 || number > SCHEMA_ROW_SIZE_MAX)
		return fail(parser, start, "a dimension must be from 1 to %d", SCHEMA_ROW_SIZE_MAX);
	value->shape[dim] = (uint32_t)number;
	skip_blanks(parser);
	return 0;
}

static int parse_shape(struct schema_parser *parser, struct schema_value *value)
{
	if (!take(parser, '['))
		return 0;
	do {
		int r = parse_dim(parser, value);
		if (r < 0)
			return r;
	} while (take(parser, ','));
	return take(parser, ']') ? 0 : fail_expected(parser, "',' or ']'");
}

static enum schema_element element_by_name(const char *name)
{
	for (int i = SCHEMA_U8; i < SCHEMA_ELEMENTS; i++)
		if (strcmp(schema_element_name((enum schema_element)i), name) == 0)
			return (enum schema_element)i;
	return SCHEMA_NO_ELEMENT;
}

/* Parses element and shape, if they come next. */
static int parse_type(struct schema_parser *parser, struct schema_value *value)
{
	char word[WORD_MAX];
	size_t start = parser->at;

	take_word(parser, word);
	value->element = element_by_name(word);
	if (value->element == SCHEMA_NO_ELEMENT) {
		parser->at = start;
		return 0;
	}
	skip_blanks(parser);
	return parse_shape(parser, value);
}

/* Sets the role's default element and shape. */
static int set_default_type(const struct schema_parser *parser, struct schema_value *value)
{
	const char *type = schema_roles[value->role].type;
	struct schema_parser of_type = {.text = type, .schema = parser->schema};

	if (!type)
		return fail(parser, parser->at, "%s needs an element and a shape, such as %s",
			    schema_roles[value->role].name, schema_roles[value->role].example);
	of_type.size = strlen(type);
	return parse_type(&of_type, value);
}

/* Applies a format or flag after the type. */
static int parse_word(struct schema_parser *parser, struct schema_value *value)
{
	static const char *const flags[] = {"sparse", "normalized"};
	char word[WORD_MAX];
	struct nearest nearest = nearest_to(word);
	size_t start = parser->at;

	if (take_word(parser, word) == 0)
		return fail_expected(parser, "the end of the line, a format or a flag");
	skip_blanks(parser);
	for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		nearest_offer(&nearest, flags[i]);
		if (strcmp(flags[i], word) == 0 && !(value->flags & (1u << i))) {
			value->flags |= 1u << i;
			return 0;
		}
	}
	for (unsigned i = 0; i < SCHEMA_FORMAT_ROWS; i++) {
		const struct schema_format_row *row = &schema_formats[i];

		if (!(row->roles & (1u << value->role)))
			continue;
		nearest_offer(&nearest, row->name);
		if (strcmp(row->name, word) == 0 && value->format == SCHEMA_NO_FORMAT) {
			value->format = row->format;
			return 0;
		}
	}
	for (int i = SCHEMA_U8; i < SCHEMA_ELEMENTS; i++)
		nearest_offer(&nearest, schema_element_name((enum schema_element)i));
	if (nearest.meant && strcmp(nearest.meant, word) != 0)
		return fail(parser, start, "unknown word '%s'; did you mean '%s'?", word,
			    nearest.meant);
	return fail(parser, start,
		    nearest.meant ? "'%s' is not allowed at this position"
				  : "unknown word '%s'; expected an element, a "
				    "format of coordinates, sparse or normalized",
		    word);
}

/* Chooses where the file stores the value. */
static void set_store(const struct schema *schema, struct schema_value *value)
{
	bool is_label = value->role == SCHEMA_CLASS && value->dims == 0 &&
			value->element == SCHEMA_I32 && value->flags == 0 &&
			schema_stored(schema, SCHEMA_IN_LABEL, 0) < 0;
	bool is_main = value->role == SCHEMA_IMAGE && value->of == SCHEMA_OF_NONE &&
		       schema_stored(schema, SCHEMA_IN_INDEX, 0) < 0;

	value->store = is_label                       ? SCHEMA_IN_LABEL
		       : is_main                      ? SCHEMA_IN_INDEX
		       : schema_has_pixels(value)     ? SCHEMA_IN_IMAGES
		       : value->role == SCHEMA_KEY    ? SCHEMA_IN_SOURCE
		       : value->role == SCHEMA_NUMBER ? SCHEMA_IN_NUMBER
						      : SCHEMA_IN_COLUMN;
	if (value->store != SCHEMA_IN_IMAGES && value->store != SCHEMA_IN_COLUMN)
		return;
	for (unsigned i = 0; i < schema->count; i++)
		if (schema->values[i].store == value->store)
			value->number++;
}

static int parse_words(struct schema_parser *parser, struct schema_value *value)
{
	while (!at_end(parser)) {
		int r = parse_word(parser, value);
		if (r < 0)
			return r;
	}
	const struct schema_format_row *row =
		schema_format_by_size(value->role, value->dims ? value->shape[value->dims - 1] : 0);
	if (value->format == SCHEMA_NO_FORMAT && row)
		value->format = row->format;
	return 0;
}

/* Parses a line from the end of the name. */
static int parse_value(struct schema_parser *parser, struct schema_value *value)
{
	size_t *starts = parser->starts[parser->schema->count];

	if (!take(parser, ':'))
		return fail_expected(parser, "':' and a role");
	starts[SCHEMA_PART_ROLE] = parser->at;
	int r = parse_role(parser, value);
	if (r == 0)
		r = parse_of(parser, value);
	starts[SCHEMA_PART_TYPE] = parser->at;
	if (r == 0)
		r = parse_type(parser, value);
	if (r == 0 && value->element == SCHEMA_NO_ELEMENT)
		r = set_default_type(parser, value);
	starts[SCHEMA_PART_WORDS] = parser->at;
	return r == 0 ? parse_words(parser, value) : r;
}

static int parse_line(struct schema_parser *parser)
{
	struct schema *schema = parser->schema;
	struct schema_value value = {.of = SCHEMA_OF_NONE};

	skip_blanks(parser);
	if (at_end(parser))
		return 0;
	if (schema->count == SCHEMA_VALUES_MAX)
		return schema_parse_fail(parser, parser->at, -E2BIG, "more than %d values",
					 SCHEMA_VALUES_MAX);
	parser->starts[schema->count][SCHEMA_PART_NAME] = parser->at;
	int r = take_name(parser, value.name);
	if (r == 0)
		r = parse_value(parser, &value);
	if (r < 0)
		return r;
	set_store(schema, &value);
	return schema_add(schema, &value);
}

int schema_parse(const char *text, size_t size, struct schema *ret_schema,
		 struct schema_error *error)
{
	struct schema schema = {0};
	struct schema_parser parser = {
		.text = text, .size = size, .schema = &schema, .error = error};
	struct schema_fault fault;
	int r = 0;

	if (size > INT_MAX)
		return schema_parse_fail(&parser, 0, -E2BIG, "the schema has more than 2 GiB");
	while (r == 0 && parser.at < size) {
		r = parse_line(&parser);
		if (r == 0)
			parser.at += parser.at < size; /* the line feed */
	}
	unsigned written = schema.count;
	if (r == 0 && schema_add_implied(&schema, false) < 0)
		r = schema_parse_fail(&parser, size, -E2BIG,
				      "more than %d values, with label, sample and key",
				      SCHEMA_VALUES_MAX);
	if (r < 0)
		return r;
	if (!schema_is_sound(&schema, &fault))
		return fail(&parser,
			    fault.value < written ? parser.starts[fault.value][fault.part] : size,
			    "%s", fault.text);
	*ret_schema = schema;
	return 0;
}

/* Text being written: `size` also counts bytes that did not fit. */
struct schema_writer {
	char *text;
	size_t capacity, size;
};

static void put(struct schema_writer *writer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void put(struct schema_writer *writer, const char *format, ...)
{
	bool fits = writer->size < writer->capacity;
	va_list arguments;

	va_start(arguments, format);
	int size = vsnprintf(fits ? writer->text + writer->size : NULL,
			     fits ? writer->capacity - writer->size : 0, format, arguments);
	va_end(arguments);
	writer->size += size > 0 ? (size_t)size : 0;
}

static bool is_plain_name(const char *name)
{
	if (!is_letter(*name))
		return false;
	while (*name && is_plain(*name))
		name++;
	return !*name;
}

static void put_name(struct schema_writer *writer, const char *name)
{
	if (is_plain_name(name)) {
		put(writer, "%s", name);
		return;
	}
	put(writer, "\"");
	for (; *name; name++)
		put(writer, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
	put(writer, "\"");
}

static void put_shape(struct schema_writer *writer, const struct schema_value *value)
{
	for (unsigned i = 0; i < value->dims; i++) {
		put(writer, i == 0 ? "[" : ",");
		if (value->shape[i])
			put(writer, "%u", value->shape[i]);
		else
			put(writer, !schema_has_pixels(value) ? "*" : i == 0 ? "h" : "w");
	}
	if (value->dims)
		put(writer, "]");
}

static void put_value(struct schema_writer *writer, const struct schema *schema, unsigned index)
{
	const struct schema_value *value = &schema->values[index];
	const struct schema_format_row *format = schema_format_of(value);

	put_name(writer, value->name);
	put(writer, ": %s", schema_role_name(value->role));
	if (value->of != SCHEMA_OF_NONE) {
		put(writer, "(");
		put_name(writer, schema->values[value->of].name);
		put(writer, ")");
	}
	if (value->element != SCHEMA_NO_ELEMENT)
		put(writer, " %s", schema_element_name(value->element));
	put_shape(writer, value);
	if (format)
		put(writer, " %s", format->name);
	if (value->flags & SCHEMA_SPARSE)
		put(writer, " sparse");
	if (value->flags & SCHEMA_NORMALIZED)
		put(writer, " normalized");
}

size_t schema_print_value(const struct schema *schema, unsigned value, char *text, size_t size)
{
	struct schema_writer writer = {.text = text, .capacity = size};

	put_value(&writer, schema, value);
	return writer.size;
}

size_t schema_print(const struct schema *schema, char *text, size_t size)
{
	struct schema_writer writer = {.text = text, .capacity = size};

	put(&writer, "%s", "");
	for (unsigned i = 0; i < schema->count; i++) {
		put_value(&writer, schema, i);
		put(&writer, "\n");
	}
	return writer.size;
}
