/*
 * The interface between the trainer and the hardware. Models, recipes and the loop use only this
 * header; cpu/ (oneDNN) and cuda/ implement it.
 *
 * A device holds parameter stores (named tensors with gradients and optimizer state) and graphs. A
 * model records its operations into a graph once, for fixed shapes; one recorded operation is a
 * unit that hardware can fuse, not a textbook layer. device_graph_plan() chooses kernels, fuses
 * across operations where possible, and packs every activation, gradient, saved tensor and
 * workspace into one arena by lifetime. Afterwards the loop only uploads batches and runs steps:
 * nothing is allocated, and a backend may capture the whole step (copy-in, forward, backward,
 * optimizer, EMA, loss scale) and replay it. Several graphs (training sizes, evaluation) may share
 * a store. Use a device and its objects from one thread at a time; calls documented as "queued" may
 * return before the work is done. Free graphs before their store, and stores before the device.
 *
 * Layouts at this interface: activations NHWC, convolution weights [K][R][S][C] (output channels,
 * rows, columns, input channels), linear weights [O][I], all dense fp32 on the host. Backends may
 * store them otherwise. Master weights, parameter gradients, batch statistics, loss and optimizer
 * are fp32; activations and their gradients have the device's precision.
 *
 * Several ranks (comm.h), each a process with its own device, train one model on global batches.
 * Each uploads the same number of samples. Gradients are summed over ranks at every update, so
 * parameters stay equal and results are those of the global batch. On training graphs all ranks
 * call device_graph_plan(), device_upload(), device_step() and device_results() in the same order;
 * evaluation is local to a rank. A call that fails on one rank leaves the others waiting: end them
 * with comm_abort(). Opening and planning differ: on GPUs ranks wait for each other there, and if
 * one fails all fail, with an error that begins with "rank N: ".
 *
 * Results are bitwise reproducible for the same device, precision, thread count and world; on a GPU
 * only with device_options.deterministic. Functions return 0, a negative errno, or a positive
 * outcome defined here. Error strings are sentences for users.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include "format/augment/deferred.h"
#include "trainer/device/optimizers/averages.h"
#include "trainer/device/optimizers/optimizers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_ERROR_MAX 1024 /* size of an error string, including the NUL */
/* bytes of a parameter or operation name, including the NUL */
#define DEVICE_NAME_MAX    128
#define DEVICE_GROUPS_MAX  16 /* parameter groups, each with a learning rate and decay */
#define DEVICE_STARTS_MAX  8  /* distinct update counts at which parameters begin to train */
#define DEVICE_RESULTS_MAX 64 /* steps of a graph whose results are kept */

enum device_precision {
	/*
	 * the fastest precision that needs no loss scaling: bf16 where faster than fp32, else fp32
	 */
	DEVICE_AUTO = 0,
	DEVICE_FP32 = 1,
	DEVICE_BF16 = 2,
	DEVICE_FP16 = 3, /* with dynamic loss scaling, adjusted on the device */
};

enum device_activation {
	DEVICE_IDENTITY = 0,
	DEVICE_RELU = 1,
	DEVICE_GELU = 2,     /* exact: x * Phi(x) */
	DEVICE_LOGISTIC = 3, /* the sigmoid, 1 / (1 + e^-x), of gates */
	DEVICE_ACTIVATIONS
};

enum device_mode {
	DEVICE_TRAIN = 1, /* batch statistics, gradients */
	DEVICE_EVAL = 2,  /* running statistics, forward only */
};

enum device_param_kind {
	DEVICE_CONV_WEIGHT = 1,   /* [K][R][S][C] */
	DEVICE_LINEAR_WEIGHT = 2, /* [O][I] */
	DEVICE_VECTOR = 3,        /* [C]: bias, gamma, beta */
	/* [C]: running mean or variance; no gradient or optimizer state, but included in the EMA */
	DEVICE_BUFFER = 4,
	DEVICE_EMBEDDING = 5, /* [T][C]: one row per token */
};

/* Tensors that a store keeps for each parameter, in the parameter's shape. */
enum device_slot {
	DEVICE_VALUE = 0, /* fp32 master */
	/* summed over the micro-batches since the last update, then over ranks; not for buffers */
	DEVICE_GRAD = 1,
	/* first of the optimizer's state tensors, zero-filled; optimizers.h gives their number */
	DEVICE_STATE = 2,
	DEVICE_EMA = DEVICE_STATE + DEVICE_STATES_MAX, /* moving average of DEVICE_VALUE */
	DEVICE_UNPERTURBED, /* DEVICE_VALUE before a perturbation; not for buffers */
#define SLOT(constant, ...) DEVICE_##constant,
	DEVICE_AVERAGES(SLOT) /* other averages of DEVICE_VALUE (averages.h) */
#undef SLOT
	DEVICE_SLOTS,
};

/* Same values as enum feed_element. */
enum device_element {
	DEVICE_ELEMENT_U8 = 1,
	DEVICE_ELEMENT_F16 = 2,
	DEVICE_ELEMENT_BF16 = 3,
	DEVICE_ELEMENT_F32 = 4
};
size_t device_element_size(enum device_element element); /* bytes */

