/*
 * How many samples a worker claims at once. Of the feed's batcher, and of trials
 * (tools/packimg/advise/encoding_bench.h), which say beforehand what a feed would cost: how many
 * JPEGs without an index come together in a claim is how many are decoded side by side. Pure
 * functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct claim_terms {
	uint64_t batch_size; /* a claim never reaches beyond a batch */
	unsigned workers;    /* that share it */
	bool alone;          /* no other feed waits for its turn */
};

/*
 * Samples to claim, 1 or more. cost_ns: CPU time of one, 0: not known yet. together: as
 * claim_together() was last.
 */
uint32_t claim_size(const struct claim_terms *terms, uint64_t cost_ns, bool together);
/*
 * Where `gain` of the next `count` samples, at most PACKIMG_AHEAD_MAX, are such that gain by being
 * decoded ahead: are larger claims worth it?
 */
bool claim_together(uint32_t gain, uint32_t count);
