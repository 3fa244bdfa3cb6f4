/*
 * Interface between device.h and the backends: shared structures and the backend's function table.
 * device.c, params.c, record.c and op_defs.c validate arguments and record, so backends get only
 * valid arguments.
 *
 * A backend attaches its state to an object through the `backend` pointer, created in
 * params_allocate() and graph_plan() and freed in params_release() and graph_release(). All objects
 * belong to the thread that uses the device.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/device/comm/comm.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/ops.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

struct device_range {
	size_t first, count;
};

struct device_ops {
	void (*close)(struct device *device);
	int (*synchronize)(struct device *device);
	/* as in steps.h; NULL if batches are read in place */
	int (*register_host)(struct device *device, const void *memory, size_t bytes,
			     bool writable);
	void (*unregister_host)(struct device *device, const void *memory);
	int (*params_allocate)(struct device_params *params);
	void (*params_release)(struct device_params *params);
	/*
	 * the part of the parameter that this rank has in the slot: values + part->first is the
	 * part's first element
	 */
	int (*param_write)(struct device_param *param, enum device_slot slot,
			   const struct device_range *part, const float *values);
	int (*param_read)(struct device_param *param, enum device_slot slot,
			  const struct device_range *part, float *ret_values);
	int (*params_exchange)(struct device_params *params, enum device_slot slot);
	void (*drop_gradients)(struct device_params *params);
	int (*get_state)(struct device_params *params, struct device_params_state *ret_state);
	int (*set_state)(struct device_params *params, const struct device_params_state *state);
	int (*graph_plan)(struct device_graph *graph, char *error);
	void (*graph_release)(struct device_graph *graph);
	void (*graph_info)(const struct device_graph *graph, struct device_graph_info *info);
	void (*graph_layer)(const struct device_graph *graph, uint32_t index,
			    struct device_layer_info *info);
	int (*upload)(struct device_graph *graph, const struct device_batch *batch,
		      uint64_t *ret_ticket);
	int (*upload_done)(struct device_graph *graph, uint64_t ticket, bool wait);
	int (*step)(struct device_graph *graph, const struct device_hyper *hyper,
		    uint64_t *ret_step);
	int (*forward)(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
	int (*warmup)(struct device_graph *graph);
	int (*evaluate)(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);
	int (*results)(struct device_graph *graph, uint64_t step, bool wait,
		       struct device_results *ret_results);
	int (*logits)(struct device_graph *graph, float *ret_logits);
	/* as in steps.h; NULL if device memory is host memory */
	int (*logits_keep)(struct device_graph *graph, float *memory);
	int (*memory_new)(struct device *device, size_t count, float **ret_memory);
	void (*memory_free)(struct device *device, float *memory);
	int (*memory_read)(struct device *device, const float *memory, size_t count,
			   float *ret_values);
	int (*losses)(struct device_graph *graph, float *ret_losses);
	int (*value_read)(struct device_graph *graph, const struct device_value *value,
			  enum device_slot slot, float *ret_values);
	int (*value_write)(struct device_graph *graph, const struct device_value *value,
			   enum device_slot slot, const float *values);
};

struct device {
	const struct device_ops *ops;
	struct device_options options;
	struct device_info info;
	size_t bucket_elements; /* limit on the length of buckets (buckets.h) */
	/* weights are read from copies in another precision: a sharded store divides the values */
	bool copies_weights;
	device_watch *watch; /* or NULL */
	void *watch_of;
	char error[DEVICE_ERROR_MAX];
};

struct device_param {
	struct device_params *store;
	struct device_param_spec spec; /* name points to `name` */
	char name[DEVICE_NAME_MAX];
	size_t index;       /* in the store */
	uint32_t shape[4];  /* of the part that this rank has: spec.shape unless it is split */
	size_t elements;    /* of that part */
	size_t offset;      /* in elements, in slots that all parameters have */
	size_t rest_offset; /* in elements, in slots that matrices lack (device_param_offset()) */
};

