/*
 * What the kinds of nodes are: a row each, from which recording (graph.c) knows what a node of that
 * kind may not lack and has its attributes checked and its outputs' shapes inferred.
 */
#pragma once

#include "trainer/device/backend.h"

#include <stddef.h>

#define BIT(index) (1u << (index))
/* Where what has that role is in the node's array. */
#define PARAM(role)                                                                                \
	((offsetof(struct device_node, role) - offsetof(struct device_node, params)) /             \
	 sizeof(struct device_param *))
#define INPUT(role)                                                                                \
	((offsetof(struct device_node, role) - offsetof(struct device_node, inputs)) /             \
	 sizeof(struct device_value *))
#define OUTPUT(role)                                                                               \
	((offsetof(struct device_node, role) - offsetof(struct device_node, outputs)) /            \
	 sizeof(struct device_value *))

#define NORM_PARAMS                                                                                \
	(BIT(PARAM(gamma)) | BIT(PARAM(beta)) | BIT(PARAM(running_mean)) | BIT(PARAM(running_var)))

struct device_kind {
	const char *name;
	/*
	 * checks and completes the attributes, and says the shape of the result; ret_further, by
	 * role among the outputs: those of others, which are zeros as long as there are none
	 */
	struct device_shape (*infer)(struct device_graph *graph, struct device_node *node,
				     struct device_shape *ret_further);
	unsigned inputs, params; /* that may not be missing; a norm's may not where there is one */
	unsigned saved;          /* outputs that are for the backward pass alone */
	bool no_result;          /* its y is its x */
	enum device_param_kind weight; /* 0: it takes none */
};

extern const struct device_kind device_kinds[DEVICE_NODE_KINDS];

/* Keeps the first failure of recording. Always NULL. */
void *record_failure(struct device_graph *graph, int failure, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