struct comm; /* comm.h */
struct device;
struct device_params;
struct device_param;
struct device_graph;
struct device_value; /* a tensor of a graph; the graph owns it */

struct device_shape {
	uint32_t n, h, w, c; /* a matrix [n][c] has h = w = 1 */
};

/* ---- device ---- */

/*
 * How far a backend fuses across operations. Backends without fusion ignore it. All levels give the
 * same results up to rounding.
 */
enum device_fusion {
	DEVICE_FUSION_AUTO = 0, /* the highest level that pays off in the precision */
	DEVICE_FUSION_NONE = 1, /* each textbook layer separately: the reference */
	DEVICE_FUSION_B = 2,    /* norm + residual + activation in one pass, forward and backward */
	/*
	 * DEVICE_FUSION_B, plus norms and activations in the prologues and epilogues of
	 * convolutions
	 */
	DEVICE_FUSION_C = 3,
};

struct device_options {
	enum device_precision precision;
	/*
	 * CPU threads including the caller's; 0 for all that affinity and cgroup allow,
	 * divided among the ranks on the machine
	 */
	unsigned threads;
	/*
	 * index of the device among several; with several ranks, a rank uses GPU index + local_rank
	 */
	unsigned index;
	struct comm *comm; /* the ranks; NULL for a single one. Must outlive the device */
	/*
	 * tensor parallelism: the ranks that hold one model together (device_params_divide()); NULL
	 * for none. `comm` then has one rank of each group, which have the same rank in their
	 * groups. Must outlive the device
	 */
	struct comm *group;
	/*
	 * check every tensor after every operation: a step fails with -EDOM and device_error()
	 * names the first non-finite one. Slow
	 */
	bool detect_anomaly;
	bool profile; /* time every operation (device_graph_layer); may hinder overlap */
	/* Backends may ignore the following fields where they do not apply. */
	enum device_fusion fusion;
	/*
	 * time candidate kernels on the device instead of trusting a heuristic; winners are cached
	 * for later runs
	 */
	bool autotune;
	/*
	 * fp32: convolutions and matrix products may round their inputs to tf32 (10 mantissa bits)
	 */
	bool tf32;
	bool deterministic; /* use only bitwise reproducible kernels; all CPU kernels are */
	/*
	 * upper limit in bytes of a graph's arena: planning a larger one fails with -ENOMEM. 0 for
	 * available memory
	 */
	uint64_t arena_bytes_max;
	/*
	 * launch each operation separately, without capture and replay (tests, debugging); results
	 * are bitwise the same
	 */
	bool eager;
};

struct device_info {
	/* hardware, library and instruction set; valid until device_close() */
	const char *name;
	enum device_precision precision; /* resolved, never DEVICE_AUTO */
	unsigned threads;                /* resolved; 0 if not applicable */
	/* CPUs available to the threads of this process; 0 if unknown or not applicable */
	unsigned cpus;
	/* dense FLOP/s in this precision at the highest clock; 0 if unknown */
	double peak_flops;
	uint64_t memory_bytes; /* free when opened; 0 if unknown */
};

/*
 * Opens a backend: "cpu", or "cuda" if built in; NULL for the best one present. options NULL for
 * defaults. -ENODEV if the backend is not built in, or its hardware or a library is missing;
 * -ENOTSUP if the precision is not supported. error is NULL or has DEVICE_ERROR_MAX bytes. On
 * success with backend NULL it says why better backends were skipped; otherwise success sets it to
 * "".
 */
int device_open(const char *backend, const struct device_options *options,
		struct device **ret_device, char *error);
/* Accepts NULL. Free graphs and stores first. */
void device_close(struct device *device);
const struct device_info *device_info(const struct device *device);
/* Waits until all queued work is done. */
int device_synchronize(struct device *device);
/* Error string of the last run-time failure, or ""; valid until the next call on the device. */
const char *device_error(const struct device *device);

/* ---- parameters and optimizer ---- */

struct device_param_spec {
	/* copied; unique in its store and used in checkpoints: "layer1.0.conv1.weight" */
	const char *name;
	enum device_param_kind kind;
	uint32_t shape[4]; /* dimensions in the kind's order; unused entries are 0 */
	/*
	 * in a divided store: the dimension of which each rank has a part, counted from 1; 0 if all
	 * ranks have the whole tensor. The dimension has split_ranges ranges of equal length (0
	 * counts as 1), and a rank has its part of each, in order of ranks
	 */
	uint32_t split_dimension, split_ranges;
	uint32_t group;  /* < DEVICE_GROUPS_MAX: index into device_hyper's arrays */
	float lr_factor; /* multiplies the learning rate of its group; 0 counts as 1 */
	uint32_t start;  /* < DEVICE_STARTS_MAX: index into device_hyper.begun */
	bool frozen;     /* neither gradient nor update is computed */
	/* frozen, with values that the network defines; checkpoints may lack it */
	bool constant;
	/* of the first or last layer: by_matrix optimizers do not treat it as a matrix */
	bool outer;
};

