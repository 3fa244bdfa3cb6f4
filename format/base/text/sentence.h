/* Formats an error message into a fixed-size array of the caller. Stateless, any thread. */
#pragma once

#include <stddef.h>

/* Formats a message, truncated to size, and returns code. text may be NULL. */
int sentence_fail(char *text, size_t size, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Like sentence_fail(), without a return value. */
#define sentence_write(text, size, ...) (void)sentence_fail((text), (size), 0, __VA_ARGS__)
