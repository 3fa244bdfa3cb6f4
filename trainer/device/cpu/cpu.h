/*
 * The CPU backend: convolutions, matrix products and pools are oneDNN primitives, but for those
 * that are faster here (winograd.c, depthwise.c, pooling.c); everything else is ours (loops.h).
 *
 * device_graph_plan() walks the nodes forward and backward along one schedule (forward of node i is
 * step i, its backward step 2 * nodes - 1 - i), declares every buffer with its lifetime, lays out
 * the arena, and binds primitives to memory. A step then only executes. Activations are NHWC;
 * weights are kept in whatever format the primitive prefers, reordered from the fp32 masters when
 * these have changed. All of it belongs to the thread that uses the device.
 */
#pragma once

#include "trainer/device/arena.h"
#include "trainer/device/backend.h"
#include "trainer/device/buckets.h"
#include "trainer/device/cpu/loops.h"

#include <dnnl.h>

#define CPU_NO_BLOCK UINT32_MAX

struct cpu_device {
	struct device base;
	struct team team;
	struct loops loops;
	enum element element; /* of activations and their gradients */
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	char name[256];
};

/* ---- parameters ---- */

/* Of one task of an update; within one tensor. */
struct cpu_update_chunk {
	const struct device_param *param;
	size_t offset, count; /* elements of the slots that all parameters have */
};

struct cpu_params {
	/* [device_params_elements()] each, or NULL; indexed by enum device_slot */
	float *slots[DEVICE_SLOTS];
	uint64_t weights_version; /* grows with every change of weights, biases, gammas, betas */
	uint64_t buffers_version; /* of running statistics */
	struct device_params_state state;
	bool *fresh; /* [parameters] the next gradient overwrites */
	struct cpu_update_chunk *chunks;
	uint32_t chunk_count;
	double *partial;               /* [chunk_count] */
	double (*norms)[UPDATE_NORMS]; /* [chunk_count], of optimizers by_tensor */
	/* of optimizers by_matrix, the most work first: indices of parameters */
	uint32_t *matrices;
	uint32_t matrix_count;
	float *matrix_scratch; /* [threads][matrix_elements] */
	size_t matrix_elements;
};

/* Of optimizers by_matrix; nothing for others. -ENOMEM. */
int cpu_matrices_allocate(struct device_params *params);
/* Makes each matrix in DEVICE_GRAD orthogonal, in place. -ENOMEM, -EIO: oneDNN failed. */
int cpu_orthogonalize(struct cpu_device *device, struct device_params *params);

int cpu_params_allocate(struct device_params *params);
void cpu_params_release(struct device_params *params);
int cpu_param_write(struct device_param *param, enum device_slot slot, const float *values);
int cpu_param_read(struct device_param *param, enum device_slot slot, float *ret_values);
void cpu_drop_gradients(struct device_params *params);
int cpu_get_state(struct device_params *params, struct device_params_state *ret_state);
int cpu_set_state(struct device_params *params, const struct device_params_state *state);
/* [elements of the parameter] */
float *cpu_param_slot(const struct device_param *param, enum device_slot slot);
/* Adds values[elements] to the gradient, or overwrites it when it is the first since an update. */
void cpu_param_add_gradient(struct device_param *param, const float *values);
/* Whether the next gradient overwrites; asking makes the following ones add. */
bool cpu_param_take_fresh(struct device_param *param);
/*
 * A step up the gradient, `scale` times that; NaN: none, for it is not finite. What was is saved
 * first (perturb.c).
 */
void cpu_perturb(struct cpu_device *device, struct device_params *params, float scale);
/* Undoes it. */
void cpu_restore(struct cpu_device *device, struct device_params *params);
/*
 * The average moves by `share`, which may be 0, and with `returns` values go on from it
 * (average.c).
 */
void cpu_average(struct cpu_device *device, struct device_params *params, enum device_slot slot,
		 float share, bool returns);
