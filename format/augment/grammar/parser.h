/*
 * The parser of pipelines: its state, its tokens (tokens.c), steps (grammar.c) and views (views.c).
 * Internal to the grammar. One thread; lives while a text is parsed. Functions that fail return
 * -EINVAL or -E2BIG with the position in parser->error.
 */
#pragma once

#include "format/augment/grammar/grammar_rules.h"

#include <errno.h>

struct parser {
	const char *text;
	int at;
	struct pipeline *pipeline;
	struct pipeline_error *error;
	unsigned seen; /* format transforms seen so far: bit 0 is TRANSFORM_NORMALIZE */
	int format_at, format_size; /* offset and length of the first format transform */
	int normalize_position;
	unsigned effects; /* maximum number of effects of the transforms so far */
};

#define fail(parser, position, ...) pipeline_fail((parser)->error, -EINVAL, position, __VA_ARGS__)
/* Fails with an error that says what was expected and what was found. */
#define fail_expected(parser, what, ...)                                                           \
	fail(parser, (parser)->at, "expected " what ", found %s",                                  \
	     __VA_ARGS__ __VA_OPT__(, ) parser_found(parser, (char[FOUND_MAX]){0}))

enum { FOUND_MAX = NAME_MAX_SIZE + 2 };

/* ---- tokens ---- */

void parser_skip_space(struct parser *parser);
bool parser_is_digit(char c);
bool parser_is_word(char c);
/* Consumes `mark` and the white space after it, if `mark` comes next. */
bool parser_take_mark(struct parser *parser, char mark);
/* Consumes a word and copies it, truncated to fit. Returns its untruncated length. */
int parser_take_word(struct parser *parser, char word[NAME_MAX_SIZE]);
/*
 * Parses a decimal number with optional fraction and exponent. Uses up to 17 digits. Powers of ten
 * up to 22 are exact, so the result does not depend on a library or a locale. Returns false and
 * consumes nothing if there is no number.
 */
bool parser_take_number(struct parser *parser, double *ret_number);
/* Parses an unsigned integer. Returns -1 if there are no digits, INT64_MAX if it is too large. */
int64_t parser_take_integer(struct parser *parser);
/* Describes the text at the current position, for the end of an error message. */
const char *parser_found(const struct parser *parser, char buffer[FOUND_MAX]);

/* ---- steps and views ---- */

/* Returns true if the text continues with a view. */
bool parser_view_comes(const struct parser *parser);
/* Parses steps up to `end`, which may be 0 for the end of the text, or to a view. */
int parser_steps(struct parser *parser, char end);
/* Checks the format of finished samples, once all steps that set it are parsed. */
int parser_check_format(struct parser *parser);
/* Stores a step for batches. Fails within a view, or if it is given twice. */
int parser_batch_step(struct parser *parser, const struct rule *rule,
		      const struct transform *transform);
/* Fails if a step for batches precedes this step, whose name is at `position`. */
int parser_check_last(struct parser *parser, const struct rule *rule, int position);
/* Fails because the pipeline has a step for batches, at `position`, and views. */
int parser_fail_views(struct parser *parser, int position);
/* Checks and completes the steps for batches. */
int parser_check_batch(struct parser *parser);
/* Parses the views at the end of the text. */
int parser_views(struct parser *parser);
