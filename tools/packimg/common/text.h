/*
 * Sentences for people: sizes, counts and durations in them, and what a struct packimg_error says.
 * Pure functions, any thread; nothing here allocates or keeps state.
 */
#pragma once

#include "format/error.h"

#include <stdint.h>

/* packimg_fail() with a prefix in front of what the error already says. */
int text_error_prefix(struct packimg_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * What libpackimg's sentence says behind "sample NUMBER: ", for those who have named the sample, or
 * have none.
 */
const char *text_behind_sample(const char *sentence);

/* "12.3 MiB" and "1,234,567" into the caller's buffer, which is returned. */
struct text_buffer {
	char text[48];
};
/* One of its own wherever it stands, as long as the block around it lasts. */
#define TEXT (&(struct text_buffer){{0}})
const char *text_bytes(struct text_buffer *buffer, uint64_t bytes);
const char *text_count(struct text_buffer *buffer, uint64_t count);
/* What a noun ends in behind that count: "s", or "" of one. */
const char *text_plural(uint64_t count);
/* "1:02:03" or "4.2 s" */
const char *text_duration(struct text_buffer *buffer, double seconds);
/* As people and JSON see it. */
const char *codec_name(enum packimg_codec codec);
