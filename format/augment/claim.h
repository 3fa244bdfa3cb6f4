/*
 * Number of samples that a worker claims at once. Used by a feed's batcher, and by benchmarks that
 * predict the cost of a feed (tools/packimg/estimate/encoding_bench.h): JPEGs without an index in
 * one claim are decoded together. Pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct claim_options {
	uint64_t batch_size; /* a claim never crosses the end of a batch */
	unsigned workers;    /* workers that share the batch */
	bool alone;          /* no other feed is waiting */
};

/*
 * Returns the number of samples to claim, at least 1. cost_ns: CPU time per sample, 0 if unknown.
 * together: the last result of claim_together().
 */
uint32_t claim_size(const struct claim_options *claim, uint64_t cost_ns, bool together);
/*
 * Returns true if larger claims are faster. count: number of the next samples, at most
 * PACKIMG_AHEAD_MAX. gain: how many of them decode faster if decoded ahead.
 */
bool claim_together(uint32_t gain, uint32_t count);
