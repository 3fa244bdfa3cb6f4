/*
 * The CPU backend: convolutions, matrix products and pools are oneDNN primitives, except where code
 * in this folder is faster (winograd.c, depthwise.c, pooling.c); everything else is local code
 * (loops.h).
 *
 * device_graph_plan() walks the nodes forward and backward along one schedule (forward of node i is
 * step i; graph_schedule() numbers the steps of backward and recomputation), declares every buffer
 * with its lifetime, lays out the arena, and binds primitives to memory. Steps then only execute.
 * Activations are NHWC; weights have the format that the primitive prefers and are reordered from
 * the fp32 masters after these change. All objects belong to the thread that uses the device.
 */
#pragma once

#include "trainer/device/arena.h"
#include "trainer/device/backend.h"
#include "trainer/device/buckets.h"
#include "trainer/device/cpu/loops.h"
#include "trainer/device/cpu/onednn_compat.h"
#include "trainer/device/gathers.h"

#define CPU_NO_BLOCK   UINT32_MAX
#define CPU_NO_REQUEST UINT32_MAX

struct cpu_device {
	struct device base;
	struct thread_pool thread_pool;
	struct loops loops;
	enum element element; /* of activations and their gradients */
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_attr_t attributes; /* cpu_attributes(), for primitives without others */
	char name[256];
};

/* ---- parameters ---- */

/* A task of an update: a range within one tensor. */
struct cpu_update_chunk {
	const struct device_param *param;
	size_t first, count; /* elements of the parameter */
	size_t offset;       /* in slots that are not divided and that all parameters have */
	size_t part;         /* in divided slots (shards.h) */
};

struct cpu_params {
	/* [device_params_elements()] each, or NULL; indexed by enum device_slot */
	float *slots[DEVICE_SLOTS];
	/* incremented by every change of weights, biases, gammas or betas */
	uint64_t weights_version;
	uint64_t buffers_version; /* incremented by every change of running statistics */
	struct device_params_state state;
	bool *fresh;                /* [parameters] true if the next gradient overwrites */
	bool divided[DEVICE_SLOTS]; /* slots with this rank's parts of divided parameters */
	bool sums;                  /* a divided DEVICE_GRAD has sums since the last update */
	/* with a divided DEVICE_GRAD: [parameters] where the running graph writes them, or NULL */
	float **gradients;
	struct cpu_update_chunk *chunks; /* of what this rank updates */
	uint32_t chunk_count;
	double *partial;                      /* [chunk_count] */
	double (*norms)[UPDATE_NORMS];        /* [chunk_count], for by_tensor optimizers */
	double (*tensor_norms)[UPDATE_NORMS]; /* [parameters], sums of norms */
	/* by_matrix optimizers: parameter indices, most work first */
	uint32_t *matrices;
	uint32_t matrix_count;
	float *matrix_scratch; /* [threads][matrix_elements] */
	size_t matrix_elements;
};

/* Allocates buffers of by_matrix optimizers; no-op for others. -ENOMEM. */
int cpu_matrices_allocate(struct device_params *params);
/* Orthogonalises each matrix in DEVICE_GRAD in place. -ENOMEM; -EIO if oneDNN failed. */
int cpu_orthogonalize(struct cpu_device *device, struct device_params *params);

int cpu_params_allocate(struct device_params *params);
void cpu_params_release(struct device_params *params);
int cpu_param_write(struct device_param *param, enum device_slot slot,
		    const struct device_range *part, const float *values);
int cpu_param_read(struct device_param *param, enum device_slot slot,
		   const struct device_range *part, float *ret_values);
void cpu_drop_gradients(struct device_params *params);
/* Before backward: a graph writes whole gradients of what DEVICE_GRAD has parts of. */
void cpu_begin_gradients(struct device_params *params);
int cpu_get_state(struct device_params *params, struct device_params_state *ret_state);
int cpu_set_state(struct device_params *params, const struct device_params_state *state);
/* [elements of the parameter], in a slot that is not divided */
float *cpu_param_slot(const struct device_param *param, enum device_slot slot);
/*
 * Where the running graph adds to the gradient: [elements of the parameter]. NULL if the graph has
 * no gradients.
 */