#define DEVICE_SHARD_BUCKETS_MAX 49 /* all but one of a graph's buckets (buckets.h) */

/* How a store is divided among ranks (shards.h), in elements. */
struct device_shards {
	unsigned rank, world; /* world 1 if the store is not sharded */
	struct device_range buckets[DEVICE_SHARD_BUCKETS_MAX]; /* in a slot that is not divided */
	uint32_t count;
	size_t divided;      /* all buckets; where the whole parameters begin */
	size_t summed;       /* where the buffers begin, which have no gradient */
	size_t elements;     /* of a slot that is not divided */
	bool divides_values; /* also DEVICE_VALUE; else every rank has all values */
	bool gathers;        /* operations read weights that the graph gathers (gathers.h) */
};

struct device_params {
	struct device *device;
	struct device_param **items; /* [count] */
	size_t count, capacity;
	struct comm *group; /* ranks that the parameters are divided over; NULL for none */
	bool leads;         /* rank 0: the others are in device_params_follow() */
	bool allocated;
	bool has_optimizer;
	struct device_optimizer_spec optimizer;
	bool perturbed; /* a step perturbed the values; the next update restores them */
	struct device_shards shards;
	uint64_t copies_bytes; /* of a backend's copies of values, besides the slots */
	void *backend;
};

/* Elements that a parameter takes in a slot: each starts on a new cache line. */
size_t device_param_room(const struct device_param *param);
/* Elements per output of a weight; 0 if the parameter is not a weight. */
uint32_t device_param_row(const struct device_param *param);
/*
 * Rows of the matrix [rows][device_param_row()] that a by_matrix optimizer orthogonalises
 * (optimizers/updates.h); 0 if the parameter is not treated as a matrix.
 */
uint32_t device_param_matrix(const struct device_param *param);
/* True if the store has the slot; buffers may lack it. */
bool device_params_have(const struct device_params *params, enum device_slot slot);
/*
 * True if the parameter occupies memory in a slot of the store. Parameters treated as matrices have
 * only the first DEVICE_MATRIX_STATES state slots.
 */
bool device_param_takes(const struct device_param *param, enum device_slot slot);
/* Offset in elements of the parameter in a slot in which it occupies memory. */
size_t device_param_offset(const struct device_param *param, enum device_slot slot);
/* Number of elements that this rank has of a slot, which the store must have. */
size_t device_params_elements(const struct device_params *params, enum device_slot slot);

/* True if this rank has only a shard of the parameter in the slot (shards.h). */
bool device_param_is_sharded(const struct device_param *param, enum device_slot slot);
/* True if this rank has only a part of the tensor. */
bool device_param_is_split(const struct device_param *param);
/*
 * Number of blocks of a whole tensor of which each rank of the group has an equal run, in order of
 * ranks.
 */
size_t device_param_split_blocks(const struct device_param *param);
/* True if the parameter gets a gradient and updates; false for NULL. */
bool device_param_trains(const struct device_param *param);

/*
 * Node kinds, with the name that the backends' tables use (cpu_NAME_ops). op_defs.c lists each
 * kind's required and optional operands.
 */
/* clang-format off */
#define DEVICE_NODES(X)                                                                            \
	X(INPUT, input)                                                                            \
	X(CONV, conv)                                                                              \
	X(LINEAR, linear) /* a 1 x 1 convolution too: x is seen as rows of the weight's inputs */  \
	X(NORM, norm)                                                                              \
	X(LAYER_NORM, layer_norm)                                                                  \
	X(ATTENTION, attention)                                                                    \
	X(POS_EMBED, pos_embed)                                                                    \
	X(SELECT_TOKEN, select_token)                                                              \
	X(SCALE_ADD, scale_add)                                                                    \
	X(MAX_POOL, max_pool)                                                                      \
	X(AVERAGE_POOL, average_pool)                                                              \
	X(GLOBAL_AVERAGE_POOL, global_average_pool)                                                \
	X(GLOBAL_MAX_POOL, global_max_pool)                                                        \
	X(LOSS, loss)