/*
 * What of a store with several ranks each rank keeps and updates a part of (ZeRO: Rajbhandari et
 * al. 2020, arXiv:1910.02054). Results are equal up to rounding. Only weights are divided; vectors,
 * embeddings and running statistics stay whole.
 */
enum device_shard {
	DEVICE_SHARD_NONE = 0,
	DEVICE_SHARD_OPTIMIZER = 1, /* optimizer state, averages */
	DEVICE_SHARD_GRADIENTS = 2, /* and gradients: micro-batches are summed over ranks, too */
	/* and the weights: each pass gathers them; see device_params_are_gathered() */
	DEVICE_SHARD_PARAMETERS = 3,
};

struct device_optimizer_spec {
	enum device_optimizer_kind kind;
#define OPTION(name, ...) bool name;
#define COUNT(name, ...)  uint32_t name;
	DEVICE_OPTIMIZER_KEYS(DEVICE_NO_KEY, OPTION, COUNT)
#undef COUNT
#undef OPTION
	/*
	 * SGD, LARS, Adam: add decay to the gradient (L2, as torch.optim.SGD); else decoupled: w -=
	 * lr * decay * w (Loshchilov and Hutter, SGDW)
	 */
	bool coupled_decay;
	bool ema;      /* keep DEVICE_EMA */
	bool perturbs; /* keep DEVICE_UNPERTURBED: device_hyper.perturb may be set */
#define KEEP(constant, name, ...) bool name;
	DEVICE_AVERAGES(KEEP) /* keep that average's slot */
#undef KEEP
	/*
	 * subtract from each weight gradient its mean per output (gradient centralization, Yong et
	 * al. 2020)
	 */
	bool centralize;
	/* limit on the magnitude of scaled gradient elements, after clip_norm; 0 for no clipping */
	float clip_value;
	/* with several ranks; not with by_matrix optimizers and centralize, which need whole rows
	 */
	enum device_shard shard;
};

/*
 * Hyperparameters of one update, read during the call. A captured step reads them from memory, so
 * they may change at every step.
 */
struct device_hyper {
	float lr[DEVICE_GROUPS_MAX];           /* per group */
	float weight_decay[DEVICE_GROUPS_MAX]; /* per group */
#define NUMBER(name, ...) float name; /* momentum etc.; defined by the optimizers' headers */
	DEVICE_OPTIMIZER_KEYS(NUMBER, DEVICE_NO_KEY, DEVICE_NO_KEY)
#undef NUMBER
	/*
	 * indexed by device_param_spec.start: updates made before these parameters began to train;
	 * Adam's bias corrections count from there. 0 if trained from the first update
	 */
	uint64_t begun[DEVICE_STARTS_MAX];
	/*
	 * ema = decay * ema + (1 - decay) * w, after the update. 0 copies w; the store's first
	 * update always copies. 1 leaves the EMA unchanged
	 */
	float ema_decay;
	/*
	 * after each EMA update, set parameters that are not frozen to it: w = ema (Lookahead,
	 * Zhang et al. 2019)
	 */
	bool lookahead;
	float grad_scale; /* multiplies gradients first: 1 / micro-batches. 0 counts as 1 */
	/* limit on the global L2 norm of the scaled gradients; 0 for no clipping */
	float clip_norm;
	/*
	 * if above 0, perturb instead of update: move the values along the gradient by this L2
	 * norm, then discard the gradient (optimizers/perturb.h). Later steps leave running
	 * statistics unchanged until the next update, which restores the values first
	 */
	float perturb;
	/*
	 * weight w of the current values in each average: average += w * (value - average), after
	 * every update, even a skipped one. 1 copies the values, 0 leaves the average unchanged
	 */
#define SHARE(constant, name, ...) float name;
	DEVICE_AVERAGES(SHARE)
#undef SHARE
};

/* Counters of a store. Checkpoints save them and the slots. */
struct device_params_state {
	uint64_t updates;   /* updates made, without skipped ones */
	uint64_t skipped;   /* updates skipped because a gradient was not finite */
	double loss_scale;  /* 1 without loss scaling */
	uint64_t scale_age; /* updates since loss_scale last changed */
};

int device_params_new(struct device *device, struct device_params **ret_params);
void device_params_free(struct device_params *params); /* accepts NULL */
/*
 * Divides the store's parameters that have a split_dimension over the ranks of
 * device_options.group (with device_options.comm); call before device_param_add(). Linear layers
 * whose weight is split by outputs or inputs, and attention on a part of the heads, then compute
 * this rank's part: the forward pass of a layer split by inputs and the backward pass of one split
 * by outputs end with a sum over the group (Shoeybi et al. 2019, arXiv:1909.08053, section 3). All
 * ranks of a group upload the same batches and call functions that compute, as well as
 * device_param_read(), in the same order. Without a group it does nothing.
 */
void device_params_divide(struct device_params *params);
/* Number of ranks that the parameters are divided over; 1 if they are not. */
unsigned device_params_group(const struct device_params *params);
/*
 * Declares a parameter, which lives as long as the store. -EEXIST if the name is in use; -EINVAL
 * (device_error names the field); -EBUSY if the store is allocated.
 */