/* One update, or perturbation; fills in grad_norm, updated, skipped. */
int cpu_update(struct cpu_device *device, struct device_params *params,
	       const struct device_hyper *hyper, struct device_results *results);

/* ---- graphs ---- */

struct cpu_graph;
struct cpu_node;

/* A primitive with its arguments. */
struct cpu_op {
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t primitive; /* NULL: there is none */
	dnnl_exec_arg_t args[8];
	int count;
};

struct cpu_value {
	enum element element;
	uint32_t block; /* in the arena */
	void *data;     /* [n][h][w][c] of element, once bound */
	bool kept;      /* readable after a step */
	/* [gradient_count] one per consumer that contributes, of the device's element */
	uint32_t *gradient_blocks;
	void **gradients; /* [gradient_count] once bound */
	uint32_t gradient_count;
	uint32_t sum_block; /* keep_all: their sum, before it is worked on in place */
	void *sum;
	/* gradient written by the caller, for results that nothing consumes */
	void *given;
};

/*
 * What follows a convolution, or stands alone as a norm: y = activation(scale * raw + bias +
 * residual), and its gradient.
 */
struct cpu_post {
	struct columns columns;
	size_t rows;
	uint32_t groups;   /* of samples, that the norm has statistics of */
	size_t group_rows; /* of each but the last, which may have fewer */
	enum slope slope;
	void *raw; /* [rows][channels] of the device's element */
	bool stores_dz, reduces;
	void *dz, *dx; /* [rows][channels]; dx == dz where nothing is between them */
	uint32_t dx_block;
	float *scale, *bias, *mean, *deviation; /* [groups][width]; 1 / sqrt(variance + epsilon) */
	float *a, *b, *c, *shift;               /* [width] */
	float *channel;                         /* [channels] temporary */
	double *sum, *second;                   /* [channels] */
	float *memory;                          /* what they all lie in */
};

/*
 * What a kind of node does; any function may be NULL. plan_backward is called last node first, for
 * active nodes.
 */
struct cpu_node_ops {
	int (*plan)(struct cpu_graph *graph, struct cpu_node *node);
	int (*plan_backward)(struct cpu_graph *graph, struct cpu_node *node);
	int (*bind)(struct cpu_graph *graph, struct cpu_node *node);
	int (*forward)(struct cpu_graph *graph, struct cpu_node *node);
	int (*backward)(struct cpu_graph *graph, struct cpu_node *node);
	bool flat;               /* of products: x is seen as [1][1][rows][inputs] */
	dnnl_alg_kind_t pooling; /* of windows */
};

#define CPU_PRIMITIVES 7

struct cpu_node {
	const struct cpu_node_ops *ops;
	struct device_node *node;
	union {
		struct cpu_value *inputs[DEVICE_NODE_INPUTS]; /* as the node's */
		struct {
			struct cpu_value *x, *residual, *gate;
		};
	};
	union {
		struct cpu_value *outputs[DEVICE_NODE_OUTPUTS]; /* likewise */
		struct {
			struct cpu_value *y, *mean, *deviation, *log_sum;
		};
	};
	struct cpu_post post;
	union {
		struct cpu_op primitives[CPU_PRIMITIVES];
		struct {
			struct cpu_op forward, backward_data, backward_weights;
			/* convolutions: of weights from the masters, and of their gradient */
			struct cpu_op reorder_forward, reorder_backward;
			struct cpu_op reorder_gradient, reorder_gradient_add;
		};
	};
	/* convolutions */
	bool direct;          /* the primitive writes y itself */
	bool depthwise;       /* the weights' gradient is ours */
	bool winograd;        /* so is everything, and: */
	bool winograd_learns; /* with the weights' gradient */
	void *weights_forward, *weights_backward;
	/* tokens: positions at their size, the gradient of these, and that of the parameter */
	float *resized, *sums, *own_sums;
	float *folded_bias; /* [K] evaluation: beta - mean * scale, or the bias */
	/* raw: what comes before the post, if not in the memory of y */
	uint32_t raw_block, weights_gradient_block, dx_block, workspace_block;
	/* of the schedule; again_step 0: its forward pass is not run anew */
	uint32_t again_step, backward_step;
	uint64_t weights_version, buffers_version; /* of what is prepared */
	enum device_slot prepared;
	char engine[160];
	double flops_forward, flops_backward;
	uint64_t forward_ns, backward_ns, runs;
};

