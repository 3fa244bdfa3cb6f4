/*
 * Sentences for people, written where something failed: into an array of the caller's, whose length
 * is the room's own. Functions without state, any thread.
 */
#pragma once

#include <stddef.h>

/* Cuts what does not fit, and returns the code. NULL: nobody will read it. */
int sentence_fail(char *text, size_t size, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The same where there is no code. */
#define sentence_write(text, size, ...) (void)sentence_fail((text), (size), 0, __VA_ARGS__)