int device_param_add(struct device_params *params, const struct device_param_spec *spec,
		     struct device_param **ret_param);
/* Sets lr_factor, above 0. -EBUSY if the store is allocated. */
int device_param_scale_rate(struct device_param *param, float lr_factor);
/*
 * Sets spec.frozen: updates skip the parameter, norms leave a buffer unchanged. Planned graphs are
 * not affected: plan training graphs again.
 */
void device_param_freeze(struct device_param *param, bool frozen);
/* Sets spec.outer; call before device_params_allocate(). */
void device_param_set_outer(struct device_param *param);
/* Sets spec.start; call before device_params_allocate(). */
void device_param_set_start(struct device_param *param, uint32_t start);
/*
 * Allocates every slot, zero-filled; no parameter can be added afterwards. optimizer NULL for
 * evaluation only (just DEVICE_VALUE).
 */
int device_params_allocate(struct device_params *params,
			   const struct device_optimizer_spec *optimizer);
size_t device_params_count(const struct device_params *params);
/* Parameter `index` in order of declaration; NULL past the end. */
struct device_param *device_params_at(const struct device_params *params, size_t index);
/* NULL if not found */
struct device_param *device_params_find(const struct device_params *params, const char *name);
const struct device_param_spec *device_param_spec(const struct device_param *param);
/* Elements of the whole tensor: product of its shape. */
size_t device_param_elements(const struct device_param *param);
/* Elements of the store's largest whole tensor; at least 1. */
size_t device_params_largest(const struct device_params *params);
/* NULL in a store for evaluation only. */
const struct device_optimizer *device_params_optimizer(const struct device_params *params);
/* True if the slot carries state across updates and so belongs in a checkpoint. */
bool device_slot_lasts(enum device_slot slot);
/* True if an allocated parameter has the slot. */
bool device_param_has(const struct device_param *param, enum device_slot slot);
/*
 * Copies a slot of the whole tensor from or to dense fp32 in host layout; waits for queued work.
 * -ENOENT if the parameter lacks the slot. If the slot is divided, by shards or over the group, all
 * ranks have to read it in the same order, and each keeps its part of what it writes; but see
 * device_params_lead().
 */
int device_param_write(struct device_param *param, enum device_slot slot, const float *values);
int device_param_read(struct device_param *param, enum device_slot slot, float *ret_values);
/* True if the ranks have a part each of this slot of the parameter. */
bool device_param_is_divided(const struct device_param *param, enum device_slot slot);
bool device_params_are_sharded(const struct device_params *params);
/*
 * True if each pass gathers the weights that it reads (DEVICE_SHARD_PARAMETERS): then all ranks
 * take the same steps, forward passes and evaluations of the store's graphs, in the same order.
 */
bool device_params_are_gathered(const struct device_params *params);
/* Bytes that this rank's store takes on the device. */
uint64_t device_params_bytes(const struct device_params *params);
/*
 * For reads and writes by rank 0 alone, as of checkpoints: rank 0 calls device_params_lead(), reads
 * and writes, and calls device_params_dismiss(); meanwhile the others call device_params_follow(),
 * which contributes their parts of divided slots and takes what rank 0 writes to these. No-ops if
 * nothing is divided.
 */
void device_params_lead(struct device_params *params);
int device_params_dismiss(struct device_params *params);
int device_params_follow(struct device_params *params);
/*
 * Exchanges the values with DEVICE_EMA or DEVICE_SWA, so that an evaluation of the values is one of
 * the average. Call it again to change them back. All ranks of a sharded store call it;
 * device_evaluate() takes only the values of such a store.
 */
int device_params_exchange(struct device_params *params, enum device_slot slot);
/*
 * Discards the gradients summed since the last update: after a failed step, or after micro-batches
 * run only for their statistics.
 */
void device_params_drop_gradients(struct device_params *params);
int device_params_get_state(struct device_params *params, struct device_params_state *ret_state);
int device_params_set_state(struct device_params *params, const struct device_params_state *state);

/* ---- recording a graph ---- */

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
 * Recording functions return the result, owned by the graph. They return NULL on an error (shape
 * mismatch, missing parameter) and for a NULL input. device_graph_plan() reports the first error,
 * so models record without error checks. Names are copied; they appear in errors, profiles and
 * plans. The same recording serves both modes.
 */
struct device_shape device_value_shape(const struct device_value *value); /* zeros for NULL */

struct device_input_spec {
	const char *name;
	/* c: at most 4 for u8 batches, any number otherwise; backends may pad it */
	struct device_shape shape;
	float mean[4], std[4]; /* per channel in 0..255, for u8 batches: (x - mean) / std */
	bool gradient;         /* also compute the gradient of the input (tests) */
	/*
	 * batches may differ in size, drop rows and columns, and blend their samples (struct
	 * device_batch); false is faster
	 */
	bool resamples;
};
/* The uploaded batch, normalised: [n][h][w][c]. One per graph. */
struct device_value *device_input(struct device_graph *graph, const struct device_input_spec *spec);