float *cpu_param_gradient(const struct device_param *param);
/* A chunk in a slot; NULL if the store lacks the slot. */
float *cpu_chunk_slot(const struct cpu_params *cpu, const struct cpu_update_chunk *chunk,
		      enum device_slot slot);
/* Adds values[elements] to the gradient, or overwrites it if it is the first since an update. */
void cpu_param_add_gradient(struct device_param *param, const float *values);
/* True if the next gradient must overwrite; clears the flag, so later ones add. */
bool cpu_param_take_fresh(struct device_param *param);
/*
 * Saves the values, then adds scale * gradient to them. If scale is NaN, since the gradient is not
 * finite, leaves them unchanged (sam.c).
 */
void cpu_perturb(struct cpu_device *device, struct device_params *params, float scale);
/* Restores the saved values. */
void cpu_restore(struct cpu_device *device, struct device_params *params);
/*
 * average += share * (value - average); share may be 0. With `returns`, then sets the values to the
 * average (weight_averages.c).
 */
void cpu_average(struct cpu_device *device, struct device_params *params, enum device_slot slot,
		 float share, bool returns);
/*
 * Sharded stores (shards.c), with -ECOMM and the device's error string set on failure.
 * cpu_shards_gather() sends this rank's part of the values to all others and receives theirs,
 * unless each pass does (gathers.c);
 * cpu_shards_sum() sums over ranks, as of tensors of which ranks have parts. No-ops otherwise.
 */
int cpu_shards_gather(struct device_params *params);
int cpu_shards_sum(struct device_params *params, double *values, size_t count);
int cpu_params_exchange(struct device_params *params, enum device_slot slot);
/* Makes one update or perturbation; sets grad_norm, updated, skipped. */
int cpu_update(struct cpu_device *device, struct device_params *params,
	       const struct device_hyper *hyper, struct device_results *results);

/* ---- graphs ---- */

struct cpu_exec;
struct cpu_node;

/* A oneDNN primitive with its arguments. */
struct cpu_op {
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t primitive; /* NULL if absent */
	dnnl_exec_arg_t args[8];
	int count;
};

struct cpu_value {
	enum element element;
	uint32_t block; /* in the arena */
	void *data;     /* [n][h][w][c] in type `element`; set by binding */
	bool kept;      /* readable after a step */
	/* [gradient_count], one per consumer that contributes, in the device's element type */
	uint32_t *gradient_blocks;
	void **gradients; /* [gradient_count] once bound */
	uint32_t gradient_count;
	/* keep_all: copy of the summed gradient, before backward overwrites it */
	uint32_t sum_block;
	void *sum;
	/* gradient written by the caller, for a result without consumers */
	void *grad_output;
};

/*
 * The part after a convolution, or a separate norm: y = activation(scale * raw + bias + residual),
 * and its gradient.
 */
struct cpu_norm_act {
	struct columns columns;
	size_t rows;
	uint32_t groups;   /* sample groups with separate norm statistics */
	size_t group_rows; /* rows of each group; the last may have fewer */
	enum slope slope;
	void *raw; /* [rows][channels] in the device's element type */
	bool stores_dz, reduces;
	void *dz, *dx; /* [rows][channels]; dx == dz if they are equal */
	uint32_t dx_block;
	/* [groups][width]; deviation = 1 / sqrt(variance + epsilon) */
	float *scale, *bias, *mean, *deviation;
	float *a, *b, *c, *shift; /* [width] */
	float *channel;           /* [channels], scratch */
	double *sum, *second;     /* [channels]; second: of squares, or of dz * (raw - mean) */
	float *memory;            /* one allocation for all of the arrays */
};

/*
 * Implementation of a node kind; any function may be NULL. plan_backward is called in reverse node
 * order, for active nodes.
 */
struct cpu_node_ops {
	int (*plan)(struct cpu_exec *exec, struct cpu_node *node);
	int (*plan_backward)(struct cpu_exec *exec, struct cpu_node *node);
	int (*bind)(struct cpu_exec *exec, struct cpu_node *node);
	int (*forward)(struct cpu_exec *exec, struct cpu_node *node);
	int (*backward)(struct cpu_exec *exec, struct cpu_node *node);
	bool flat;               /* products: treat x as [1][1][rows][inputs] */
	dnnl_alg_kind_t pooling; /* kind of pooling */
};

