#include "format/base/text/nearest.h"
#include "format/where/where_parser.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	NAME_SIZE = 2 * SCHEMA_NAME_MAX + 1, /* each byte may be quoted */
	LIST_SIZE = 256,                     /* bytes of a list of names in a message */
};

/* Names that every dataset has, unless its schema has a value of the same name. */
static const struct {
	const char *name;
	struct where_read read;
	enum where_type type;
} own_names[] = {
	{"width", {.function = WHERE_WIDTH, .store = SCHEMA_IN_INDEX}, WHERE_NUMBER},
	{"height", {.function = WHERE_HEIGHT, .store = SCHEMA_IN_INDEX}, WHERE_NUMBER},
	{"class", {.function = WHERE_CLASS, .store = SCHEMA_IN_LABEL}, WHERE_TEXT},
	{"label", {.function = WHERE_VALUE, .store = SCHEMA_IN_LABEL}, WHERE_NUMBER},
	{"sample", {.function = WHERE_VALUE, .store = SCHEMA_IN_NUMBER}, WHERE_NUMBER},
	{"key", {.function = WHERE_VALUE, .store = SCHEMA_IN_SOURCE}, WHERE_TEXT},
};
enum { OWN_NAMES = sizeof(own_names) / sizeof(own_names[0]) };

static bool is_any(const struct schema_value *value)
{
	return true;
}

static bool is_scalar(const struct schema_value *value)
{
	return value->element != SCHEMA_NO_ELEMENT && value->dims == 0;
}

static bool is_text(const struct schema_value *value)
{
	return value->role == SCHEMA_TEXT || value->role == SCHEMA_JSON ||
	       value->role == SCHEMA_KEY;
}

static bool is_countable(const struct schema_value *value)
{
	return schema_has_rows(value) || value->element == SCHEMA_NO_ELEMENT;
}

static bool is_class(const struct schema_value *value)
{
	return value->role == SCHEMA_CLASS && is_scalar(value);
}

static const struct where_function_row {
	const char *name;
	enum where_function function;
	enum where_type type;
	bool (*takes)(const struct schema_value *value);
	const char *needs;
} functions[] = {
	{"has", WHERE_HAS, WHERE_CONDITION, is_any, ""},
	{"count", WHERE_COUNT, WHERE_NUMBER, is_countable,
	 "a value with any number of rows, or text or bytes"},
	{"width", WHERE_WIDTH, WHERE_NUMBER, schema_has_pixels, "an image, a mask or a raster"},
	{"height", WHERE_HEIGHT, WHERE_NUMBER, schema_has_pixels, "an image, a mask or a raster"},
	{"class", WHERE_CLASS, WHERE_TEXT, is_class, "a value that is one class"},
};
enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };

/* Copies the name that a token contains, terminated. False if it is longer than any name. */
static bool token_name(const struct where_token *token, char name[NAME_SIZE])
{
	size_t size = token->size;

	if (size >= NAME_SIZE)
		return false;
	if (token->kind == WHERE_TOKEN_QUOTED)
		size = where_token_unquote(token, name);
	else
		memcpy(name, token->content, size);
	name[size] = 0;
	return true;
}

static int find_own_name(const struct where_token *token, const char *name)
{
	for (int i = 0; token->kind == WHERE_TOKEN_WORD && i < OWN_NAMES; i++)
		if (strcmp(own_names[i].name, name) == 0)
			return i;
	return -1;
}

const char *where_written_name(const char *name, char written[WHERE_WRITTEN_SIZE])
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789.";
	bool is_word = strspn(name, plain) == strlen(name) && !strchr("0123456789.", name[0]);
	size_t used = 0;

	if (is_word && !where_is_keyword(name, strlen(name)))
		return strcpy(written, name);
	written[used++] = '`';
	for (; *name; name++) {
		if (*name == '`' || *name == '\\')
			written[used++] = '\\';
		written[used++] = *name;
	}
	strcpy(written + used, "`");
	return written;
}

/* Returns name i of those of the schema and those that every dataset has; NULL at the end. */
static const char *possible_name(const struct schema *schema, unsigned i, bool only_schema)
{
	if (i < schema->count)
		return schema->values[i].name;
	return only_schema || i - schema->count == OWN_NAMES ? NULL
							     : own_names[i - schema->count].name;
}

static const char *nearest_name(const struct schema *schema, const char *name, bool only_schema)
{
	struct nearest nearest = nearest_to(name);
	const char *known;

	for (unsigned i = 0; (known = possible_name(schema, i, only_schema)); i++)
		nearest_offer(&nearest, known);
	return nearest.meant;
}

static void list_names(const struct schema *schema, bool only_schema, char list[LIST_SIZE])
{
	char written[WHERE_WRITTEN_SIZE];
	const char *name;
	size_t used = 0;

	list[0] = 0;
	for (unsigned i = 0; (name = possible_name(schema, i, only_schema)); i++) {
		if (i >= schema->count && schema_find(schema, name) >= 0)
			continue;
		where_written_name(name, written);
		if (used + strlen(written) + sizeof(", ...") > LIST_SIZE) {
			strcpy(list + used, ", ...");
			return;
		}
		used += (size_t)snprintf(list + used, LIST_SIZE - used, "%s%s", used ? ", " : "",
					 written);
	}
}

