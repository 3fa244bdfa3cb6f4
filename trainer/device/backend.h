/*
 * Between device.h and the backends: the structures that both fill in, and the table of functions
 * that a backend provides. device.c, params.c, graph.c and kinds.c check arguments and record;
 * a backend gets valid ones only.
 *
 * Backends extend an object by what its `backend` pointer leads to, made in params_allocate() and
 * graph_plan() and released in params_release() and graph_release(). All of it belongs to the
 * thread that uses the device.
 */
#pragma once

#include "format/base/text/sentence.h"
#include "trainer/device/comm/comm.h"
#include "trainer/device/device.h"

struct device_ops {
	void (*close)(struct device *device);
	int (*synchronize)(struct device *device);
	/* as device.h says; NULL where a batch is read in place */
	int (*register_host)(struct device *device, const void *memory, size_t bytes,
			     bool writable);
	void (*unregister_host)(struct device *device, const void *memory);
	int (*params_allocate)(struct device_params *params);
	void (*params_release)(struct device_params *params);
	int (*param_write)(struct device_param *param, enum device_slot slot, const float *values);
	int (*param_read)(struct device_param *param, enum device_slot slot, float *ret_values);
	void (*drop_gradients)(struct device_params *params);
	int (*get_state)(struct device_params *params, struct device_params_state *ret_state);
	int (*set_state)(struct device_params *params, const struct device_params_state *state);
	int (*graph_plan)(struct device_graph *graph, char *error);
	void (*graph_release)(struct device_graph *graph);
	void (*graph_info)(const struct device_graph *graph, struct device_graph_info *info);
	void (*graph_layer)(const struct device_graph *graph, uint32_t index,
			    struct device_layer_info *info);
	int (*feed)(struct device_graph *graph, const struct device_batch *batch,
		    uint64_t *ret_ticket);
	int (*fed)(struct device_graph *graph, uint64_t ticket, bool wait);
	int (*step)(struct device_graph *graph, const struct device_hyper *hyper,
		    uint64_t *ret_step);
	int (*forward)(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
	int (*rehearse)(struct device_graph *graph);
	int (*evaluate)(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);
	int (*results)(struct device_graph *graph, uint64_t step, bool wait,
		       struct device_results *ret_results);
	int (*logits)(struct device_graph *graph, float *ret_logits);
	/* as device.h says; NULL where the device's memory is the host's */
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
	device_watch *watch; /* or NULL */
	void *watch_of;
	char error[DEVICE_ERROR_MAX];
};

struct device_param {
	struct device_params *store;
	struct device_param_spec spec; /* name points to `name` */
	char name[DEVICE_NAME_MAX];
	size_t index;       /* in the store */
	size_t elements;    /* product of the shape */
	size_t offset;      /* in elements, in the backend's contiguous slots */
	size_t rest_offset; /* the same in the slots that matrices lack (device_param_offset()) */
};

struct device_params {
	struct device *device;
	struct device_param **items; /* [count] */
	size_t count, capacity;
	bool allocated;
	bool has_optimizer;
	struct device_optimizer_spec optimizer;
	bool perturbed; /* values are, by a step before; the next update restores them */
	void *backend;
};

/* Elements that one of a weight's outputs has; 0: the parameter is no weight. */
uint32_t device_param_row(const struct device_param *param);
/*
 * Rows of the matrix, [rows][device_param_row()], that an optimizer by_matrix makes of its gradient
 * (optimizers/updates.h); 0: it is none.
 */
uint32_t device_param_matrix(const struct device_param *param);
/* Whether a store has the slot, for all that it holds or but for its buffers. */
bool device_params_have(const struct device_params *params, enum device_slot slot);
/*
 * Whether a slot that the store has takes memory for the parameter: state beyond
 * DEVICE_MATRIX_STATES has none for matrices.
 */
bool device_param_takes(const struct device_param *param, enum device_slot slot);
/* Where the parameter, which takes memory there, begins in a slot; in elements. */
size_t device_param_offset(const struct device_param *param, enum device_slot slot);
/* Of a slot that the store has. */
size_t device_params_elements(const struct device_params *params, enum device_slot slot);

/* Whether a gradient is computed for it and updates follow that; of NULL not. */
bool device_param_trains(const struct device_param *param);

/*
 * Kinds of nodes, with the name that backends' tables of them go by (cpu_NAME_ops). What each takes
 * and may lack says its row in kinds.c.
 */
/* clang-format off */
#define DEVICE_NODES(X)                                                                            \
	X(INPUT, input)                                                                            \
	X(CONV, conv)                                                                              \
	X(LINEAR, linear) /* a 1 x 1 convolution too: x is seen as rows of the weight's inputs */  \
	X(NORM, norm)                                                                              \
	X(LAYER_NORM, layer_norm)                                                                  \
	X(ATTENTION, attention)                                                                    \
	X(TOKENS, tokens)                                                                          \
	X(TAKE, take)                                                                              \
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
 * Operands are arrays to whoever walks all of them and have names by their role to whoever knows
 * the kind. What a node does not take is NULL.
 */
struct device_node {
	enum device_node_kind kind;
	uint32_t index; /* in the graph's order of recording, which is the order of forward */
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
			struct device_value *y; /* the loss's is its x */
			/* saved: a number for each row of channels */
			struct device_value *mean, *deviation;
			/* saved: [n][heads][h][w], of the exponentials of a query's scores */
			struct device_value *log_sum;
		};
	};
	bool backward; /* planned: takes part in it, since the gradient of an output is computed */
	uint32_t segment; /* of those that device_graph_options.recompute makes; without it 0 */
	bool has_norm;    /* then gamma to running_var are there */
	struct {
		float epsilon, momentum;
		bool synchronized;
		bool fixed;     /* by running statistics that are frozen, in training too */
		uint32_t ghost; /* 0 where they are not the batch's */
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
		uint32_t side;     /* of position embeddings; 0: x's, which are not resized */
		uint32_t position; /* that is taken */
		struct {
			/* probabilities; 0 in evaluation */
			float drop_path, dropout;
			uint32_t layer; /* whose draws these are: of its name */
		} scale;
		struct device_input_spec input;
		struct {
			uint32_t heads;
			float dropout;  /* 0 in evaluation */
			uint32_t layer; /* whose draws these are: of its name */
		} attention;
		struct device_loss_spec loss;
	};
};

