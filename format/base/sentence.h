/*
 * Sentences for people, written where something failed: into an array of the caller's, whose length
 * is the room's own. Functions without state, any thread.
 */
#pragma once

#include <stddef.h>

/* Cuts what does not fit. NULL: nobody will read it. */
void sentence_write(char *text, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same, and returns the code. */
int sentence_fail(char *text, size_t size, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
