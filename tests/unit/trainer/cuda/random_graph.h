/*
 * Random graphs for tests: they use every operation that ops.h can record, in combinations that
 * no model has. Equal seeds record equal graphs on every device.
 */
#pragma once

#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"

#include <stdint.h>

struct random_graph {
	struct device_params *params; /* allocated */
	struct device_graph *graph;   /* recorded, not planned */
};

struct random_graph_options {
	uint64_t seed;
	enum device_mode mode;
	bool keep_all;
	bool loss;        /* if false, outputs are left open, for gradients that the test writes */
	unsigned nodes;   /* approximate number of nodes */
	uint32_t samples; /* n of the input */
	/*
	 * every second node begins a block, and a segment has this many blocks; 0 recomputes
	 * nothing
	 */
	uint32_t recompute;
	enum device_shard shard; /* of the store, which has an SGD optimizer */
};

/* Fails the test on an error. */
void random_graph_new(struct device *device, const struct random_graph_options *options,
		      struct random_graph *ret_random);
void random_graph_free(struct random_graph *random);
