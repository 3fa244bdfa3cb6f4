/*
 * histogram: counts of durations by magnitude, 64 steps to the octave, so that a quantile is right
 * to 1.1 %.
 *
 * Fixed size and without pointers: it may lie in shared memory. One thread adds at a time.
 */
#pragma once

#include <stdint.h>

enum {
	HISTOGRAM_STEPS = 64,
	HISTOGRAM_OCTAVES = 44, /* 2^44 ns are 5 hours */
};

struct histogram {
	uint64_t total;
	uint64_t counts[HISTOGRAM_OCTAVES * HISTOGRAM_STEPS];
};

void histogram_add(struct histogram *histogram, uint64_t ns);
void histogram_merge(struct histogram *histogram, const struct histogram *other);
/*
 * Duration in nanoseconds that `quantile` (0..1) of those added do not exceed; 0 when there is
 * none.
 */
double histogram_quantile(const struct histogram *histogram, double quantile);
