/*
 * A dataset with a value of every kind that a feed delivers: each role, element, shape and store of
 * the schema, with and without rows, present or missing. A sample's bytes depend on its number
 * alone. A failure ends the test through cmocka's assertions.
 */
#pragma once

#include <stdint.h>

enum { EVERY_KIND_SAMPLES = 50, EVERY_KIND_VALUES_MAX = 64 };

/* The values' names, for feed_options.values, without those that every feed delivers. */
extern const char *const every_kind_names[];
uint32_t every_kind_count(void);

/* Writes the dataset. */
void every_kind_write(const char *path);
