/*
 * State of the parser of filters, shared by where_parser.c (grammar), where_names.c (names of the
 * dataset) and where_classes.c (names of classes). One thread, during where_parse().
 */
#pragma once

#include "format/where/where_lexer.h"

#include <stdarg.h>

enum {
	WHERE_SHOWN_MAX = 60, /* bytes of the filter or of a name that a message repeats */
	WHERE_WRITTEN_SIZE = 2 * SCHEMA_NAME_MAX + sizeof("``"), /* each byte may be quoted */
};

/* A literal that is compared with the names of classes. */
struct where_class_literal {
	struct where_text text;
	size_t position;
	bool found;
};

struct where_parser {
	struct where_lexer lexer;
	const struct packimg *dataset;
	struct where *where;
	size_t op_room, literal_room, read_room; /* elements */
	size_t bytes_used;
	unsigned depth;  /* open parentheses */
	unsigned height; /* operands on the stack after the last operation */
	struct where_class_literal *classes;
	size_t class_count, class_room;
	struct where_error *error; /* may be NULL */
};

/* Writes the error and returns -EINVAL. */
int where_fail(const struct where_parser *parser, size_t position, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * Doubles *array, of elements of the given size, if it has no room for one more element than
 * count. -ENOMEM.
 */
int where_grow(void *array, size_t *room, size_t count, size_t size);

/* A value that a name or a function call stands for. */
struct where_binding {
	struct where_read read;
	enum where_type type;
	const char *class_of; /* name of a value of class numbers, in the schema; else NULL */
	bool is_presence;     /* wanted is not the value, but whether it is present */
};

/*
 * Bind the current token, the name of a value, or the value in the brackets of the function whose
 * name is another token. -EINVAL with an error.
 */
int where_bind_name(const struct where_parser *parser, struct where_binding *ret_binding);
int where_bind_call(const struct where_parser *parser, const struct where_token *function,
		    struct where_binding *ret_binding);

/* Writes a name of the schema as a filter has it: in backquotes unless it is a plain word. */
const char *where_written_name(const char *name, char written[WHERE_WRITTEN_SIZE]);

/* Remembers a literal for where_classes_check(), which refuses names that no class has. */
int where_classes_add(struct where_parser *parser, const struct where_text *text, size_t position);
int where_classes_check(struct where_parser *parser);