/* clang-format on */

enum device_node_kind {
#define NODE(kind, name) DEVICE_NODE_##kind,
	DEVICE_NODES(NODE) DEVICE_NODE_KINDS
#undef NODE
};

#define DEVICE_NODE_INPUTS  3
#define DEVICE_NODE_PARAMS  8
#define DEVICE_NODE_OUTPUTS 4

/*
 * Operands are arrays for generic code and have names for code that knows the kind. Absent operands
 * are NULL.
 */
struct device_node {
	enum device_node_kind kind;
	uint32_t index; /* recording order, which is also the order of forward */
	char name[DEVICE_NAME_MAX];
	char kind_name[24]; /* "conv+norm+add+relu" */
	union {
		struct device_value *inputs[DEVICE_NODE_INPUTS];
		struct {
			struct device_value *x, *residual, *gate;
		};
	};
	union {
		struct device_param *params[DEVICE_NODE_PARAMS];
		struct {
			struct device_param *weight, *bias;
			struct device_param *gamma, *beta, *running_mean, *running_var;
			struct device_param *positions, *class_token;
		};
	};
	union {
		struct device_value *outputs[DEVICE_NODE_OUTPUTS];
		struct {
			struct device_value *y; /* for the loss, y is x */
			/* saved by layer norms: one number per position */
			struct device_value *mean, *deviation;
			/* saved: [n][heads][h][w], log-sum-exp of each query's scores */
			struct device_value *log_sum;
		};
	};
	/* planned: true if an output's gradient is computed, so the node runs in backward */
	bool backward;
	uint32_t segment; /* checkpointed segment of device_graph_options.recompute; else 0 */
	bool has_norm;    /* gamma, beta, running_mean and running_var are set */
	struct {
		float epsilon, momentum;
		bool synchronized;
		bool fixed;     /* normalise by frozen running statistics in training too */
		uint32_t ghost; /* 0 unless ghost batch normalization applies */
	} norm;
	enum device_activation activation;
	/* further attributes, by kind */
	union {
		struct {
			uint32_t window_h, window_w, stride, pad;
			uint32_t pad_extra;
			uint32_t groups;  /* of convolutions and linear layers */
			bool by_position; /* linear layers */
		};                        /* convolutions, linear layers and pools */
		uint32_t grid_side; /* side of the position embeddings; 0 if they have x's size */
		uint32_t position;  /* for DEVICE_NODE_SELECT_TOKEN */
		struct {
			/* probabilities; 0 in evaluation */
			float drop_path, dropout;
			uint32_t layer; /* dropout_key()'s layer, derived from the name */
		} scale;
		struct device_input_spec input;
		struct {
			uint32_t heads;
			float dropout;  /* 0 in evaluation */
			uint32_t layer; /* dropout_key()'s layer, derived from the name */
			uint32_t first; /* number in the whole layer of the first head */
		} attention;
		struct device_loss_spec loss;
	};
};

struct device_value {
	struct device_graph *graph;
	uint32_t index;
	struct device_shape shape;
	struct device_node *producer;
	uint32_t consumers; /* operations that read it, including the loss */
	/*
	 * fp32 numbers that the producer's forward pass saves for its backward pass: no other
	 * operation reads them, they have no gradient and do not exist in evaluation
	 */
	bool saved;
	/* a trained parameter or an input with `gradient` is upstream, or it is such an input */
	bool needs_gradient;
	/* planned: its gradient is computed, since the differentiated result depends on it */
	bool active;
	uint32_t uses; /* planned: number of contributions to its gradient */
};

struct device_graph {
	struct device_params *params;
	struct device *device;
	struct device_graph_options options;
	struct device_node **nodes; /* [node_count] */
	uint32_t node_count, node_capacity;
	struct device_value **values; /* [value_count] */
	uint32_t value_count, value_capacity;
	uint32_t blocks;                  /* number of blocks begun so far */
	struct device_node *input, *loss; /* or NULL */
	float *class_weights;             /* the loss's, or NULL */
	int failure;                      /* first recording error, or 0 */
	char error[DEVICE_ERROR_MAX];
	bool planned;
	void *backend;
};