/* Sums over ranks in the course of a step (ranks.c). */
struct cpu_ranks {
	struct buckets buckets;
	uint32_t started; /* buckets of the step under way */
	unsigned requests[BUCKETS_MAX];
	double samples[2]; /* with a label, and what the loss is divided by */
	double results[3]; /* sum of losses, top1, top5 */
	unsigned samples_request, results_request;
};

struct cpu_graph {
	struct device_graph *graph;
	struct cpu_device *device;
	struct cpu_params *params;
	struct cpu_node *nodes;   /* [node_count] */
	struct cpu_value *values; /* [value_count] */
	struct arena arena;
	void *memory; /* the arena, mapped */
	size_t memory_size;
	uint32_t end; /* of the schedule: a step after all */
	uint64_t scratchpad_size;
	uint32_t scratchpad_block;
	float *fold; /* evaluation: weights times scale, the largest layer's */
	size_t fold_elements;
	enum device_slot weights; /* that the evaluation under way uses */
	void *targets;            /* as device_targets_fill() has them: labels first, [n] */
	bool holds;               /* the step under way leaves running statistics alone */
	bool rehearses;           /* and adds nothing up over ranks */
	bool again;         /* what runs forward has run before: norms have their statistics */
	uint32_t fed_count; /* samples of the batch fed, 0: none */
	struct device_draws draws; /* of that batch */
	uint64_t tickets, steps;
	struct cpu_ranks ranks;
	float *loss_scratch; /* [threads][2][classes] */
	float *losses;       /* [n] of the last step */
	/* of inputs that resample, else NULL: as device_changes_fill() has them; */
	void *changes;
	float *rows; /* [threads][2][w][c] */
	/* of a batch that came with deferred steps, finished; made when the first comes */
	uint8_t *finished;
	size_t finished_size;
	struct device_results results[DEVICE_RESULTS_MAX];
	char *error; /* while planning */
};

#define NODE(kind, name) extern const struct cpu_node_ops cpu_##name##_ops;
DEVICE_NODES(NODE)
#undef NODE

int cpu_graph_plan(struct device_graph *graph, char *error);
void cpu_graph_release(struct device_graph *graph);
void cpu_graph_info(const struct device_graph *graph, struct device_graph_info *info);
void cpu_graph_layer(const struct device_graph *graph, uint32_t index,
		     struct device_layer_info *info);
int cpu_feed(struct device_graph *graph, const struct device_batch *batch, uint64_t *ret_ticket);
int cpu_fed(struct device_graph *graph, uint64_t ticket, bool wait);
int cpu_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step);
int cpu_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
int cpu_rehearse(struct device_graph *graph);
int cpu_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);
int cpu_results(struct device_graph *graph, uint64_t step, bool wait,
		struct device_results *ret_results);
int cpu_logits(struct device_graph *graph, float *ret_logits);
int cpu_losses(struct device_graph *graph, float *ret_losses);
int cpu_value_read(struct device_graph *graph, const struct device_value *value,
		   enum device_slot slot, float *ret_values);
int cpu_value_write(struct device_graph *graph, const struct device_value *value,
		    enum device_slot slot, const float *values);

/* Step of the schedule; that of the node's forward pass is its index. */
uint32_t cpu_backward_step(const struct cpu_graph *graph, const struct cpu_node *node);
/* Of a segment that ends with node `last` and may be computed anew, the first node; else last + 1.
 */
