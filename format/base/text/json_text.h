/*
 * JSON that programs print, which may end up on a terminal. Only ASCII that it does not obey is
 * written; the rest is escaped as JSON does. Functions without state, any thread; a library of its
 * own, for those who link jansson.
 */
#pragma once

#include <jansson.h>
#include <stdio.h>

/* json_dumpf() with DEL escaped, too, which jansson takes for a character like others. 0 or -1. */
int json_print(const json_t *json, FILE *file, size_t flags);
