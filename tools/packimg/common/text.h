/*
 * Text for people: sizes, counts and durations, and messages of struct packimg_error. Pure
 * functions, any thread; they allocate nothing and keep no state.
 */
#pragma once

#include "format/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Like packimg_fail(), but prepends the text to the message already in error. */
int text_error_prefix(struct packimg_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* True if the name ends in `end`, ignoring case, and is longer than it. */
bool text_ends_with(const char *name, const char *end);

/*
 * Strips "sample NUMBER: " from a message of libpackimg, for a caller that prints the number itself
 * or has none.
 */
const char *text_after_sample(const char *sentence);

/*
 * Write a size such as "12.3 MiB", or a count such as "1,234,567", to the caller's buffer and
 * return it.
 */
struct text_buffer {
	char text[64];
};
/* A temporary buffer, valid until the end of the enclosing block. */
#define TEXT (&(struct text_buffer){{0}})
const char *text_bytes(struct text_buffer *buffer, uint64_t bytes);
const char *text_count(struct text_buffer *buffer, uint64_t count);
/* Returns the plural ending of a noun after that count: "s", or "" for one. */
const char *text_plural(uint64_t count);
/* Writes a duration such as "1:02:03" or "4.2 s". */
const char *text_duration(struct text_buffer *buffer, double seconds);
/* Returns the codec's name for text and JSON. */
const char *codec_name(enum packimg_codec codec);