uint32_t cpu_segment_first(const struct cpu_graph *graph, uint32_t last);
bool cpu_training(const struct cpu_graph *graph);
/*
 * Whether the node runs as in evaluation, its norm by running statistics: in training, too, where
 * nothing of it or before it is trained.
 */
bool cpu_infers(const struct cpu_graph *graph, const struct device_node *node);
size_t cpu_value_bytes(const struct device_value *value, enum element element);

/* Batches that are resized, thinned or blended (resample.c). */
struct cpu_resample_job {
	const struct cpu_graph *graph;
	const struct device_batch *batch;
	const float *scale, *bias; /* of bytes, by channel */
};
int cpu_resample_plan(struct cpu_graph *graph);
/* One image of the input, to its place. */
void cpu_resample_image(const struct cpu_resample_job *job, size_t image, unsigned thread,
			char *to);

/* Of a weighted loss: the sum of the class weights of this rank's labels. */
double cpu_loss_weight(const struct cpu_graph *graph);

/* Planning. Blocks are live at the node's forward or backward step; later uses extend them. */
int cpu_add_block(struct cpu_graph *graph, uint64_t bytes, uint32_t step, uint32_t *ret_block);
/* Declares `block` as one consumer's contribution to the gradient of a value. */
void cpu_contribute(struct cpu_graph *graph, struct cpu_value *value, uint32_t block);
/* A block for the gradient of x, live at `step`, and that contribution. */
int cpu_add_gradient(struct cpu_graph *graph, struct cpu_node *node, uint32_t step);
/* Adds contributions to the gradient of y, from `first` on, to the one of number 0. */
void cpu_sum_gradients(struct cpu_graph *graph, struct cpu_node *node, uint32_t first);
/* NULL: the node has none of that number, or it is another's, as the loss's is. */
const struct device_value *cpu_output(const struct cpu_node *node, int index);
/* Binding: where a block lies; NULL for CPU_NO_BLOCK. */
void *cpu_block(const struct cpu_graph *graph, uint32_t block);

/* oneDNN. Descriptions are four-dimensional, dense NHWC. */
int cpu_describe(dnnl_memory_desc_t *ret_desc, struct device_shape shape, dnnl_data_type_t type,
		 dnnl_format_tag_t tag);
dnnl_data_type_t cpu_type(enum element element);
/* So many bytes of scratchpad are needed, by one operation at a time. */
void cpu_need_scratchpad(struct cpu_graph *graph, size_t bytes);
/* Creates the primitive of op->desc and notes its need of scratchpad. */
int cpu_op_create(struct cpu_graph *graph, struct cpu_op *op);
/*
 * The same from what it is to compute. hint: the forward pass, of a gradient; else NULL. avoided:
 * what the names of implementations begin with that are passed over; NULL: none is.
 */
int cpu_op_new(struct cpu_graph *graph, struct cpu_op *op, const_dnnl_op_desc_t desc,
	       const_dnnl_primitive_desc_t hint, const char *avoided);
/* The primitive's own description of an argument (DNNL_ARG_SRC and so on), and its size. */
const dnnl_memory_desc_t *cpu_op_part(const struct cpu_op *op, int argument);
size_t cpu_op_bytes(const struct cpu_op *op, int argument);
#define CPU_ARGUMENTS_MAX 5
struct cpu_binding {
	struct cpu_op *op;
	struct {
		int argument;
		void *data; /* NULL: it is left out */
	} arguments[CPU_ARGUMENTS_MAX];
};
/* Of those primitives that are there, the arguments and the scratchpad. */
int cpu_bind(struct cpu_graph *graph, const struct cpu_binding *bindings, size_t count);
/* Of none: nothing. */
int cpu_op_run(struct cpu_graph *graph, struct cpu_op *op);
void cpu_op_release(struct cpu_op *op);
dnnl_primitive_attr_t cpu_attributes(void);
/* Negative errno of a oneDNN status. */
int cpu_status(dnnl_status_t status);