#define CPU_PRIMITIVES 7

struct cpu_node {
	const struct cpu_node_ops *ops;
	struct device_node *node;
	union {
		struct cpu_value *inputs[DEVICE_NODE_INPUTS]; /* parallel to the node's inputs */
		struct {
			struct cpu_value *x, *residual, *gate;
		};
	};
	union {
		struct cpu_value *outputs[DEVICE_NODE_OUTPUTS]; /* parallel to the node's outputs */
		struct {
			struct cpu_value *y, *mean, *deviation, *log_sum;
		};
	};
	struct cpu_norm_act norm_act;
	union {
		struct cpu_op primitives[CPU_PRIMITIVES];
		struct {
			struct cpu_op forward, backward_data, backward_weights;
			/* convolutions: reorders from the master weights, and of their gradient */
			struct cpu_op reorder_forward, reorder_backward;
			struct cpu_op reorder_gradient, reorder_gradient_add;
		};
	};
	/* convolutions */
	bool direct;          /* the primitive writes y directly */
	bool depthwise;       /* depthwise.c computes the weight gradient */
	bool winograd;        /* winograd.c computes y and the data gradient */
	bool winograd_learns; /* winograd.c also computes the weight gradient */
	void *weights_forward, *weights_backward;
	/* tokens: resized positions, their gradient, and the parameter's gradient */
	float *resized, *sums, *own_sums;
	float *folded_bias; /* [K] in evaluation: beta - mean * scale, or the bias */
	/* arena blocks; raw_block: norm_act.raw, unless it shares y's memory */
	uint32_t raw_block, weights_gradient_block, dx_block, workspace_block;
	/* of weights_forward and weights_backward if the graph gathers weights */
	uint32_t weights_forward_block, weights_backward_block;
	/* schedule steps; recompute_step 0 if the forward pass is not recomputed */
	uint32_t recompute_step, backward_step;
	uint64_t weights_version, buffers_version; /* versions of the prepared weights */
	enum device_slot prepared;
	char engine[160];
	double flops_forward, flops_backward;
	uint64_t forward_ns, backward_ns, runs;
};

/* Sums over ranks during a step (ranks.c). */
struct cpu_ranks {
	struct buckets buckets;
	/* buckets started in the current step, and those of them that were waited for */
	uint32_t started, done;
	unsigned requests[BUCKETS_MAX]; /* CPU_NO_REQUEST for a bucket that is not summed yet */
	/* with a divided DEVICE_GRAD: where backward writes a bucket's gradients; else NULL */
	float *memory[BUCKETS_MAX];
	uint32_t blocks[BUCKETS_MAX]; /* memory's, in the arena */
	float **gradients;            /* [parameters] as in struct cpu_params, or NULL */
	double samples[2];            /* labelled samples, and the loss divisor */
	double results[3];            /* sum of losses, top1, top5 */
	unsigned samples_request, results_request;
};

/* Gathers of weights during a pass (gathers.c). */
struct cpu_gathers {
	struct gathers plan; /* empty if nothing is gathered */
	uint32_t started, done;
	unsigned requests[GATHERS_MAX];
	uint32_t blocks[DEVICE_SHARD_BUCKETS_MAX]; /* of the arena, by bucket */
	float **weights; /* [parameters] in these blocks; NULL if nothing is gathered */
};

