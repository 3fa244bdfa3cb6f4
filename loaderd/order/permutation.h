/*
 * Keyed permutations of 0 .. count - 1, evaluated point by point: any point costs the same few
 * nanoseconds, and there is no table to build. Plain values, immutable once initialised; any thread
 * may read them.
 */
#pragma once

#include "format/base/random.h"

#include <stdint.h>

enum { PERMUTATION_ROUNDS = 8 };

struct permutation {
	uint64_t count;
	uint8_t left_bits, right_bits; /* 0 if there is nothing to permute */
	uint32_t keys[PERMUTATION_ROUNDS][2];
};

/*
 * The keys are the first numbers of the stream (seed, number, sample, purpose), see random_init().
 * count must be at least 1.
 */
void permutation_init(struct permutation *permutation, uint64_t count, uint64_t seed,
		      uint64_t number, uint64_t sample, enum random_purpose purpose);
/* Sets the permutation that changes nothing. */
void permutation_init_identity(struct permutation *permutation, uint64_t count);
/* point < count. */
uint64_t permutation_at(const struct permutation *permutation, uint64_t point);
/* Returns the point that permutation_at() maps to value; value < count. */
uint64_t permutation_find(const struct permutation *permutation, uint64_t value);
