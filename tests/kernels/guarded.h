/*
 * Memory that catches kernels which touch more than they may: it ends at the end of a page that is
 * followed, and begins on a page that is preceded, by one that cannot be touched. Failure to get it
 * ends the test program.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct guarded {
	uint8_t *map;
	size_t map_size, size;
};

/* size bytes, the last of which is the last that can be touched. */
uint8_t *guarded_new(struct guarded *guarded, size_t size);
void guarded_free(struct guarded *guarded);