/*
 * For linear layers: true if each rank of the group computes a part of the sums of the results, or
 * of the gradient of x.
 */
bool device_node_sums_result(const struct device_node *node);
bool device_node_sums_gradient(const struct device_node *node);
/*
 * True if this rank adds the bias before the sum of the results over the group, so that it is added
 * once.
 */
bool device_node_adds_bias(const struct device_node *node);
/*
 * True if the caller provides the gradient: the graph has no loss and nothing consumes the value.
 */
bool device_value_grad_is_input(const struct device_value *value);

/* Number of the node's inputs that are this value. */
unsigned device_node_reads(const struct device_node *node, const struct device_value *value);

/*
 * True if backward may recompute the node's results. False in the last segment, whose results are
 * needed immediately, and for the input, where the first segment starts.
 */
bool device_node_recomputes(const struct device_graph *graph, const struct device_node *node);

/*
 * FLOPs of the node's forward matrix product; the data gradient and the weight gradient cost as
 * many each. For attention, FLOPs of both products; their gradients cost twice as many, without
 * recomputation of the scores. 0 if the node has no matrix product.
 */
double device_node_flops(const struct device_node *node);

/*
 * True for plain softmax cross-entropy with one label per sample, without class weights or teacher;
 * backends have a fast path for it.
 */
bool device_loss_is_regression(const struct device_loss_spec *loss);
bool device_loss_is_plain(const struct device_loss_spec *loss);
/* True if the loss sum is divided by the sum of the labels' class weights. */
bool device_loss_is_weighted(const struct device_loss_spec *loss);
/* A step's targets: arrays over the graph's n samples in one allocation of 4-byte words. */
struct device_target_arrays {
	int32_t *labels;  /* [n]; outside 0..classes-1 for none */
	int32_t *labels2; /* [n] with two labels, else NULL */
	float *shares;    /* [n] with two labels: weight of the first one, at least 0.5 */
	float *targets;   /* [n][classes] with dense targets, else NULL */
	float *teacher;   /* [n][classes] with a teacher, else NULL */
};
size_t device_target_words(const struct device_graph *graph);
/* Words before the teacher's logits, which are last in the allocation. */
size_t device_target_own_words(const struct device_graph *graph);
/* Pointers into the allocation; all NULL if words is NULL. */
struct device_target_arrays device_target_arrays(const struct device_graph *graph, void *words);
/*
 * Fills the arrays, except a teacher's logits kept on the device. Samples beyond the batch get no
 * label and zeros.
 */
void device_targets_fill(const struct device_graph *graph, const struct device_batch *batch,
			 void *ret_words);

struct pos_embed_size; /* pos_embed.h */
/* For tokens: true if the position embeddings must be resized to x's size. */
bool device_node_resizes(const struct device_node *node, struct pos_embed_size *ret_size);

/* Number of sample groups with separate norm statistics; 1 without ghost batch normalization. */
uint32_t device_node_groups(const struct device_node *node, uint32_t *ret_each);

/* Elements of a shape. */
uint64_t device_shape_elements(struct device_shape shape);

/* Number of ranks that share each batch; 1 for a single rank. */
unsigned device_world(const struct device *device);

/* Start time of a span for device_watch; 0 if none is set. */
uint64_t device_span_begin(const struct device *device);
/* Reports a span that ends now; no-op if begin_ns is 0. */
void device_span_end(const struct device *device, const char *name, const char *kind,
		     const char *pass, uint64_t begin_ns);

/* Sets the device's error string and returns result. */
#define device_fail(device, result, ...)                                                           \
	sentence_fail((device)->error, DEVICE_ERROR_MAX, (result), __VA_ARGS__)

/* Open the backends, which fill in info and ops. */
int device_cpu_open(const struct device_options *options, struct device **ret_device, char *error);
int device_cuda_open(const struct device_options *options, struct device **ret_device, char *error);