/* What the backend executes for a planned device_graph. */
struct cpu_exec {
	struct device_graph *graph;
	struct cpu_device *device;
	struct cpu_params *params;
	struct cpu_node *nodes;   /* [node_count] */
	struct cpu_value *values; /* [value_count] */
	struct arena arena;
	void *memory; /* the arena, mapped */
	size_t memory_size;
	uint32_t end; /* last schedule step + 1 */
	uint64_t scratchpad_size;
	uint32_t scratchpad_block;
	float *fold; /* evaluation: folded weights (times scale) of one layer at a time */
	size_t fold_elements;
	enum device_slot weights; /* slot that the evaluation in progress reads */
	void *targets;            /* filled by device_targets_fill(): starts with the labels [n] */
	bool keeps_statistics;    /* the step in progress leaves running statistics unchanged */
	bool warms_up;            /* the step in progress is a warm-up, without sums over ranks */
	bool updates;             /* the step in progress ends in an update */
	/* the forward pass in progress is a recomputation: norms keep their statistics */
	bool recomputing;
	uint32_t fed_count;        /* samples of the uploaded batch; 0 if none */
	struct device_draws draws; /* of the uploaded batch */
	uint64_t tickets, steps;
	struct cpu_ranks ranks;
	struct cpu_gathers gathers;
	float *loss_scratch; /* [threads][LOSS_SCRATCH][classes] */
	float *losses;       /* [n] of the last step */
	/* with a resampling input, else NULL; layout of device_changes_fill() */
	void *changes;
	float *rows; /* [threads][2][w][c], scratch for resampling */
	/* images after deferred operations; allocated with the first such batch */
	uint8_t *finished;
	size_t finished_size;
	struct device_results results[DEVICE_RESULTS_MAX];
	char *error; /* valid while planning */
};

#define NODE(kind, name) extern const struct cpu_node_ops cpu_##name##_ops;
DEVICE_NODES(NODE)
#undef NODE

int cpu_graph_plan(struct device_graph *graph, char *error);
void cpu_graph_release(struct device_graph *graph);
void cpu_graph_info(const struct device_graph *graph, struct device_graph_info *info);
void cpu_graph_layer(const struct device_graph *graph, uint32_t index,
		     struct device_layer_info *info);
int cpu_upload(struct device_graph *graph, const struct device_batch *batch, uint64_t *ret_ticket);
int cpu_upload_done(struct device_graph *graph, uint64_t ticket, bool wait);
int cpu_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step);
int cpu_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
int cpu_warmup(struct device_graph *graph);
int cpu_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);
int cpu_results(struct device_graph *graph, uint64_t step, bool wait,
		struct device_results *ret_results);
int cpu_logits(struct device_graph *graph, float *ret_logits);
int cpu_losses(struct device_graph *graph, float *ret_losses);
int cpu_value_read(struct device_graph *graph, const struct device_value *value,
		   enum device_slot slot, float *ret_values);
int cpu_value_write(struct device_graph *graph, const struct device_value *value,
		    enum device_slot slot, const float *values);

/* Schedule step of a node's backward; its forward step is its index. */
uint32_t cpu_backward_step(const struct cpu_exec *exec, const struct cpu_node *node);
/* First node of the recomputed segment that ends with node `last`; last + 1 if there is none. */
uint32_t cpu_segment_first(const struct cpu_exec *exec, uint32_t last);
bool cpu_training(const struct cpu_exec *exec);
/*
 * True if the node runs as in evaluation, its norm by running statistics: also in training, if
 * neither it nor anything before it is trained.
 */
bool cpu_infers(const struct cpu_exec *exec, const struct device_node *node);
size_t cpu_value_bytes(const struct device_value *value, enum element element);

/* Resizing and blending of batches, and selection of rows and columns (resample.c). */
struct cpu_resample_job {
	const struct cpu_exec *exec;
	const struct device_batch *batch;
	const float *scale, *bias; /* per channel, to normalise u8 */
};
int cpu_resample_plan(struct cpu_exec *exec);
/* Writes one image of the input to `to`. */
void cpu_resample_image(const struct cpu_resample_job *job, size_t image, unsigned thread,
			char *to);

/* With a weighted loss: the sum of the class weights of this rank's labels. */
double cpu_loss_weight(const struct cpu_exec *exec);

/*
 * Planning. A block's lifetime starts with one schedule step, its node's forward or backward step;
 * later uses extend it (arena_extend()).
 */
