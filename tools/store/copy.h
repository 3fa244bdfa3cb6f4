/* Copies ranges of objects into files, many requests at once. One thread. */
#pragma once

#include "tools/store/store.h"

/* Bytes of one request, at most. */
#define STORE_COPY_PART ((uint64_t)8 << 20)

struct store_range {
	uint64_t offset, size; /* bytes */
};

/* What is copied of one object. */
struct store_source {
	struct store_object *object;
	int fd; /* gets the ranges, at their own offsets */
	const struct store_range *ranges;
	uint64_t range_count;
};

/*
 * Sorts ranges, and joins those with at most `gap` bytes between them, for which one request costs
 * less than two. Returns the number that is left; empty ranges are dropped.
 */
uint64_t store_ranges_merge(struct store_range *ranges, uint64_t count, uint64_t gap);
/*
 * Copies the ranges of all sources, in order. on_bytes (may be NULL) is called at least ten times a
 * second with the number of bytes written by this call so far; if it returns false, no further
 * request is made, and the call ends with -EINTR. Errors as of store.h, and of pwrite().
 */
int store_copy(struct store *store, const struct store_source *sources, uint32_t count,
	       bool (*on_bytes)(void *context, uint64_t bytes), void *context,
	       struct packimg_error *error);
