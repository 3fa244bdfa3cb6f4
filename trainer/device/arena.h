/*
 * Packs the buffers of a graph into one arena by lifetime.
 *
 * A block is live from step `first` to step `last` of a schedule, inclusive. It may have a second
 * lifetime, from step `second_first` to `second_last`, at whose start it is rewritten. Blocks whose
 * lifetimes do not overlap may share bytes. arena_layout() places the largest blocks first, each at
 * the lowest offset that is free during its lifetime (first fit by decreasing size). Plain
 * bookkeeping without device memory; use from one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* alignment of every block in bytes; enough for vector loads of any backend */
#define ARENA_ALIGNMENT 256

struct arena_block {
	uint64_t size, offset; /* bytes */
	uint32_t first, last;  /* steps of the schedule */
	/*
	 * second lifetime; second_first is 0 without one, second_last is 0 before arena_extend()
	 * extends it
	 */
	uint32_t second_first, second_last;
};

struct arena {
	struct arena_block *blocks;
	uint32_t count, capacity;
	uint64_t size;     /* of the arena, after arena_layout() */
	uint64_t unshared; /* sum of the blocks' sizes */
};

void arena_init(struct arena *arena);
void arena_deinit(struct arena *arena);
/* Adds a block; ret_block is its index. size 0 is allowed. */
int arena_add_block(struct arena *arena, uint64_t size, uint32_t first, uint32_t last,
		    uint32_t *ret_block);
/* Extends a block's lifetime to `step`; its second lifetime if that has begun by then. */
void arena_extend(struct arena *arena, uint32_t block, uint32_t step);
/* Starts a second lifetime at `step`. The block is dead between the two. */
void arena_add_second(struct arena *arena, uint32_t block, uint32_t step);
/* Merges both lifetimes into one, from the first step to the last. */
void arena_keep(struct arena *arena, uint32_t block);
int arena_layout(struct arena *arena);
