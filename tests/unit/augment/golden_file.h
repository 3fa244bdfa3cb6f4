/*
 * Golden data files, compressed with zstd and read from front to back; and parsing of valid
 * pipelines. All functions fail the test instead of returning an error.
 */
#pragma once

#include "format/augment/pipeline.h"

#include <stddef.h>
#include <stdint.h>

/* The unread rest of a file's contents. */
struct golden {
	const uint8_t *at, *end;
};

/* Reads a whole file of at most 64 MiB. The caller frees the result. */
uint8_t *golden_read(const char *path, size_t *ret_size);
/* Takes the next bytes. */
const void *golden_take(struct golden *golden, size_t size);
/* Takes a little-endian integer of up to 8 bytes. */
uint64_t golden_take_number(struct golden *golden, size_t size);
struct pipeline *golden_pipeline(const char *text);
