/*
 * Memory that catches out-of-bounds accesses of kernels: whole pages between two inaccessible ones.
 * The allocation ends exactly at the trailing guard page. Exits the program if memory cannot be
 * allocated.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct guarded {
	uint8_t *map;
	size_t map_size, size;
};

/* Returns size bytes that end at the trailing guard page. */
uint8_t *guarded_new(struct guarded *guarded, size_t size);
void guarded_free(struct guarded *guarded);
