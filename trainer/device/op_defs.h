/*
 * Table of node kinds, and what their recording functions (op_defs.c) need. record_node() uses a
 * kind's row to check required operands and attributes and to infer output shapes.
 */
#pragma once

#include "trainer/device/backend.h"

#include <stddef.h>

#define BIT(index) (1u << (index))
/* Index of an operand in the node's array params, inputs or outputs. */
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

struct op_def {
	const char *name;
	/*
	 * checks and completes the attributes and returns the shape of the result; ret_further
	 * receives the shapes of the other outputs, by index, and is zeroed before the call
	 */
	struct device_shape (*infer)(struct device_graph *graph, struct device_node *node,
				     struct device_shape *ret_further);
	/* bit masks of required operands; norm parameters are required only with a norm */
	unsigned inputs, params;
	unsigned saved;                /* bit mask of outputs that only backward reads */
	bool no_result;                /* y is x */
	enum device_param_kind weight; /* 0 if the operation has no weight */
};

extern const struct op_def op_defs[DEVICE_NODE_KINDS];

/*
 * Every recording function ends with this call: checks the described node against its kind's row,
 * appends it with its outputs, and connects it to its inputs. Returns y; NULL after an error.
 */
struct device_value *record_node(struct device_graph *graph, const char *name,
				 const struct device_node *described);
/* Keeps the graph's first recording error. Always returns NULL. */
void *record_failure(struct device_graph *graph, int failure, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
