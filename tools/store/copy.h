/* Copies ranges of an object into a file, many requests at once. One thread. */
#pragma once

#include "tools/store/store.h"

/* Bytes of one request, at most. */
#define STORE_COPY_PART ((uint64_t)8 << 20)

struct store_range {
	uint64_t offset, size; /* bytes */
};

/*
 * Sorts ranges, and joins those with at most `gap` bytes between them, for which one request costs
 * less than two. Returns the number that is left; empty ranges are dropped.
 */
uint64_t store_ranges_merge(struct store_range *ranges, uint64_t count, uint64_t gap);
/*
 * Writes ranges of an object into fd at their own offsets. on_bytes (may be NULL) is called with
 * the number of bytes written by this call so far. Errors as of store.h, and of pwrite().
 */
int store_copy(struct store *store, struct store_object *object, const struct store_range *ranges,
	       uint64_t count, int fd, void (*on_bytes)(void *context, uint64_t bytes),
	       void *context, struct packimg_error *error);