int cpu_add_block(struct cpu_exec *exec, uint64_t bytes, uint32_t step, uint32_t *ret_block);
/* Declares `block` as one consumer's contribution to the gradient of a value. */
void cpu_contribute(struct cpu_exec *exec, struct cpu_value *value, uint32_t block);
/* Adds a block for the gradient of x, live at `step`, and declares it as a contribution. */
int cpu_plan_gradient(struct cpu_exec *exec, struct cpu_node *node, uint32_t step);
/* Adds contributions from `first` on to contribution 0 of the gradient of y. */
void cpu_sum_gradients(struct cpu_exec *exec, struct cpu_node *node, uint32_t first);
/* NULL if the node has no such output or another node owns it, as for the loss. */
const struct device_value *cpu_output(const struct cpu_node *node, int index);
/* Binding: address of a block; NULL for CPU_NO_BLOCK. */
void *cpu_block(const struct cpu_exec *exec, uint32_t block);

/* oneDNN. Tensors are four-dimensional, activations dense NHWC. */
struct onednn_tensor cpu_describe(struct device_shape shape, dnnl_data_type_t type,
				  dnnl_format_tag_t tag);
struct onednn_window cpu_window(const struct device_node *node);
dnnl_data_type_t cpu_type(enum element element);
/* Reserves scratchpad, which operations use one at a time. */
void cpu_need_scratchpad(struct cpu_exec *exec, size_t bytes);
/* Creates the primitive of op->desc and reserves its scratchpad. */
int cpu_op_create(struct cpu_exec *exec, struct cpu_op *op);
#define CPU_ARGUMENTS_MAX 5
struct cpu_binding {
	struct cpu_op *op;
	struct {
		int argument;
		void *data; /* NULL to omit the argument */
	} arguments[CPU_ARGUMENTS_MAX];
};
/* Sets arguments and scratchpad of the primitives that exist. */
int cpu_bind(struct cpu_exec *exec, const struct cpu_binding *bindings, size_t count);
/* Runs the primitive; no-op if absent. */
int cpu_op_run(struct cpu_exec *exec, struct cpu_op *op);
void cpu_op_release(struct cpu_op *op);
/* Attributes of primitives whose scratchpad we reserve; NULL if there is no memory. */
dnnl_primitive_attr_t cpu_attributes(void);
/* Translates a oneDNN status to a negative errno. */
int cpu_status(dnnl_status_t status);

/* Convolutions (conv_plan.c), forward and backward. */
int cpu_conv_plan(struct cpu_exec *exec, struct cpu_node *node);
int cpu_conv_plan_backward(struct cpu_exec *exec, struct cpu_node *node);
/* True if the primitive adds a bias: the layer's, or in evaluation that of the folded norm. */
bool cpu_conv_has_bias(const struct cpu_exec *exec, const struct device_node *node);

/* Weight gradient of a depthwise convolution (depthwise.c), from norm_act.dx. */
bool cpu_depthwise_fits(const struct cpu_exec *exec, const struct cpu_node *node);
void cpu_depthwise_plan(struct cpu_exec *exec, struct cpu_node *node);
void cpu_depthwise_run(struct cpu_exec *exec, struct cpu_node *node);

/*
 * Winograd convolutions (winograd.c), without primitives. Gradients are computed from norm_act.dx.
 * Call cpu_winograd_prepare() with weights [K][3][3][C] before forward, and
 * cpu_winograd_prepare_backward() before the gradient of the data. bias: [K], or NULL. -ENOMEM.
 */
bool cpu_winograd_fits(const struct cpu_exec *exec, const struct cpu_node *node);
int cpu_winograd_plan(struct cpu_exec *exec, struct cpu_node *node);
int cpu_winograd_plan_data_gradient(struct cpu_exec *exec, struct cpu_node *node);
void cpu_winograd_plan_weight_gradient(struct cpu_exec *exec, struct cpu_node *node);
void cpu_winograd_prepare(struct cpu_exec *exec, struct cpu_node *node, const float *weights);
void cpu_winograd_prepare_backward(struct cpu_exec *exec, struct cpu_node *node,
				   const float *weights);
void cpu_winograd_forward(struct cpu_exec *exec, struct cpu_node *node, const float *bias);
void cpu_winograd_data_gradient(struct cpu_exec *exec, struct cpu_node *node);
void cpu_winograd_weight_gradient(struct cpu_exec *exec, struct cpu_node *node);