/*
 * Starts a block of the network, such as a residual block, which extends to the next call.
 * Operations before the first call form a block too.
 */
void device_begin_block(struct device_graph *graph);

struct device_norm {
	struct device_param *gamma, *beta; /* [K] */
	/*
	 * [K], buffers; if both are frozen, training normalises by them as evaluation does and
	 * leaves them unchanged
	 */
	struct device_param *running_mean, *running_var;
	float epsilon; /* added to the variance; 1e-5 usually */
	/*
	 * running = (1 - momentum) * running + momentum * batch, with unbiased variance for running
	 * and biased variance for normalising; 0.1 usually
	 */
	float momentum;
	/*
	 * use statistics of the global batch; otherwise each rank uses the statistics of its own
	 * samples and keeps its own running statistics
	 */
	bool synchronized;
	/*
	 * above 0: training normalises groups of at most this many samples by their own statistics
	 * (ghost batch normalization: Hoffer et al. 2017, arXiv:1705.08741, section 4). Each group
	 * in order updates the running statistics with momentum / groups, as Composer's
	 * GhostBatchNorm does. Not with synchronized
	 */
	uint32_t ghost;
};
/*
 * Number of groups of ghost batch normalization; 1 with ghost 0. All have *ret_each samples, except
 * that the last may be smaller.
 */
uint32_t device_norm_groups(uint32_t samples, uint32_t ghost, uint32_t *ret_each);

/*
 * y = activation(norm(conv(x, weight)) + residual), or activation(conv(x, weight) + bias +
 * residual) without a norm.
 */
struct device_conv_spec {
	const char *name;
	/*
	 * [K][R][S][C / groups] with C channels of x; K is a multiple of the resulting number of
	 * groups
	 */
	struct device_param *weight;
	struct device_param *bias;      /* [K] or NULL; must be NULL with a norm */
	const struct device_norm *norm; /* NULL for none */
	uint32_t stride;                /* in both dimensions, at least 1 */
	uint32_t pad;                   /* zeros on all four sides */
	uint32_t pad_extra; /* extra zeros at the bottom and right, as even windows need */
	struct device_value *residual; /* [n][p][q][K] or NULL */
	enum device_activation activation;
};
/*
 * x [n][h][w][C] -> [n][p][q][K], p = (h + 2 pad + pad_extra - R) / stride + 1, q likewise. The
 * number of groups is C divided by the weight's input channels; consecutive groups of output
 * channels read consecutive groups of input channels. One channel per group is a depthwise
 * convolution.
 */
struct device_value *device_conv(struct device_graph *graph, struct device_value *x,
				 const struct device_conv_spec *spec);

/*
 * y = activation(norm(x) + residual), for networks that normalise before the convolution. residual
 * may be NULL.
 */
struct device_value *device_norm(struct device_graph *graph, const char *name,
				 struct device_value *x, const struct device_norm *norm,
				 struct device_value *residual, enum device_activation activation);

struct device_layer_norm_spec {
	const char *name;
	struct device_param *gamma, *beta; /* [c] of x */
	float epsilon; /* 0 counts as 1e-6, the value in timm's vision transformers */
};
/*
 * y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, with mean and biased variance over the
 * channels of each position (Ba, Kiros, Hinton 2016, arXiv:1607.06450); the same in evaluation.
 */
struct device_value *device_layer_norm(struct device_graph *graph, struct device_value *x,
				       const struct device_layer_norm_spec *spec);

struct device_attention_spec {
	const char *name;
	/* must divide a third of qkv's channels; in a divided store, of this rank */
	uint32_t heads;
	/*
	 * probability p that an attention weight is zeroed; the others are scaled by 1 / (1 - p).
	 * Unused in evaluation
	 */
	float dropout;
};
/*
 * Multi-head self-attention over the T = h w positions of a sample (Vaswani et al. 2017, section
 * 3.2, arXiv:1706.03762): y = softmax(q k^T / sqrt(D)) v. qkv is [n][h][w][3 heads D] with the
 * order of one fused linear layer: q, k, v outermost, then heads. The result is [n][h][w][heads D].
 * T x T matrices are never stored: backward recomputes them from the saved log-sum-exp of each
 * query.
 */
struct device_value *device_attention(struct device_graph *graph, struct device_value *qkv,
				      const struct device_attention_spec *spec);

struct device_pos_embed_spec {
	const char *name;
	/*
	 * [T][c], T = h * w, plus 1 with a class token. If grid_side is not 0: embeddings for
	 * grid_side * grid_side positions, resized if x has another size (pos_embed.h)
	 */
	struct device_param *positions;
	uint32_t grid_side;
	struct device_param *class_token; /* [1][c], prepended as token 0; NULL for none */
};
/*
 * x [n][h][w][c] -> [n][1][T][c]: turns positions, row by row, into tokens and adds position
 * embeddings (Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1).
 */
struct device_value *device_pos_embed(struct device_graph *graph, struct device_value *x,
				      const struct device_pos_embed_spec *spec);
/* [n][h][w][c] -> [n][1][1][c]: selects one position, numbered row by row from 0. */
struct device_value *device_select_token(struct device_graph *graph, const char *name,
					 struct device_value *x, uint32_t position);

