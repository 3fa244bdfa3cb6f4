/*
 * JSON output of programs, safe for a terminal: writes only printable ASCII and escapes everything
 * else in JSON syntax. Stateless, any thread. A separate library, because it links jansson.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Returns a name or value as JSON: a string, or {"hex": "00ff"} if the bytes are not UTF-8. NULL if
 * out of memory.
 */
json_t *json_text(const char *bytes, size_t size);
/*
 * Returns text for display as a JSON string. Text that is not UTF-8 goes through printable_copy().
 * NULL if out of memory.
 */
json_t *json_sentence(const char *sentence);
/* Like json_dumpf(), but also escapes DEL, which jansson prints as is. Returns 0 or -1. */
int json_print(const json_t *json, FILE *file, size_t flags);
