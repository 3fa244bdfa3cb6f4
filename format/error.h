/* Sentences for people: how every function of libpackimg fills its error argument. Any thread. */
#pragma once

#include "format/packimg.h"

/* Writes the sentence unless error is NULL, cutting it at the end of the buffer. */
void packimg_say(struct packimg_error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The same, with the value to return; a macro, so that the compiler sees that it is negative. */
#define packimg_fail(error, code, ...) (packimg_say((error), __VA_ARGS__), (code))
