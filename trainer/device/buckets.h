/*
 * How a store's gradients are cut up for adding them over ranks while backward still runs (Li et al. 2020, "PyTorch Distributed").
 *
 * A bucket is a range of the store's contiguous gradient slot that is complete once backward has come down to a node: the first one, in order of
 * recording, that uses any of its parameters. Buckets stand in the order in which backward completes them, which follows from the graph alone, so
 * it is the same on every rank. Frozen parameters and buffers inside a range go along, and so does what the graph does not touch: the update
 * takes no notice of their gradients, whatever is there. Plain bookkeeping for every backend; made when a graph is planned, owned by it.
 */
#pragma once

#include "backend.h"

#define BUCKETS_MAX 50 /* fewer than COMM_REQUESTS_MAX, so that all may be under way beside other sums */

struct bucket {
	size_t offset, count; /* elements of the slot */
	uint32_t node; /* complete after this one's backward step; node_count: from the start, the graph does not touch it */
};

struct buckets {
	struct bucket items[BUCKETS_MAX];
	uint32_t count;
};

/* elements: how long a bucket may be, but for a parameter that is longer and for stores that would have more than BUCKETS_MAX. */
int buckets_plan(struct buckets *buckets, const struct device_graph *graph, size_t elements);