/* The norm and activation part (norm_act.c). `raw` has the device's element. */
int cpu_norm_act_plan(struct cpu_exec *exec, struct cpu_node *node);
int cpu_norm_act_plan_backward(struct cpu_exec *exec, struct cpu_node *node);
int cpu_norm_act_bind(struct cpu_exec *exec, struct cpu_node *node);
int cpu_norm_act_forward(struct cpu_exec *exec, struct cpu_node *node);
/*
 * Stores the gradient of raw in norm_act.dx, the residual's gradient in its block, and the
 * gradients of gamma and beta, or of the bias, in the parameter store.
 */
int cpu_norm_act_backward(struct cpu_exec *exec, struct cpu_node *node);
/*
 * scale = gamma / sqrt(variance + epsilon) and bias = beta - mean * scale, from the running
 * statistics; [channels] each.
 */
void cpu_running_affine(const struct cpu_node *node, enum device_slot slot, float *ret_scale,
			float *ret_bias);

/*
 * Sums over ranks during a training step, in this order; no-ops with a single rank. -ECOMM with the
 * device's error string set. cpu_ranks_begin() sums the number of labelled samples and the loss
 * divisor; cpu_ranks_divisor() returns them.
 */
int cpu_ranks_plan(struct cpu_exec *exec);
/* After the arena is mapped. */
int cpu_ranks_bind(struct cpu_exec *exec);
void cpu_ranks_release(struct cpu_exec *exec);
int cpu_ranks_begin(struct cpu_exec *exec);
int cpu_ranks_divisor(struct cpu_exec *exec, double *ret_divisor, double *ret_samples);
/* Sums statistics of synchronized norms. */
int cpu_ranks_sum(struct cpu_exec *exec, double *values, size_t count);
/* Starts to sum the loss and its counts. */
int cpu_ranks_loss(struct cpu_exec *exec, double loss, uint32_t top1, uint32_t top5);
/* Before backward. */
void cpu_ranks_begin_backward(struct cpu_exec *exec);
/*
 * After a node's backward: starts the sums of the buckets that it completes, before an update; with
 * a divided DEVICE_GRAD those of weights after each backward.
 */
int cpu_ranks_passed(struct cpu_exec *exec, uint32_t node);
/* Waits for all gradient sums. */
int cpu_ranks_gradients(struct cpu_exec *exec);
/*
 * Gathers of a store whose ranks keep parts of the weights; no-ops for others. Plan them after the
 * nodes and their recomputation. cpu_gathers_begin() precedes a pass, and cpu_gathers_reach() each
 * of its steps: weights that the step reads are there when it returns. -ECOMM with the device's
 * error string set.
 */
int cpu_gathers_plan(struct cpu_exec *exec);
/* After the arena is mapped. */
int cpu_gathers_bind(struct cpu_exec *exec);
void cpu_gathers_release(struct cpu_exec *exec);
void cpu_gathers_begin(struct cpu_exec *exec);
int cpu_gathers_reach(struct cpu_exec *exec, uint32_t step);
/* True if steps make weights in the format of a primitive anew each time. */
bool cpu_gathers(const struct cpu_exec *exec);
/* A weight's values [elements] in the slot; if they are gathered, while a step reads them. */
float *cpu_weight(const struct cpu_exec *exec, const struct device_param *weight,
		  enum device_slot slot);
/*
 * Plans memory for weights in the format of a primitive, which `step` makes and reads: a block of
 * the arena if they are gathered, else memory of the node, zeroed. -ENOMEM.
 */
int cpu_plan_weights(struct cpu_exec *exec, size_t bytes, uint32_t step, uint32_t *ret_block,
		     void **ret_weights);

/*
 * Sums data over the group that the parameters are divided over, in place; it has the value's
 * shape. Does nothing in a warm-up. cpu_group_plan() reserves scratchpad for the sums of a node.
 */
void cpu_group_plan(struct cpu_exec *exec, const struct device_node *node);
int cpu_group_sum(struct cpu_exec *exec, void *data, const struct device_value *value,
		  enum element element);
/* Sums one number over that group, for the parameters that are split. */
int cpu_group_sum_split(struct cpu_device *device, const struct device_params *params,
			double *value);
/* Fills in the sums that cpu_ranks_loss() started. */
int cpu_ranks_results(struct cpu_exec *exec, struct device_results *results);