struct device_pool_spec {
	const char *name;
	/*
	 * in both dimensions; pad < window. Max ignores padding; average divides by the elements
	 * inside x
	 */
	uint32_t window, stride, pad;
	uint32_t pad_extra; /* extra padding at the bottom and right; pad + pad_extra < window */
};
struct device_value *device_max_pool(struct device_graph *graph, struct device_value *x,
				     const struct device_pool_spec *spec);
struct device_value *device_average_pool(struct device_graph *graph, struct device_value *x,
					 const struct device_pool_spec *spec);
/* [n][h][w][c] -> [n][1][1][c] */
struct device_value *device_global_average_pool(struct device_graph *graph, const char *name,
						struct device_value *x);
struct device_value *device_global_max_pool(struct device_graph *graph, const char *name,
					    struct device_value *x);

struct device_linear_spec {
	const char *name;
	/* [O][I], I = h * w * c of x, in that order; I = c with by_position */
	struct device_param *weight;
	struct device_param *bias;     /* [O] or NULL */
	bool by_position;              /* apply the layer at each position, as for tokens */
	struct device_value *residual; /* same shape as the result, or NULL */
	enum device_activation activation;
};
/*
 * y = activation(x weight^T + bias + residual): x [n][h][w][c] -> [n][1][1][O], or [n][h][w][O]
 * with by_position.
 */
struct device_value *device_linear(struct device_graph *graph, struct device_value *x,
				   const struct device_linear_spec *spec);

struct device_scale_add_spec {
	const char *name;
	struct device_value *residual; /* same shape as x, or NULL for 0 */
	/* Factors of x; an absent factor counts as 1. */
	struct device_param *gamma; /* [c], one for each channel of x (LayerScale: Touvron et al.
				       2021, section 2.3) */
	/* [n][1][1][c] (squeeze and excite: Hu et al. 2018, section 3) */
	struct device_value *gate;
	/*
	 * probability p that a sample's x is zeroed; the others are scaled by 1 / (1 - p)
	 * (stochastic depth: Huang et al. 2016). Neither drop_path nor dropout applies in
	 * evaluation
	 */
	float drop_path;
	/* probability that an element of x is zeroed, likewise scaled (Srivastava et al. 2014) */
	float dropout;
	enum device_activation activation; /* identity or ReLU */
};
/* y = activation(residual + s x), where s is the product of the given factors. */
struct device_value *device_scale_add(struct device_graph *graph, struct device_value *x,
				      const struct device_scale_add_spec *spec);

/* Loss of a sample; t is its target per class, z its logits. */
enum device_loss_kind {
	DEVICE_SOFTMAX = 0, /* cross-entropy: - sum of t log softmax(z) */
	/*
	 * binary cross-entropy, mean over the classes of
	 * -t log(sigmoid(z)) - (1 - t) log(1 - sigmoid(z))
	 */
	DEVICE_SIGMOID = 1,
	/*
	 * Kullback-Leibler divergence, sum of t (log t - log softmax(z / temperature)), times
	 * temperature^2 to keep the gradient scale (Hinton et al. 2015)
	 */
	DEVICE_KL = 2,
	/* for regression, with DEVICE_DENSE only: mean over the outputs of (z - t)^2 */
	DEVICE_SQUARED = 3,
	/*
	 * the same with, instead of the square, (z - t)^2 / 2 where |z - t| < 1 and |z - t| - 1/2
	 * elsewhere (Huber 1964, "Robust Estimation of a Location Parameter", with a threshold of
	 * 1)
	 */
	DEVICE_HUBER = 4,
};

/* Where targets come from. */
enum device_targets {
	DEVICE_LABELS = 0, /* 1 for the sample's label, 0 elsewhere */
	/* weight shares[i] for the first label, 1 - shares[i] for the second */
	DEVICE_TWO_LABELS = 1,
	DEVICE_DENSE = 2, /* a number per class: struct device_batch.targets */
};

struct device_loss_spec {
	const char *name;
	/* label smoothing: (1 - smoothing) * target + smoothing / classes; not for regression */
	float smoothing;
	float logit_scale; /* multiplies the logits; 0 counts as 1 */
	enum device_loss_kind kind;
	enum device_targets targets;
	float temperature; /* for DEVICE_KL; 0 counts as 1 */
	/*
	 * [classes], copied: factors on the loss terms of each class; not with DEVICE_KL, nor for
	 * regression. NULL for all 1
	 */
	const float *class_weights;
	/*
	 * distillation (Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2), with weight w (0
	 * for none) and temperature T (0 counts as 1). With the loss L above, and
	 * p = softmax(device_batch.teacher / T), the loss of a sample becomes
	 * (1 - w) * L + w * T^2 * sum of p (log p - log softmax(z / T)). Not for regression
	 */
	float teacher_weight, teacher_temperature;
};
/*
 * Records the loss of logits [n][1][1][classes] against the batch's targets, and ends the graph.
 * Softmax and divergence need at least two classes.
 * The loss is the mean over the samples that have a target; in training, over those of the global
 * batch. Also counts samples whose label is among the 1 and 5 largest logits; of equal logits, the
 * lower class ranks first. With two labels the one with the larger share counts. With dense targets
 * the batch's label counts, or without one the class with the largest target. Softmax with class
 * weights and labels (one or two) divides by the sum of the labels' weights instead of the number
 * of samples, as torch.nn.CrossEntropyLoss does; a teacher's term still divides by the number of
 * samples. A sample with label -1 has no loss and no gradient. Returns logits.
 */
