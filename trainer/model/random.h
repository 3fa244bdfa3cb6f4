/*
 * The trainer's random numbers: Philox4x32-10 (format/base/random.h), keyed by a
 * seed and a name, counted by element. Number i of a stream depends on nothing but (seed, name, i):
 * weights come out the same in any order, on any machine. Only correctly rounded operations are
 * used (no libm), so they agree bit for bit everywhere. Plain functions, no state.
 */
#pragma once

#include <stdint.h>

/* A stream's key. FNV-1a of the name, mixed with the seed. */
uint64_t random_key(uint64_t seed, const char *name);
/* Four random words, number `index` of the stream; `attempt` gives further ones. */
void random_block(uint64_t key, uint64_t index, uint32_t attempt, uint32_t ret_words[4]);
/* Uniform in [-1, 1). */
double random_uniform(uint64_t key, uint64_t index);
/* Normal with mean 0 and deviation 1 (Marsaglia's polar method). */
double random_normal(uint64_t key, uint64_t index);
