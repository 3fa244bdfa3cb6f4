/*
 * JSON that programs print, which may end up on a terminal. Only ASCII that it does not obey is
 * written; the rest is escaped as JSON does. Functions without state, any thread; a library of its
 * own, for those who link jansson.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/*
 * A name or value as it is: a string, or, of bytes that are not UTF-8, {"hex": "00ff"}. NULL: out
 * of memory.
 */
json_t *json_text(const char *bytes, size_t size);
/* A string for people, as printable_copy() has it where it is not UTF-8. NULL: out of memory. */
json_t *json_sentence(const char *sentence);
/* json_dumpf() with DEL escaped, too, which jansson takes for a character like others. 0 or -1. */
int json_print(const json_t *json, FILE *file, size_t flags);