struct device_value *device_loss(struct device_graph *graph, struct device_value *logits,
				 const struct device_loss_spec *spec);

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

/* A span of device work on CLOCK_MONOTONIC. Strings are valid during the callback. */
struct device_span {
	const char *name; /* name of the operation, or of other work such as "update" */
	const char *kind; /* part of the operation, or "" */
	const char *pass; /* "forward", "backward", "update" or "evaluation" */
	uint64_t begin_ns, end_ns;
};
typedef void device_watch(void *of, const struct device_span *span);
/*
 * From the next step on, calls watch for every span of device work; NULL stops the calls. Spans are
 * in order, do not overlap, and are reported before the call that queued the work returns. Results
 * are bitwise the same, but each operation is launched separately and steps are synchronous.
 */
void device_watch_steps(struct device *device, device_watch *watch, void *of);

/* ---- running ---- */

/* Outcomes of device_register_host */
#define DEVICE_STAGED         1
#define DEVICE_WANTS_WRITABLE 2

/*
 * Registers host memory that batches will be uploaded from, such as a feed's ring, so that the
 * device can pin its pages and copy by DMA. The device only reads it; `writable` describes the
 * mapping. Batches from other memory work too. Returns 0 if batches are copied directly;
 * DEVICE_STAGED if they are first copied to the device's pinned memory (device_error() says why);
 * DEVICE_WANTS_WRITABLE: as DEVICE_STAGED, but registering a writable mapping may allow direct
 * copies. -EEXIST if it overlaps registered memory.
 */
int device_register_host(struct device *device, const void *memory, size_t bytes, bool writable);
/*
 * Undoes device_register_host(); call before unmapping. Waits for copies that still read the
 * memory. Accepts NULL and memory that was never registered.
 */
void device_unregister_host(struct device *device, const void *memory);

#define DEVICE_SHRINK_MAX 4 /* limit on image size / input size, in each dimension */

/*
 * Blend of a sample with a partner from its batch: the partner's pixels inside a box, a weighted
 * mean of both elsewhere.
 */
struct device_blend {
	uint32_t partner; /* its index in the batch; may be the sample itself */
	/* weight of the sample outside the box, 0..1; the partner's is 1 - share */
	float share;
	/* box in the input: rows top to bottom - 1, columns left to right - 1; may be empty */
	uint32_t top, bottom, left, right;
};

/*
 * Inputs of the random draws of a training step, in addition to the layer. Draws are equal on every
 * device.
 */
struct device_draws {
	uint64_t seed;
	/* number of the update that the batch contributes to; the same for all micro-batches */
	uint64_t step;
	uint32_t first; /* index in the global batch of the first sample */
};

/*
 * A batch to upload. Images and labels may be in memory that other processes can change, such as a
 * feed's ring: each label is read once and checked in the copy. All other arrays must be private.
 */
struct device_batch {
	const void *images;    /* [count][h][w][channels], dense; `element` is the type */
	const int32_t *labels; /* [count], -1 for none; NULL if no sample has one */
	/* samples; a training graph needs exactly its n, an evaluation graph accepts fewer */
	uint32_t count;
	uint32_t channels; /* at least the input's; excess channels are ignored */
	/* DEVICE_ELEMENT_U8 is normalised, other types are used as they are */
	enum device_element element;
	bool flip; /* mirror left to right (test-time augmentation) */
	/*
	 * [count], for u8 images of 3 or 4 channels: operations to apply first, which turn images
	 * of delivered_height x delivered_width into height x width (both set); NULL for none.
	 * deferred_read() must have validated them
	 */
	const struct deferred *deferred;
	uint32_t delivered_height, delivered_width;
	/*
	 * DEVICE_TWO_LABELS: [count] each: the second label (-1 for none), and the weight of the
	 * first label, 0..1; both NULL if every sample has one label
	 */
	const int32_t *labels2;
	const float *shares;
	/*
	 * DEVICE_DENSE: [count][classes], finite, and except for regression at least 0. A sample
	 * whose targets are all NaN has none, like one with label -1 elsewhere. Labels only serve
	 * to count correct predictions; for a sample without one, the class with the largest target
	 * counts
	 */
	const float *targets;
	/*
	 * with teacher_weight: the teacher's logits [count][classes], finite; else NULL. With
	 * teacher_kept they are in memory that device_logits_keep() wrote (before logit_scale) and
	 * are not checked for finiteness. teacher_scale multiplies them; 0 counts as 1
	 */
	const float *teacher;
	bool teacher_kept;
	float teacher_scale;
	/*
	 * The following need device_input_spec.resamples. Arithmetic is fp32; blending normalised
	 * pixels is equivalent to blending bytes.
	 *
	 * Size of the images, 0 for the input's. Other sizes are resized bilinearly with
	 * antialiasing, as torchvision resizes float images.
	 */
	uint32_t height, width;
	/*
	 * [h], [w] of the input: rows and columns to pick from the images instead of resizing in
	 * that dimension; NULL for none
	 */
	const uint32_t *rows, *columns;
	const struct device_blend *blends; /* [count], applied after resizing; NULL for none */
	struct device_draws draws;         /* for training graphs with random operations */
};

