/*
 * The trainer's random numbers: Philox4x32-10 (format/base/random.h), keyed by seed and name and
 * indexed by element. Number i of a stream depends only on (seed, name, i), so weights do not
 * depend on the order of initialisation. Results are bitwise equal on every machine, because only
 * correctly rounded operations are used, not libm. Pure functions.
 */
#pragma once

#include <stdint.h>

/* Key of a stream: FNV-1a of the name, mixed with the seed. */
uint64_t random_key(uint64_t seed, const char *name);
/*
 * Returns block `index` of the stream, four random words. Each value of `attempt` gives another
 * block.
 */
void random_block(uint64_t key, uint64_t index, uint32_t attempt, uint32_t ret_words[4]);
/* Uniform in [-1, 1). */
double random_uniform(uint64_t key, uint64_t index);
/* Normal with mean 0 and standard deviation 1 (Marsaglia's polar method). */
double random_normal(uint64_t key, uint64_t index);
