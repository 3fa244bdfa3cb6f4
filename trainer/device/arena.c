#include "trainer/device/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void arena_init(struct arena *arena)
{
	memset(arena, 0, sizeof(*arena));
}

void arena_deinit(struct arena *arena)
{
	free(arena->blocks);
	memset(arena, 0, sizeof(*arena));
}

int arena_add_block(struct arena *arena, uint64_t size, uint32_t first, uint32_t last,
		    uint32_t *ret_block)
{
	if (arena->count == arena->capacity) {
		uint32_t capacity = arena->capacity ? arena->capacity * 2 : 64;
		struct arena_block *blocks =
			realloc(arena->blocks, capacity * sizeof(*arena->blocks));
		if (!blocks)
			return -ENOMEM;
		arena->blocks = blocks;
		arena->capacity = capacity;
	}
	size = (size + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
	arena->blocks[arena->count] =
		(struct arena_block){.size = size, .first = first, .last = last};
	arena->unshared += size;
	*ret_block = arena->count++;
	return 0;
}

void arena_extend(struct arena *arena, uint32_t block, uint32_t step)
{
	struct arena_block *b = &arena->blocks[block];
	uint32_t *last = b->second_first && step >= b->second_first ? &b->second_last : &b->last;

	if (step < b->first)
		b->first = step;
	if (step > *last)
		*last = step;
}

void arena_add_second(struct arena *arena, uint32_t block, uint32_t step)
{
	arena->blocks[block].second_first = step;
}

void arena_keep(struct arena *arena, uint32_t block)
{
	struct arena_block *b = &arena->blocks[block];

	if (b->second_last > b->last)
		b->last = b->second_last;
	b->second_first = b->second_last = 0;
}

/* Largest first; in order of addition if equal, so that layouts are reproducible. */
static int compare_size(const void *left, const void *right)
{
	const struct arena_block *a = *(struct arena_block *const *)left;
	const struct arena_block *b = *(struct arena_block *const *)right;

	if (a->size != b->size)
		return a->size < b->size ? 1 : -1;
	return a < b ? -1 : a > b;
}

static bool overlap(uint32_t first, uint32_t last, uint32_t other, uint32_t other_last)
{
	return first <= other_last && other <= last;
}

/* True if both blocks are live at some common step. */
static bool meet(const struct arena_block *a, const struct arena_block *b)
{
	return overlap(a->first, a->last, b->first, b->last) ||
	       (a->second_first && overlap(a->second_first, a->second_last, b->first, b->last)) ||
	       (b->second_first && overlap(a->first, a->last, b->second_first, b->second_last)) ||
	       (a->second_first && b->second_first &&
		overlap(a->second_first, a->second_last, b->second_first, b->second_last));
}

/*
 * Places `block` at the lowest offset free of conflicts with the `count` placed blocks, which are
 * sorted by offset.
 */
static void place(struct arena_block *block, struct arena_block **placed, uint32_t count)
{
	uint64_t offset = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct arena_block *other = placed[i];

		if (!meet(block, other))
			continue;
		if (offset + block->size <= other->offset)
			break;
		if (other->offset + other->size > offset)
			offset = other->offset + other->size;
	}
	block->offset = offset;
}

int arena_layout(struct arena *arena)
{
	uint32_t n = arena->count;

	struct arena_block **order = calloc((size_t)n * 2 + 1, sizeof(struct arena_block *));
	if (!order)
		return -ENOMEM;
	struct arena_block **placed = order + n;
	for (uint32_t i = 0; i < n; i++)
		order[i] = &arena->blocks[i];
	if (n)
		qsort(order, n, sizeof(struct arena_block *), compare_size);
	arena->size = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct arena_block *block = order[i];
		uint32_t at = i;

		place(block, placed, i);
		while (at > 0 && placed[at - 1]->offset > block->offset) {
			placed[at] = placed[at - 1];
			at--;
		}
		placed[at] = block;
		if (block->offset + block->size > arena->size)
			arena->size = block->offset + block->size;
	}
	free(order);
	return 0;
}