struct device_value {
	struct device_graph *graph;
	uint32_t index;
	struct device_shape shape;
	struct device_node *producer;
	uint32_t consumers; /* operations that read it; the loss counts */
	/*
	 * fp32 numbers that the producer's backward pass takes from its forward pass: nothing else
	 * reads them, they have no gradient, and in evaluation they are not there
	 */
	bool saved;
	/* a trainable parameter, or an input that asked, lies upstream; or it has one itself */
	bool needs_gradient;
	/* planned: its gradient is computed, since what is differentiated depends on it */
	bool active;
	uint32_t uses; /* planned: contributions of operations to its gradient */
};

struct device_graph {
	struct device_params *params;
	struct device *device;
	struct device_graph_options options;
	struct device_node **nodes; /* [node_count] */
	uint32_t node_count, node_capacity;
	struct device_value **values; /* [value_count] */
	uint32_t value_count, value_capacity;
	uint32_t blocks;                  /* begun as yet */
	struct device_node *input, *loss; /* or NULL */
	float *class_weights;             /* the loss's, or NULL */
	int failure;                      /* of recording */
	char error[DEVICE_ERROR_MAX];
	bool planned;
	void *backend;
};

/* Whether the caller gives its gradient: the graph has no loss and nothing consumes it. */
bool device_value_is_given(const struct device_value *value);

/* How many of the node's inputs it is. */
unsigned device_node_reads(const struct device_node *node, const struct device_value *value);

/*
 * Whether backward may compute the node's results anew. Those of the last segment are wanted as
 * soon as they are there, and the input is what the first begins with.
 */
bool device_node_recomputes(const struct device_graph *graph, const struct device_node *node);

/*
 * Multiplications and additions of the node's matrix product, forward; the gradients of its data
 * and of its weights take as many each. Attention is two products of data, whose four gradients
 * take twice as many; what computes scores anew does more. 0: it is none.
 */
double device_node_flops(const struct device_node *node);

/*
 * Whether the loss is what most nets have: softmax of one label each, without class weights or
 * teacher.
 * Backends have a kernel for that and one for all that there is.
 */
bool device_loss_is_plain(const struct device_loss_spec *loss);
/* Whether its sum is divided by the sum of the labels' class weights. */
bool device_loss_is_weighted(const struct device_loss_spec *loss);
/*
 * What a step is told of its targets: arrays over the graph's n samples in one piece of memory, of
 * so many 4-byte words a sample.
 */
struct device_target_arrays {
	int32_t *labels;  /* [n]; outside 0..classes-1: none */
	int32_t *labels2; /* [n] with two labels, else NULL; and the first one's share: */
	float *shares;    /* at least a half */
	float *targets;   /* [n][classes] with dense targets, else NULL */
	float *teacher;   /* [n][classes] with a teacher, else NULL */
};
size_t device_target_words(const struct device_graph *graph);
/* The same without a teacher's logits, which come last. */
size_t device_target_own_words(const struct device_graph *graph);
/* Where they are; words NULL: nowhere. */
struct device_target_arrays device_target_arrays(const struct device_graph *graph, void *words);
/*
 * Fills them, but for a teacher's logits that the device keeps; samples that the batch has not have
 * no label and zeros.
 */
void device_targets_fill(const struct device_graph *graph, const struct device_batch *batch,
			 void *ret_words);

struct positions_size; /* positions.h */
/* Of tokens. False: their position embeddings are of x's size as they are. */
bool device_node_resizes(const struct device_node *node, struct positions_size *ret_size);

/* Groups of samples that the node's norm has statistics of; 1: of all together, or none. */
uint32_t device_node_groups(const struct device_node *node, uint32_t *ret_each);

/* Elements of a shape. */
uint64_t device_shape_elements(struct device_shape shape);

/* How many ranks share each batch; 1: this one alone. */
unsigned device_world(const struct device *device);

/* When a span begins of which who watches steps is told at its end; 0: nobody does. */
uint64_t device_span_begin(const struct device *device);
/* Tells of a span that ends now. begin_ns 0: of none. */
void device_span_end(const struct device *device, const char *name, const char *kind,
		     const char *pass, uint64_t begin_ns);

/* Sets the text of a device's last error and returns result. */
#define device_fail(device, result, ...)                                                           \
	sentence_fail((device)->error, DEVICE_ERROR_MAX, (result), __VA_ARGS__)

/* Opens backends. info and ops are theirs to fill in. */
int device_cpu_open(const struct device_options *options, struct device **ret_device, char *error);
int device_cuda_open(const struct device_options *options, struct device **ret_device, char *error);
