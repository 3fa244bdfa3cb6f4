/*
 * Gradient buckets: ranges of a store's gradients that are all-reduced while backward still runs
 * (Li et al. 2020, "PyTorch Distributed").
 *
 * A bucket is a range of the store's contiguous gradient slot that is complete once backward has
 * processed a certain node: the first one, in order of recording, that uses any of its parameters.
 * Buckets are in the order in which backward completes them, which depends on the graph alone, so
 * it is the same on every rank. Frozen parameters, buffers and parameters that the graph does not
 * use are summed along where they lie inside a range; the update ignores their gradients, whatever
 * is there. Plain bookkeeping for every backend; made when a graph is planned, owned by it.
 */
#pragma once

#include "trainer/device/backend.h"

/* fewer than COMM_REQUESTS_MAX, so that all may be under way beside other sums */
#define BUCKETS_MAX 50

struct bucket {
	size_t offset, count; /* elements of the slot */
	/*
	 * complete after this one's backward step; node_count: from the start, the graph does not
	 * touch it
	 */
	uint32_t node;
};

struct buckets {
	struct bucket items[BUCKETS_MAX];
	uint32_t count;
};

/*
 * elements: the longest that a bucket may be, except for a single longer parameter, and for stores
 * that would have more than BUCKETS_MAX.
 */
int buckets_plan(struct buckets *buckets, const struct device_graph *graph, size_t elements);
