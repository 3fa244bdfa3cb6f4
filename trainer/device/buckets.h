/*
 * Gradient buckets: ranges of a store's gradients that are all-reduced while backward still runs
 * (Li et al. 2020, "PyTorch Distributed").
 *
 * A bucket is a range of the contiguous gradient slot. It is complete after the backward step of
 * the first node, in recording order, that uses any of its parameters. Buckets are ordered by
 * completion, which depends only on the graph and so is the same on every rank. Frozen parameters,
 * buffers and parameters that the graph does not use are summed if a range contains them; the
 * update ignores their gradients. Plain bookkeeping for every backend; created by planning, owned
 * by the graph.
 */
#pragma once

#include "trainer/device/backend.h"

/* below COMM_REQUESTS_MAX, so that all buckets and other sums can be in flight at once */
#define BUCKETS_MAX 50

struct bucket {
	size_t offset, count; /* range in elements of the gradient slot */
	/*
	 * complete after this node's backward step; node_count if the graph does not use the range
	 */
	uint32_t node;
	bool scatters; /* of a sharded store's divided weights: each rank ends with its part */
};

struct buckets {
	struct bucket items[BUCKETS_MAX];
	uint32_t count;
};

/*
 * elements: limit on a bucket's length; exceeded by a single longer parameter, and if there would
 * otherwise be more than BUCKETS_MAX. A sharded store has its own buckets (shards.h), and one more
 * for all that is not divided.
 */
int buckets_plan(struct buckets *buckets, const struct device_graph *graph, size_t elements);
/*
 * The limit on a bucket's length that makes `most` buckets enough for `total` elements, or
 * `elements` if that is more.
 */
size_t buckets_limit(size_t total, unsigned most, size_t elements);
