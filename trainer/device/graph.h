/*
 * Graphs: what a model computes. A model records its operations (ops.h) into a graph once, for
 * fixed shapes. device_graph_plan() chooses kernels, fuses across operations where possible, and
 * packs every activation, gradient, saved tensor and workspace into one arena by lifetime.
 * Afterwards the loop only uploads batches and runs steps (steps.h).
 */
#ifndef TRAINER_DEVICE_GRAPH_H
#define TRAINER_DEVICE_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

enum device_mode {
	DEVICE_TRAIN = 1, /* batch statistics, gradients */
	DEVICE_EVAL = 2,  /* running statistics, forward only */
};

struct device_params;
struct device_graph;
struct device_value; /* a tensor of a graph; the graph owns it */

struct device_shape {
	uint32_t n, h, w, c; /* a matrix [n][c] has h = w = 1 */
};

struct device_graph_options {
	enum device_mode mode;
	/*
	 * give every value and gradient separate memory, readable after a step (tests, debugging);
	 * otherwise memory is shared by lifetime
	 */
	bool keep_all;
	/*
	 * training: blocks (device_begin_block()) per checkpointed segment. Backward recomputes a
	 * segment's forward results from its input (Chen et al. 2016, arXiv:1604.06174, section 3).
	 * Losses, gradients and running statistics are bitwise the same. 0 keeps all results, as
	 * keep_all does
	 */
	uint32_t recompute;
};

int device_graph_new(struct device_params *params, const struct device_graph_options *options,
		     struct device_graph **ret_graph);
void device_graph_free(struct device_graph *graph); /* accepts NULL; waits for queued work */
/*
 * Returns the first recording error so far, a negative errno, or 0. ret_text, which may be NULL,
 * receives its error string, which lives as long as the graph.
 */
int device_graph_failure(const struct device_graph *graph, const char **ret_text);
/*
 * Chooses kernels, and lays out and allocates the arena. -EINVAL if recording failed; -ENOMEM:
 * error names the largest tensors; -ENOTSUP. A training graph differentiates its loss. Without a
 * loss, backward starts from the gradients that device_value_write(DEVICE_GRAD) sets for the values
 * that no operation consumes. error as in device_open().
 */
int device_graph_plan(struct device_graph *graph, char *error);

struct device_graph_info {
	uint64_t arena_bytes;    /* activations, gradients, workspaces */
	uint64_t unshared_bytes; /* arena_bytes if buffers did not share memory by lifetime */
	/* FLOPs per step of convolutions and matrix products; a multiply-add counts as two */
	double flops_forward;
	double flops_backward;
	/* lower bound of bytes read and written by the planned operations per step; 0 if unknown */
	double bytes_forward, bytes_backward;
	uint32_t layers;
	/* fusion patterns of the chosen level that run unfused because their shape has no plan */
	uint32_t fallbacks;
	/*
	 * a line for each fallback: layer, pattern, replacement; "" if none. Lives as long as the
	 * graph
	 */
	const char *fallback_log;
	/*
	 * a planning failure that does not prevent the graph from running; "" if none. Lives as
	 * long as the device
	 */
	const char *warning;
};
void device_graph_info(const struct device_graph *graph, struct device_graph_info *ret_info);

/* A recorded operation, for plans, profiles and benchmarks. Strings live as long as the graph. */
struct device_layer_info {
	const char *name;
	const char *kind;          /* "conv+norm+add+relu" */
	const char *engine;        /* what the backend chose */
	struct device_shape shape; /* of the result */
	double flops_forward, flops_backward;
	double bytes_forward, bytes_backward; /* as in device_graph_info */
	uint64_t forward_ns, backward_ns; /* summed since planning, with device_options.profile */
	uint64_t runs;
};
/* -ENOENT past the end */
int device_graph_layer(const struct device_graph *graph, uint32_t index,
		       struct device_layer_info *ret_info);

#endif
