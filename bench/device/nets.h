/*
 * The nets that device_bench measures: those that trainer/model builds, reduced to what costs time.
 * Recorded once without a graph, which declares the parameters, then once into each graph.
 */
#pragma once

#include "trainer/device/device.h"

struct builder {
	struct device_params *params;
	struct device_graph *graph; /* NULL: only declare */
	unsigned count;             /* of operations so far: names */
	unsigned width;             /* channels of the first stage */
};

struct net {
	const char *name;
	void (*build)(struct builder *b, struct device_value *x);
	unsigned side, batch, width; /* unless others are asked for */
	uint32_t classes;
};

extern const struct net nets[];
extern const size_t nets_count;
/* NULL: there is none of that name. */
const struct net *net_find(const char *name);

/* Ends the program unless result is an outcome. */
void check(int result, const char *what);
