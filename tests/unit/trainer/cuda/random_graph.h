/*
 * Graphs of random operations, for tests: everything that the seam lets one record, in combinations
 * that no model has. The same seed records the same graph on every device.
 */
#pragma once

#include "trainer/device/device.h"

#include <stdint.h>

struct random_graph {
	struct device_params *params; /* allocated */
	struct device_graph *graph;   /* recorded, not planned */
};

struct random_graph_options {
	uint64_t seed;
	enum device_mode mode;
	bool keep_all;
	bool loss;        /* else ends are left open, for gradients that are written */
	unsigned nodes;   /* about so many */
	uint32_t samples; /* n of the input */
	/* every second node begins a block, and so many are a segment; 0: nothing is recomputed */
	uint32_t recompute;
};

/* Fails the test on an error. */
void random_graph_new(struct device *device, const struct random_graph_options *options,
		      struct random_graph *ret_random);
void random_graph_free(struct random_graph *random);
