/*
 * JSON output of programs, safe for a terminal: writes only ASCII without control characters and
 * escapes the rest in JSON syntax. Stateless, any thread. A separate library, for programs that
 * link jansson.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Returns a name or value unchanged: a string, or {"hex": "00ff"} if the bytes are not UTF-8. NULL
 * if out of memory.
 */
json_t *json_text(const char *bytes, size_t size);
/*
 * Returns a string for display, converted by printable_copy() if it is not UTF-8. NULL if out of
 * memory.
 */
json_t *json_sentence(const char *sentence);
/* Like json_dumpf(), but also escapes DEL, which jansson prints as is. Returns 0 or -1. */
int json_print(const json_t *json, FILE *file, size_t flags);
