/*
 * A permutation of the positions of a choice that keeps neighbours close together in time, so that
 * a store can be read in large pieces: blocks of b consecutive positions, the last one shorter, are
 * permuted; each g blocks in that order, the last ones fewer, make a group, and the positions of a
 * group are permuted within it. loaderd(1), ORDER AND RESUME, states it; proto/SPEC.md the keys.
 *
 * Evaluated point by point, like permutation.h: any point costs the same, and there is no table.
 * Plain values, immutable once initialised; any thread may read them.
 */
#pragma once

#include "loaderd/order/permutation.h"

#include <stdint.h>

/* How an epoch is cut. */
struct block_sizes {
	uint32_t samples; /* of a block, b; 0: no blocks */
	uint32_t blocks;  /* of a group, g; at least 1 */
};

/* The order of one pass. */
struct block_order {
	struct block_sizes sizes;
	uint64_t count, block_count;
	uint64_t seed, pass;
	uint64_t missing;    /* samples that the last block lacks */
	uint64_t short_slot; /* place of that block among the permuted blocks */
	struct permutation blocks;
};

/* count and both sizes must be at least 1. */
void block_order_init(struct block_order *order, const struct block_sizes *sizes, uint64_t count,
		      uint64_t seed, uint64_t pass);
/* point < count. */
uint64_t block_order_at(const struct block_order *order, uint64_t point);