/* Bytes of one image of the batch, whose size fields must be set. */
size_t device_batch_image(const struct device_batch *batch);

/*
 * Queues the copy of the next step's batch. One batch may be uploaded while the previous step still
 * runs. Keep the batch's memory until device_upload_done() releases it; ret_ticket identifies the
 * copy. -EINVAL if it does not fit the graph; -EBUSY if the previously uploaded batch is unused.
 */
int device_upload(struct device_graph *graph, const struct device_batch *batch,
		  uint64_t *ret_ticket);
/* 0 if the ticket's memory may be released; -EAGAIN if not yet (never with wait). */
int device_upload_done(struct device_graph *graph, uint64_t ticket, bool wait);

/*
 * Queues forward and backward on the batch uploaded last and adds to the gradients (the first step
 * after an update overwrites them); with hyper also the update: optimizer, EMA, loss scale. hyper
 * NULL: a micro-batch that only adds this rank's gradients. Before an update gradients are summed
 * over ranks, bucket by bucket as backward completes them, so norm, clipping and update see the
 * sum. An update with a non-finite gradient is skipped and counted. Steps are numbered from 1.
 * -EINVAL if nothing was uploaded or the graph is not for training; -EDOM: see detect_anomaly.
 */
int device_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step);
/*
 * Queues only the forward pass of a training graph, with batch statistics, to compute the loss.
 * With moves_statistics it also updates the running statistics. Summed gradients do not change.
 */
int device_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
/*
 * Computes the gradients of the batch uploaded last as a step does, then discards them and all
 * gradients summed since the last update. Nothing else changes and no rank waits for another. This
 * triggers the allocations that libraries and drivers make outside the plan in a graph's first
 * steps (some only in a second warm-up), so that -ENOMEM occurs before training starts. Waits.
 */
int device_warmup(struct device_graph *graph);
/*
 * Queues forward with running statistics and the given weights (DEVICE_VALUE, DEVICE_EMA or an
 * average that has buffers); only for evaluation graphs.
 */
int device_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);

/* Results of a step: over all ranks for a training step, of this rank only for an evaluation. */
struct device_results {
	uint64_t step;
	uint32_t samples;    /* samples with a label */
	uint32_t top1, top5; /* labelled samples whose label is among the 1 and 5 largest logits */
	double loss;         /* mean over the labelled samples */
	/* global L2 norm after grad_scale, before clipping; 0 without an update */
	double grad_norm;
	double loss_scale; /* value used in the step */
	bool updated;      /* an update was made */
	bool skipped;      /* an update was due, but a gradient was not finite */
};
/*
 * Returns a step's results, which arrive asynchronously. -EAGAIN if not ready (never with wait, and
 * all ranks get the same answer); -ERANGE if the step is more than DEVICE_RESULTS_MAX steps old or
 * not queued.
 */
int device_results(struct device_graph *graph, uint64_t step, bool wait,
		   struct device_results *ret_results);
/* Logits of the last step, before logit_scale: [n][classes]. Waits. */
int device_logits(struct device_graph *graph, float *ret_logits);
/*
 * Allocates zero-filled device memory for logits that other graphs' batches will use. -ENOTSUP if
 * device memory is host memory: use device_logits() then.
 */
int device_memory_new(struct device *device, size_t count, float **ret_memory);
/* Waits for queued work. Accepts NULL. */
void device_memory_free(struct device *device, float *memory);
int device_memory_read(struct device *device, const float *memory, size_t count, float *ret_values);
/*
 * Queues a copy of the last step's logits, before logit_scale, to memory from device_memory_new().
 * Steps queued later can use it.
 */
int device_logits_keep(struct device_graph *graph, float *memory);
/*
 * Per-sample loss of the last step on this rank, [n]; 0 without a target. With class weights the
 * values are weighted but not divided by the sum of the weights (so a teacher's term is multiplied
 * by the mean weight). Waits. -EINVAL if the graph has no loss.
 */
int device_losses(struct device_graph *graph, float *ret_losses);

/*
 * Copies a whole value or its gradient as dense fp32 [n][h][w][c] after a step; waits. With
 * keep_all every value is available, otherwise only results that no operation consumes. Only the
 * DEVICE_GRAD of such results can be written, in a training graph without a loss. -ENOENT if not
 * kept.
 */
int device_value_read(struct device_graph *graph, const struct device_value *value,
		      enum device_slot slot, float *ret_values);
int device_value_write(struct device_graph *graph, const struct device_value *value,
		       enum device_slot slot, const float *values);

#endif
