/*
 * Everything random in the tool, and therefore everything that must come out the same from the same
 * seed: hashes of names, permutations, splits. Pure functions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* 64 well-mixed bits of a name under a seed (FNV-1a, finished as in MurmurHash3). */
uint64_t shuffle_hash(const void *bytes, size_t size, uint64_t seed);
/* In [0, 1). */
double shuffle_fraction(const void *bytes, size_t size, uint64_t seed);
/* Fisher-Yates over SplitMix64, unbiased. */
void shuffle_permute(uint64_t *items, uint64_t count, uint64_t seed);
/*
 * Deals count samples to parts in proportion to fractions[0..part_count) (positive, sum at most 1;
 * what is left over belongs to no part: UINT32_MAX). labels may be NULL; otherwise every label is
 * dealt in the same proportion. Each part's total is within one sample of its exact share.
 * ret_part[i] is the part of sample i. 0 or -ENOMEM.
 */
int shuffle_split(const int32_t *labels, uint64_t count, const double *fractions,
		  uint32_t part_count, uint64_t seed, uint32_t *ret_part);
