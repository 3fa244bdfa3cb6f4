/*
 * All randomness of packimg, reproducible from a seed: hashes of names, permutations, splits. Pure
 * functions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Returns a 64-bit hash of a name under a seed (FNV-1a with the finaliser of MurmurHash3). */
uint64_t shuffle_hash(const void *bytes, size_t size, uint64_t seed);
/* Returns the same hash as a fraction in [0, 1). */
double shuffle_fraction(const void *bytes, size_t size, uint64_t seed);
/* Fisher-Yates shuffle with SplitMix64, unbiased. */
void shuffle_permute(uint64_t *items, uint64_t count, uint64_t seed);
/*
 * Distributes count samples to parts in proportion to fractions[0..part_count) (positive, sum at
 * most 1). The remaining samples belong to no part: UINT32_MAX. If labels is not NULL, each label
 * is distributed in the same proportions. The size of each part is within one sample of the exact
 * fraction. ret_part[i] is the part of sample i. Returns 0 or -ENOMEM.
 */
int shuffle_split(const int32_t *labels, uint64_t count, const double *fractions,
		  uint32_t part_count, uint64_t seed, uint32_t *ret_part);
