/*
 * A dataset with a value of every kind that a feed delivers: each role, element, shape and store of
 * the schema, with and without rows, present or missing. A sample's bytes depend only on its
 * number. A failure ends the test through cmocka's assertions.
 */
#pragma once

#include <stdint.h>

enum { EVERY_KIND_SAMPLES = 50, EVERY_KIND_VALUES_MAX = 64 };

/* The names of the values, for feed_options.values, except those that every feed delivers. */
extern const char *const every_kind_names[];
uint32_t every_kind_count(void);

/* Writes the dataset. */
void every_kind_write(const char *path);
