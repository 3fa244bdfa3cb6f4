/*
 * Histogram of durations on a logarithmic scale, 64 steps per octave, which makes quantiles
 * accurate to 1.1 %.
 *
 * Fixed size without pointers, so it may be in shared memory. One thread adds at a time.
 */
#pragma once

#include <stdint.h>

enum {
	HISTOGRAM_STEPS = 64,
	HISTOGRAM_OCTAVES = 44, /* 2^44 ns are about 5 hours */
};

struct histogram {
	uint64_t total;
	uint64_t counts[HISTOGRAM_OCTAVES * HISTOGRAM_STEPS];
};

void histogram_add(struct histogram *histogram, uint64_t ns);
void histogram_merge(struct histogram *histogram, const struct histogram *other);
/*
 * Smallest duration in nanoseconds that a fraction `quantile` (0..1) of the added ones does not
 * exceed; 0 if the histogram is empty.
 */
double histogram_quantile(const struct histogram *histogram, double quantile);