static int fail_unknown(const struct where_parser *parser, const struct where_token *token)
{
	const struct schema *schema = packimg_schema(parser->dataset);
	bool only_schema = token->kind == WHERE_TOKEN_QUOTED;
	int size = token->size < WHERE_SHOWN_MAX ? (int)token->size : WHERE_SHOWN_MAX;
	char name[NAME_SIZE], list[LIST_SIZE], written[WHERE_WRITTEN_SIZE];
	const char *nearest =
		token_name(token, name) ? nearest_name(schema, name, only_schema) : NULL;

	if (nearest)
		return where_fail(parser, token->first,
				  "the dataset has no value \"%.*s\"; did you mean %s? (text is in "
				  "quotes)",
				  size, token->content, where_written_name(nearest, written));
	list_names(schema, only_schema, list);
	return where_fail(parser, token->first,
			  "the dataset has no value \"%.*s\": it has %s (text is in quotes)", size,
			  token->content, list);
}

static struct where_read read_of(const struct schema *schema, unsigned index,
				 enum where_function function)
{
	const struct schema_value *value = &schema->values[index];

	return (struct where_read){
		.function = function,
		.store = value->store,
		.number = value->number,
		.is_text = is_text(value),
		.is_real = value->element == SCHEMA_F16 || value->element == SCHEMA_BF16 ||
			   value->element == SCHEMA_F32 || value->element == SCHEMA_F64,
		.is_unsigned = value->element == SCHEMA_U64,
		.has_objects = schema_has_polygons_of_objects(schema, index),
		.row_size = schema_row_size(value),
	};
}

static int fail_not_scalar(const struct where_parser *parser, const struct schema_value *value)
{
	char name[WHERE_WRITTEN_SIZE];
	size_t position = parser->lexer.token.first;

	where_written_name(value->name, name);
	if (schema_has_pixels(value))
		return where_fail(parser, position,
				  "%s has pixels, which a filter does not read; use has(%s), "
				  "width(%s) or height(%s)",
				  name, name, name, name);
	if (is_countable(value))
		return where_fail(parser, position,
				  "%s is not one number or text; use has(%s) or count(%s)", name,
				  name, name);
	return where_fail(parser, position, "%s is not one number or text; use has(%s)", name,
			  name);
}

int where_bind_name(const struct where_parser *parser, struct where_binding *ret_binding)
{
	const struct schema *schema = packimg_schema(parser->dataset);
	const struct where_token *token = &parser->lexer.token;
	char name[NAME_SIZE];

	if (!token_name(token, name))
		return fail_unknown(parser, token);
	int own = find_own_name(token, name), index = schema_find(schema, name);
	if (index < 0 && own < 0)
		return fail_unknown(parser, token);
	if (index < 0) {
		*ret_binding = (struct where_binding){
			.read = own_names[own].read,
			.type = own_names[own].type,
		};
		return 0;
	}
	const struct schema_value *value = &schema->values[index];
	if (!is_scalar(value) && !is_text(value))
		return fail_not_scalar(parser, value);
	*ret_binding = (struct where_binding){
		.read = read_of(schema, (unsigned)index, WHERE_VALUE),
		.type = is_text(value) ? WHERE_TEXT : WHERE_NUMBER,
		.class_of = is_class(value) ? value->name : NULL,
	};
	return 0;
}

static const struct where_function_row *find_function(const char *name)
{
	for (size_t i = 0; i < FUNCTIONS; i++)
		if (strcmp(functions[i].name, name) == 0)
			return &functions[i];
	return NULL;
}

static int fail_no_function(const struct where_parser *parser, const struct where_token *function,
			    const char *name)
{
	int size = function->size < WHERE_SHOWN_MAX ? (int)function->size : WHERE_SHOWN_MAX;
	struct nearest nearest = nearest_to(name);

	for (size_t i = 0; i < FUNCTIONS; i++)
		nearest_offer(&nearest, functions[i].name);
	return where_fail(parser, function->first, "there is no function %.*s(); %s%s%s", size,
			  function->content,
			  nearest.meant ? "did you mean "
					: "has(), count(), width(), height() and "
					  "class() exist",
			  nearest.meant ? nearest.meant : "", nearest.meant ? "()?" : "");
}

/* Binds has(NAME) of a name that is no value of the schema. */
static int bind_own_call(const struct where_parser *parser, const struct where_function_row *row,
			 int own, struct where_binding *ret_binding)
{
	if (row->function != WHERE_HAS)
		return where_fail(parser, parser->lexer.token.first,
				  "%s() takes %s; %s is not a value of the schema", row->name,
				  row->needs, own_names[own].name);
	*ret_binding = (struct where_binding){
		.read = own_names[own].read,
		.type = WHERE_CONDITION,
		.is_presence = true,
	};
	return 0;
}

int where_bind_call(const struct where_parser *parser, const struct where_token *function,
		    struct where_binding *ret_binding)
{
	const struct schema *schema = packimg_schema(parser->dataset);
	const struct where_token *token = &parser->lexer.token;
	const struct where_function_row *row;
	char name[NAME_SIZE] = "", written[WHERE_WRITTEN_SIZE];

	row = token_name(function, name) ? find_function(name) : NULL;
	if (!row)
		return fail_no_function(parser, function, name);
	if (!token_name(token, name))
		return fail_unknown(parser, token);
	int own = find_own_name(token, name), index = schema_find(schema, name);
	if (index < 0 && own < 0)
		return fail_unknown(parser, token);
	if (index < 0)
		return bind_own_call(parser, row, own, ret_binding);
	const struct schema_value *value = &schema->values[index];
	if (!row->takes(value))
		return where_fail(parser, token->first, "%s() takes %s; %s is not", row->name,
				  row->needs, where_written_name(name, written));
	*ret_binding = (struct where_binding){
		.read = read_of(schema, (unsigned)index, row->function),
		.type = row->type,
	};
	return 0;
}
