/*
 * Lays out the buffers of a graph in one arena from their lifetimes.
 *
 * A block is used from step `first` to step `last` of a schedule, both included, and perhaps,
 * written anew, from step `again` to `last_again`; blocks whose lifetimes do not meet may share
 * bytes. arena_layout() places the largest blocks first, each at the lowest offset that is free
 * during its lifetime (first fit by decreasing size). The arena is plain bookkeeping: it owns no
 * memory that a device computes in. Used by one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ARENA_ALIGNMENT 256 /* bytes, of every block; enough for vectors of any backend */

struct arena_block {
	uint64_t size, offset; /* bytes */
	uint32_t first, last;  /* steps of the schedule */
	/* later steps; again 0: it has one lifetime. last_again 0: nothing uses it then as yet */
	uint32_t again, last_again;
};

struct arena {
	struct arena_block *blocks;
	uint32_t count, capacity;
	uint64_t size;     /* of all, after arena_layout() */
	uint64_t unshared; /* sum of the blocks */
};

void arena_init(struct arena *arena);
void arena_deinit(struct arena *arena);
/* Adds a block; ret_block is its index. size 0 is allowed. */
int arena_add(struct arena *arena, uint64_t size, uint32_t first, uint32_t last,
	      uint32_t *ret_block);
/* Makes a block live at `step` too: in its second lifetime from when that begins. */
void arena_extend(struct arena *arena, uint32_t block, uint32_t step);
/* A second lifetime, which begins at `step`; what lies between is no part of either. */
void arena_again(struct arena *arena, uint32_t block, uint32_t step);
/* One lifetime instead, from the first step to the last of both. */
void arena_keep(struct arena *arena, uint32_t block);
int arena_layout(struct arena *arena);