/* Convolutions (conv_plan.c), forward and backward. */
int cpu_conv_plan(struct cpu_graph *graph, struct cpu_node *node);
int cpu_conv_plan_backward(struct cpu_graph *graph, struct cpu_node *node);
/*
 * Whether the primitive adds a bias: the layer's own, or that of the norm which evaluation folds
 * into it.
 */
bool cpu_conv_has_bias(const struct cpu_graph *graph, const struct device_node *node);

/* The weights' gradient of a depthwise convolution (depthwise.c), from post.dx. */
bool cpu_depthwise_fits(const struct cpu_graph *graph, const struct cpu_node *node);
void cpu_depthwise_plan(struct cpu_graph *graph, struct cpu_node *node);
void cpu_depthwise_run(struct cpu_graph *graph, struct cpu_node *node);

/*
 * Convolutions by Winograd (winograd.c), without primitives. Gradients are taken from post.dx, and
 * weights [K][3][3][C] prepared before either pass. bias: [K], or NULL. -ENOMEM.
 */
bool cpu_winograd_fits(const struct cpu_graph *graph, const struct cpu_node *node);
int cpu_winograd_plan(struct cpu_graph *graph, struct cpu_node *node);
int cpu_winograd_plan_data_gradient(struct cpu_graph *graph, struct cpu_node *node);
void cpu_winograd_plan_weight_gradient(struct cpu_graph *graph, struct cpu_node *node);
void cpu_winograd_prepare(struct cpu_graph *graph, struct cpu_node *node, const float *weights);
void cpu_winograd_forward(struct cpu_graph *graph, struct cpu_node *node, const float *bias);
void cpu_winograd_data_gradient(struct cpu_graph *graph, struct cpu_node *node);
void cpu_winograd_weight_gradient(struct cpu_graph *graph, struct cpu_node *node);

/* The part after a convolution (post.c). `raw` is of the device's element. */
int cpu_post_plan(struct cpu_graph *graph, struct cpu_node *node);
int cpu_post_plan_backward(struct cpu_graph *graph, struct cpu_node *node);
int cpu_post_bind(struct cpu_graph *graph, struct cpu_node *node);
int cpu_post_forward(struct cpu_graph *graph, struct cpu_node *node);
/*
 * Leaves the gradient of raw in post.dx, that of the residual in its contribution, gamma's and
 * beta's or the bias's in the store.
 */
int cpu_post_backward(struct cpu_graph *graph, struct cpu_node *node);
/*
 * gamma / sqrt(variance + epsilon) and beta - mean * that, from the running statistics; [channels]
 * each
 */
void cpu_running_affine(const struct cpu_node *node, enum device_slot slot, float *ret_scale,
			float *ret_bias);

/*
 * Sums over ranks, each in its place of a training step; without other ranks nothing happens.
 * -ECOMM with the device's text on failure. cpu_ranks_begin: the number of samples with a label,
 * and what the loss is divided by; there after cpu_ranks_divisor().
 */
int cpu_ranks_plan(struct cpu_graph *graph);
int cpu_ranks_begin(struct cpu_graph *graph);
int cpu_ranks_divisor(struct cpu_graph *graph, double *ret_divisor, double *ret_samples);
/* Of the statistics of synchronized norms. */
int cpu_ranks_sum(struct cpu_graph *graph, double *values, size_t count);
/* The loss and its counts, of this rank as yet. */
int cpu_ranks_loss(struct cpu_graph *graph, double loss, uint32_t top1, uint32_t top5);
/* Backward has finished the node: starts what that completes. */
int cpu_ranks_passed(struct cpu_graph *graph, uint32_t node);
/* All gradients have been added up. */
int cpu_ranks_gradients(struct cpu_graph *graph);
/* Fills in what cpu_ranks_loss() began. */
int cpu_ranks_results(struct cpu_graph *graph, struct device_results *results);
