/*
 * The interface between the trainer and the hardware. Models, recipes and the loop use this header
 * only; cpu/ (oneDNN) and cuda/ implement it.
 *
 * A device holds parameter stores (named tensors with their gradients and optimizer state) and
 * graphs. A model records its operations into a graph once, for fixed shapes; the unit of recording
 * is what hardware can fuse, not the textbook layer. device_graph_plan() then chooses kernels,
 * fuses across operations where it can, and lays every activation, gradient, saved tensor and
 * workspace into one arena from their lifetimes. After that the loop only feeds batches and runs
 * steps: nothing is allocated, and a backend may capture the whole step (copy-in, forward,
 * backward, optimizer, EMA, loss scale) and replay it. Several graphs (training sizes, evaluation)
 * may share one store. A device and all that belongs to it is used by one thread at a time; calls
 * may return before the work is done where it says so ("queued"). Lifetime: graphs before their
 * store, stores before the device.
 *
 * Layouts a caller sees: activations NHWC, convolution weights [K][R][S][C] (output channels, rows,
 * columns, input channels), linear weights [O][I], all dense fp32 on the host. How a backend keeps
 * them is its own business. Arithmetic: master weights, gradients of parameters, batch statistics,
 * loss and optimizer are fp32; activations and their gradients have the device's precision.
 *
 * Several ranks (comm.h), each a process with a device of its own, train one model on global
 * batches: each feeds its share, the same number of samples as the others. They add up the
 * gradients at every update, so their parameters stay equal, and results are those of the global
 * batch. device_graph_plan(), device_feed(), device_step() and device_results() on training graphs
 * are called by all of them in the same order; evaluation is each rank's own. A call that fails on
 * one rank leaves the others waiting: end them (comm_abort). Opening and planning are different: on
 * GPUs ranks wait for each other there, and if one fails all fail, with an error that begins with
 * "rank N: ".
 *
 * Results are bitwise reproducible for the same device, precision, thread count and world; on a GPU
 * only with device_options.deterministic. Functions return 0, a negative errno, or a positive
 * outcome named here; texts are sentences for a person.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include "format/base/deferred.h"
#include "trainer/device/optimizers/averages.h"
#include "trainer/device/optimizers/optimizers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_ERROR_MAX 1024 /* bytes of an error text, terminator included */
/* bytes of a parameter's or operation's name, terminator included */
#define DEVICE_NAME_MAX    128
#define DEVICE_GROUPS_MAX  16 /* parameter groups with a learning rate and decay of their own */
#define DEVICE_STARTS_MAX  8  /* times from which on parameters are trained */
#define DEVICE_RESULTS_MAX 64 /* results of a graph's last so many steps can be asked for */

enum device_precision {
	/*
	 * the fastest that trains without loss scaling: bf16 where it is faster than fp32, else
	 * fp32
	 */
	DEVICE_AUTO = 0,
	DEVICE_FP32 = 1,
	DEVICE_BF16 = 2,
	DEVICE_FP16 = 3, /* with dynamic loss scaling, decided on the device */
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
	/* [C]: running mean and variance: no gradient, no optimizer; averaged with the EMA */
	DEVICE_BUFFER = 4,
	DEVICE_EMBEDDING = 5, /* [T][C]: one for each of T tokens, added as it is */
};

/* The tensors a parameter consists of, all of its shape. */
enum device_slot {
	DEVICE_VALUE = 0, /* fp32 master */
	/*
	 * summed over the micro-batches since the last update, and then over ranks; not for buffers
	 */
	DEVICE_GRAD = 1,
	DEVICE_STATE = 2, /* first of the optimizer's, as many as its row says; zero at first */
	DEVICE_EMA = DEVICE_STATE + DEVICE_STATES_MAX, /* moving average of DEVICE_VALUE */
	DEVICE_SAVED, /* DEVICE_VALUE as it was before a perturbation; not for buffers */
#define SLOT(constant, ...) DEVICE_##constant,
	DEVICE_AVERAGES(SLOT) /* what follows DEVICE_VALUE */
#undef SLOT
	DEVICE_SLOTS,
};

/* Numbered as enum feed_element. */
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
struct device_value; /* a tensor of a graph, owned by it */

struct device_shape {
	uint32_t n, h, w, c; /* a matrix [n][c] has h = w = 1 */
};

/* ---- device ---- */

/* How far a backend fuses across operations; one that does not ignores it and computes the same. */
enum device_fusion {
	DEVICE_FUSION_AUTO = 0, /* the furthest that pays in the precision */
	DEVICE_FUSION_NONE = 1, /* every textbook layer by itself: the reference */
	DEVICE_FUSION_B = 2,    /* norm + residual + activation in one pass, forward and backward */
	/* as B, and norms and activations in the prologues and epilogues of convolutions */
	DEVICE_FUSION_C = 3,
};

struct device_options {
	enum device_precision precision;
	/*
	 * CPU: worker threads, the caller's included; 0: as many as affinity and cgroup allow,
	 * shared among the ranks there
	 */
	unsigned threads;
	/* which of several devices; with several ranks, each takes GPU index + local_rank */
	unsigned index;
	struct comm *comm; /* the other ranks; NULL: alone. Must outlive the device */
	/*
	 * check every tensor after every operation; a step fails with -EDOM and device_error()
	 * names the first non-finite one. Slow
	 */
	bool detect_anomaly;
	bool profile; /* time every operation (device_graph_layer); may hinder overlap */
	/* The following may be ignored where they have no meaning. */
	enum device_fusion fusion;
	/*
	 * try kernels on the device instead of trusting a heuristic's order; what wins is kept for
	 * the next time
	 */
	bool autotune;
	/*
	 * fp32: convolutions and matrix products may round their inputs to tf32, 10 bits of
	 * mantissa
	 */
	bool tf32;
	bool deterministic; /* choose only kernels that repeat bit for bit; the CPU's all do */
	/*
	 * most bytes that a graph's arena may take: planning one that takes more fails with
	 * -ENOMEM. 0: what there is
	 */
	uint64_t arena_bytes_max;
	/*
	 * launch every operation of every step; nothing is captured and replayed (tests,
	 * debugging). The same bits
	 */
	bool eager;
};

struct device_info {
	/* of the hardware, its library and instruction set; lives as long as the device */
	const char *name;
	enum device_precision precision; /* resolved, never DEVICE_AUTO */
	unsigned threads;                /* resolved; 0 where it has no meaning */
	/* that there are for the threads of this process; 0: not known, or without meaning */
	unsigned cpus;
	/* per second in this precision, dense, at the highest clock; 0: not known */
	double peak_flops;
	uint64_t memory_bytes; /* free at opening; 0: not known */
};

/*
 * backend: "cpu", "cuda" where it is built in; NULL: the best one that is present. options NULL:
 * defaults. -ENODEV: not built in, no such hardware, or a library of its is missing; -ENOTSUP: it
 * does not support the precision. error may be NULL, else has DEVICE_ERROR_MAX bytes; after success
 * with backend NULL it says why better ones were passed over, else it is "".
 */
int device_open(const char *backend, const struct device_options *options,
		struct device **ret_device, char *error);
/* Accepts NULL. Graphs and stores must have been freed. */
void device_close(struct device *device);
const struct device_info *device_info(const struct device *device);
/* Waits until all queued work is done. */
int device_synchronize(struct device *device);
/*
 * Text of the last failure at run time, "" when there was none; valid until the next call on the
 * device.
 */
const char *device_error(const struct device *device);

/* ---- parameters and optimizer ---- */

struct device_param_spec {
	/* copied; unique in its store, as in the checkpoint: "layer1.0.conv1.weight" */
	const char *name;
	enum device_param_kind kind;
	uint32_t shape[4]; /* as the kind says, unused ones 0 */
	uint32_t group;    /* < DEVICE_GROUPS_MAX: index into device_hyper's arrays */
	float lr_factor;   /* on the learning rate of its group; 0 counts as 1 */
	uint32_t start;    /* < DEVICE_STARTS_MAX: index into device_hyper.begun */
	bool frozen;       /* no gradient is computed, no update made */
	/* frozen, and part of the network's description: files need not have it */
	bool constant;
	/* of the first or the last layer: optimizers by_matrix do not take it for a matrix */
	bool outer;
};

struct device_optimizer_spec {
	enum device_optimizer_kind kind;
#define OPTION(name, ...) bool name;
#define COUNT(name, ...)  uint32_t name;
	DEVICE_OPTIMIZER_KEYS(DEVICE_NO_KEY, OPTION, COUNT)
#undef COUNT
#undef OPTION
	/*
	 * SGD, LARS, Adam: decay is added to the gradient (L2, as torch.optim.SGD); else decoupled:
	 * w -= lr * decay * w (Loshchilov and Hutter, SGDW)
	 */
	bool coupled_decay;
	bool ema;      /* keep DEVICE_EMA */
	bool perturbs; /* keep DEVICE_SAVED: device_hyper.perturb may be set */
#define KEEP(constant, name, ...) bool name;
	DEVICE_AVERAGES(KEEP) /* keep that average */
#undef KEEP
	/* of the gradient of each of a weight's outputs, the mean is subtracted (Yong et al. 2020)
	 */
	bool centralize;
	/* largest magnitude of the scaled gradients' elements, after clip_norm; 0: no clipping */
	float clip_value;
};

/*
 * Hyperparameters of one update. Read during the call; a captured step reads them from memory, so
 * that they may change every step.
 */
struct device_hyper {
	float lr[DEVICE_GROUPS_MAX];           /* per group */
	float weight_decay[DEVICE_GROUPS_MAX]; /* per group */
#define NUMBER(name, ...) float name; /* momentum and so on: what the optimizers' files say */
	DEVICE_OPTIMIZER_KEYS(NUMBER, DEVICE_NO_KEY, DEVICE_NO_KEY)
#undef NUMBER
	/*
	 * by start: updates that had been made when such parameters began to be trained, from which
	 * Adam's corrections count; 0: from the first
	 */
	uint64_t begun[DEVICE_STARTS_MAX];
	/*
	 * ema = decay * ema + (1 - decay) * w, after the update; 0 copies, as the store's first
	 * update does in any case; 1 leaves it alone
	 */
	float ema_decay;
	/*
	 * whenever the EMA is updated, values that are not frozen are set to it: w = ema (Zhang et
	 * al. 2019)
	 */
	bool lookahead;
	float grad_scale; /* multiplies gradients first: 1 / micro-batches. 0 counts as 1 */
	float clip_norm;  /* largest global L2 norm of the scaled gradients; 0: no clipping */
	/*
	 * above 0: in place of an update, values move by this norm along the gradient, which is
	 * dropped (optimizers/perturb.h). Steps from then on leave running statistics alone, until
	 * the next update, which is of the values as they were
	 */
	float perturb;
	/*
	 * how far each average moves to the values after the update, be it made or skipped: average
	 * += share (value - average); 1 copies, 0 leaves it alone
	 */
#define SHARE(constant, name, ...) float name;
	DEVICE_AVERAGES(SHARE)
#undef SHARE
};

/* Counters of a store, for checkpoints: the rest of its state are the slots. */
struct device_params_state {
	uint64_t updates;   /* made */
	uint64_t skipped;   /* because a gradient was not finite */
	double loss_scale;  /* 1 without loss scaling */
	uint64_t scale_age; /* updates since loss_scale last changed */
};

int device_params_new(struct device *device, struct device_params **ret_params);
void device_params_free(struct device_params *params); /* accepts NULL */
/*
 * Declares a parameter. -EEXIST, -EINVAL (device_error says which field), -EBUSY: already
 * allocated. Pointers live as long as the store.
 */
int device_param_add(struct device_params *params, const struct device_param_spec *spec,
		     struct device_param **ret_param);
/* Sets its lr_factor, above 0. -EBUSY: already allocated. */
int device_param_scale_rate(struct device_param *param, float lr_factor);
/*
 * Whether updates leave it alone (spec.frozen); of a buffer, whether norms do. Graphs that are
 * planned go on as they were: plan those anew that are for training.
 */
void device_param_freeze(struct device_param *param, bool frozen);
/* Sets its outer, before the store is allocated. */
void device_param_set_outer(struct device_param *param);
/* Sets its start, before the store is allocated. */
void device_param_set_start(struct device_param *param, uint32_t start);
/*
 * Allocates every slot, zero-filled, and closes the store to additions. optimizer NULL: evaluation
 * only (DEVICE_VALUE alone).
 */
int device_params_allocate(struct device_params *params,
			   const struct device_optimizer_spec *optimizer);
size_t device_params_count(const struct device_params *params);
/* in order of addition; NULL past the end */
struct device_param *device_params_at(const struct device_params *params, size_t index);
/* NULL: none */
struct device_param *device_params_find(const struct device_params *params, const char *name);
const struct device_param_spec *device_param_spec(const struct device_param *param);
size_t device_param_elements(const struct device_param *param); /* product of its shape */
/* Of the store's largest parameter; at least 1. */
size_t device_params_largest(const struct device_params *params);
/* NULL: evaluation only. */
const struct device_optimizer *device_params_optimizer(const struct device_params *params);
/* Whether what the slot holds counts from update to update, and so belongs into a checkpoint. */
bool device_slot_lasts(enum device_slot slot);
/* Whether an allocated parameter has the slot. */
bool device_param_has(const struct device_param *param, enum device_slot slot);
/*
 * Copies a whole slot from or to dense fp32 in host layout; waits for queued work. -ENOENT: the
 * parameter has no such slot.
 */
int device_param_write(struct device_param *param, enum device_slot slot, const float *values);
int device_param_read(struct device_param *param, enum device_slot slot, float *ret_values);
/*
 * Forgets the gradients summed since the last update: after a step that failed, or micro-batches
 * that were only for their statistics.
 */
void device_params_drop_gradients(struct device_params *params);
int device_params_get_state(struct device_params *params, struct device_params_state *ret_state);
int device_params_set_state(struct device_params *params, const struct device_params_state *state);

/* ---- recording a graph ---- */

struct device_graph_options {
	enum device_mode mode;
	/*
	 * every value and gradient keeps memory of its own, readable after a step (tests,
	 * debugging); else memory is shared by lifetime
	 */
	bool keep_all;
	/*
	 * training: blocks (device_block()) in a segment of which backward computes anew what it
	 * takes of the forward pass, from the segment's input (Chen et al. 2016, arXiv:1604.06174,
	 * section 3). Losses, gradients and running statistics are the same, bit for bit. 0, or
	 * with keep_all: everything is kept
	 */
	uint32_t recompute;
};

int device_graph_new(struct device_params *params, const struct device_graph_options *options,
		     struct device_graph **ret_graph);
void device_graph_free(struct device_graph *graph); /* accepts NULL; waits for queued work */

/*
 * Recording functions return the result, owned by the graph. A mistake (shapes that do not fit, a
 * missing parameter) returns NULL; NULL as an input gives NULL; device_graph_plan() reports the
 * first mistake. So a model is recorded without a check per line. Names are copied; they appear in
 * errors, profiles and plans. The same recording serves both modes.
 */
struct device_shape device_value_shape(const struct device_value *value); /* zeros for NULL */

struct device_input_spec {
	const char *name;
	/* c: up to 4 for u8 batches, else any number; the backend pads if it wants */
	struct device_shape shape;
	float mean[4], std[4]; /* per channel in 0..255, for u8 batches: (x - mean) / std */
	bool gradient;         /* compute the gradient of the input too (tests) */
	/*
	 * batches may be of another size, have rows and columns left out, and blend their samples
	 * (struct device_batch); else they are as they are, which is faster
	 */
	bool resamples;
};
/* The batch as the loop feeds it, normalised: [n][h][w][c]. One per graph. */
struct device_value *device_input(struct device_graph *graph, const struct device_input_spec *spec);

/*
 * What is recorded from here to the next call is a block of the net, as a residual block is one:
 * what lies before the first, too.
 */
void device_block(struct device_graph *graph);

struct device_norm {
	struct device_param *gamma, *beta; /* [K] */
	/*
	 * [K], buffers; both frozen: training normalises by them, as evaluation does, and they stay
	 */
	struct device_param *running_mean, *running_var;
	float epsilon; /* added to the variance; 1e-5 usually */
	/*
	 * running = (1 - momentum) * running + momentum * batch; the variance unbiased there,
	 * biased in the batch; 0.1 usually
	 */
	float momentum;
	/*
	 * statistics of the global batch; false: each rank normalises by those of its own share,
	 * and keeps running ones of its own
	 */
	bool synchronized;
	/*
	 * above 0: training normalises groups of at most so many samples by statistics of their own
	 * (ghost batch normalization: Hoffer et al. 2017, arXiv:1705.08741, section 4). Each moves
	 * the running ones, in order, by momentum / groups, as Composer's GhostBatchNorm has it.
	 * Not with synchronized
	 */
	uint32_t ghost;
};
/*
 * Groups of like size that ghost batch normalization makes of so many samples, the last perhaps
 * smaller; 1 with ghost 0. ret_each: samples of the others.
 */
uint32_t device_norm_groups(uint32_t samples, uint32_t ghost, uint32_t *ret_each);

/*
 * y = activation(norm(conv(x, weight)) + residual), or activation(conv(x, weight) + bias +
 * residual) without a norm.
 */
struct device_conv_spec {
	const char *name;
	/* [K][R][S][C / groups], C as x's; K is a multiple of the groups that this implies */
	struct device_param *weight;
	struct device_param *bias;      /* [K] or NULL; must be NULL with a norm */
	const struct device_norm *norm; /* NULL: none */
	uint32_t stride;                /* both ways, from 1 */
	uint32_t pad;                   /* zeros on all four sides */
	uint32_t pad_extra; /* zeros below and to the right beyond those, as even windows need */
	struct device_value *residual; /* [n][p][q][K] or NULL */
	enum device_activation activation;
};
/*
 * x [n][h][w][C] -> [n][p][q][K], p = (h + 2 pad + pad_extra - R) / stride + 1, q likewise. Each of
 * the groups, C / weight's channels of them, makes its share of the output channels from its share
 * of the input's, both in order; with one channel a group the convolution is depthwise.
 */
struct device_value *device_conv(struct device_graph *graph, struct device_value *x,
				 const struct device_conv_spec *spec);

/*
 * y = activation(norm(x) + residual), for nets that normalise before the convolution. residual may
 * be NULL.
 */
struct device_value *device_norm(struct device_graph *graph, const char *name,
				 struct device_value *x, const struct device_norm *norm,
				 struct device_value *residual, enum device_activation activation);

struct device_layer_norm_spec {
	const char *name;
	struct device_param *gamma, *beta; /* [c] of x */
	float epsilon; /* 0 counts as 1e-6, what timm's vision transformers have */
};
/*
 * y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, each position by the mean and the
 * biased variance of its own channels (Ba, Kiros, Hinton 2016, arXiv:1607.06450); the same in
 * evaluation.
 */
struct device_value *device_layer_norm(struct device_graph *graph, struct device_value *x,
				       const struct device_layer_norm_spec *spec);

struct device_attention_spec {
	const char *name;
	uint32_t heads; /* that a third of qkv's channels is a multiple of */
	/*
	 * the probability that a key counts as 0 for a query of a head, all others as 1 / (1 - p)
	 * of their probabilities; in evaluation all are as they are
	 */
	float dropout;
};
/*
 * Attention of a sample's T = h w positions to each other, head by head (Vaswani et al. 2017,
 * section 3.2, arXiv:1706.03762): y = softmax(q k^T / sqrt(D)) v. qkv [n][h][w][3 heads D] as one
 * linear layer makes it: q, k and v outermost, then heads; the result is [n][h][w][heads D]. T x T
 * matrices are never kept: backward computes them anew from the logarithms of sums of exponentials.
 */
struct device_value *device_attention(struct device_graph *graph, struct device_value *qkv,
				      const struct device_attention_spec *spec);

struct device_tokens_spec {
	const char *name;
	/*
	 * [T][c], T = h * w, and 1 with a class token; of a `side` that is not 0: side * side, to
	 * be resized where x is of another size (positions.h)
	 */
	struct device_param *positions;
	uint32_t side;
	struct device_param *class_token; /* [1][c], becomes the first; NULL: none */
};
/*
 * x [n][h][w][c] -> [n][1][T][c]: its positions, row by row, as tokens, each with an embedding of
 * its place added (Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1).
 */
struct device_value *device_tokens(struct device_graph *graph, struct device_value *x,
				   const struct device_tokens_spec *spec);
/* [n][h][w][c] -> [n][1][1][c]: one of its positions, which count row by row, from 0. */
struct device_value *device_take(struct device_graph *graph, const char *name,
				 struct device_value *x, uint32_t position);

struct device_pool_spec {
	const char *name;
	/* both ways; pad < window. Maximum ignores padding; average counts only what lies inside */
	uint32_t window, stride, pad;
	uint32_t pad_extra; /* below and to the right beyond pad; both together < window */
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
	/* [O][I], I = h * w * c of x, in that order; by position I = c */
	struct device_param *weight;
	struct device_param *bias;     /* [O] or NULL */
	bool by_position;              /* the same layer at each position, as tokens have it */
	struct device_value *residual; /* shaped as the result, or NULL */
	enum device_activation activation;
};
/*
 * y = activation(x weight^T + bias + residual): x [n][h][w][c] -> [n][1][1][O], by position
 * [n][h][w][O].
 */
struct device_value *device_linear(struct device_graph *graph, struct device_value *x,
				   const struct device_linear_spec *spec);

struct device_scale_add_spec {
	const char *name;
	struct device_value *residual; /* as x, or NULL: 0 */
	/* what x is multiplied by, where it is given: */
	struct device_param *gamma; /* [c] of x (LayerScale: Touvron et al. 2021, section 2.3) */
	/* [n][1][1][c] of x (squeeze and excite: Hu et al. 2018, section 3) */
	struct device_value *gate;
	/*
	 * the probability that a sample's x counts as 0, all others as 1 / (1 - p) of theirs
	 * (stochastic depth: Huang et al. 2016); in evaluation all are as they are, here and below
	 */
	float drop_path;
	float dropout; /* the same of each element by itself (Srivastava et al. 2014) */
	enum device_activation activation; /* identity or ReLU */
};
/* y = activation(residual + s x), s the product of what is given. */
struct device_value *device_scale_add(struct device_graph *graph, struct device_value *x,
				      const struct device_scale_add_spec *spec);

/* What a sample loses; t is its target by class, z are its logits. */
enum device_loss_kind {
	DEVICE_SOFTMAX = 0, /* cross-entropy: - sum of t log softmax(z) */
	/*
	 * binary cross-entropy of each class by itself, - t log sigmoid(z) - (1 - t) log(1 -
	 * sigmoid(z)), mean over the classes
	 */
	DEVICE_SIGMOID = 1,
	/*
	 * Kullback-Leibler divergence, sum of t (log t - log softmax(z / temperature)), times
	 * temperature^2, so that gradients do not shrink with it (Hinton et al. 2015)
	 */
	DEVICE_KL = 2,
};

/* Where targets come from. */
enum device_targets {
	DEVICE_LABELS = 0,     /* 1 for the sample's label, 0 for others */
	DEVICE_TWO_LABELS = 1, /* share for its label, 1 - share for its second one */
	DEVICE_DENSE = 2,      /* a number for each class: struct device_batch.targets */
};

struct device_loss_spec {
	const char *name;
	float smoothing;   /* of targets: (1 - smoothing) * target + smoothing / classes */
	float logit_scale; /* logits are multiplied by it first; 0 counts as 1 */
	enum device_loss_kind kind;
	enum device_targets targets;
	float temperature; /* DEVICE_KL; 0 counts as 1 */
	/*
	 * [classes], copied: each class's part of the loss is multiplied by it, but not with
	 * DEVICE_KL. NULL: all are 1
	 */
	const float *class_weights;
	/*
	 * Share of a teacher in a sample's loss, 0: there is none (Hinton, Vinyals, Dean 2015,
	 * arXiv:1503.02531, section 2): (1 - share) * all of the above + share * temperature^2 *
	 * sum of p (log p - log softmax(z / temperature)), p the softmax of struct
	 * device_batch.teacher / temperature, 0 counts as 1
	 */
	float teacher_weight, teacher_temperature;
};
/*
 * The loss of logits [n][1][1][classes] against the batch's targets, mean over the samples that
 * have one (in training: of the global batch, so that ranks weigh by how many they have), with the
 * counts of samples whose label is among the 1 and 5 largest logits (ties go to the lower class).
 * Of two labels the one with the larger share is that label, with dense targets the class with the
 * largest unless the batch has labels. Softmax with class weights and labels, one or two, is
 * divided by the sum of the labels' weights instead of the number of samples, as
 * torch.nn.CrossEntropyLoss is; a teacher's part is so by the number of samples. Ends a graph. -1
 * from the feed: no label, no loss, no gradient. Returns logits.
 */
struct device_value *device_loss(struct device_graph *graph, struct device_value *logits,
				 const struct device_loss_spec *spec);

/*
 * Chooses kernels, lays out the arena, allocates it, prepares everything. -EINVAL: recording went
 * wrong; -ENOMEM: error names the largest tensors; -ENOTSUP. A training graph differentiates its
 * loss, or, if none was recorded, the sum of <gradient, value> over the values that nothing
 * consumes, with the gradients that device_value_write(DEVICE_GRAD) put there. error as in
 * device_open.
 */
int device_graph_plan(struct device_graph *graph, char *error);

struct device_graph_info {
	uint64_t arena_bytes;    /* activations, gradients, workspaces */
	uint64_t unshared_bytes; /* what they would take without sharing by lifetime */
	/* of one step: multiply and add count as two; convolutions and matrix products only */
	double flops_forward;
	double flops_backward;
	/* least that the operations as planned read and write in one step; 0: not known */
	double bytes_forward, bytes_backward;
	uint32_t layers;
	/*
	 * patterns of the level of fusion that run unfused, as there is no plan for them at their
	 * shape
	 */
	uint32_t fallbacks;
	/*
	 * a line for each of them: layer, pattern, what is done instead; "": none. Lives as long as
	 * the graph
	 */
	const char *fallback_log;
	/*
	 * a failure in planning that the graph works in spite of; "": none. Lives as long as the
	 * device
	 */
	const char *warning;
};
void device_graph_info(const struct device_graph *graph, struct device_graph_info *ret_info);

/* One recorded operation; for plans, profiles and benchmarks. Strings live as long as the graph. */
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

/* What a step did, from begin to end on CLOCK_MONOTONIC. Strings live as long as the call. */
struct device_span {
	const char *name; /* of the operation, or of what else is done, such as "update" */
	const char *kind; /* what was done for it; or "" */
	const char *pass; /* "forward", "backward", "update" or "evaluation" */
	uint64_t begin_ns, end_ns;
};
typedef void device_watch(void *of, const struct device_span *span);
/*
 * From the next step on, watch is told of all that the device does in one, in order and without
 * overlap, before the call that queued it returns; NULL: no longer. Results stay the same, bit for
 * bit, but each operation is launched by itself, and steps are waited for.
 */
void device_watch_steps(struct device *device, device_watch *watch, void *of);

/* ---- running ---- */

/* Outcomes of device_register_host */
#define DEVICE_STAGED         1
#define DEVICE_WANTS_WRITABLE 2

/*
 * Announces host memory that batches will be fed from, such as a feed's ring, so that the device
 * may lock its pages and copy from them by DMA. It is only read; `writable` says whether its
 * mapping is writable. Batches from other memory work too. 0: batches are copied directly from it;
 * DEVICE_STAGED: they are copied to the device's own page-locked memory first, device_error() says
 * why; DEVICE_WANTS_WRITABLE: the same, but if the memory is mapped writable and announced again,
 * direct copies may be possible. -EEXIST: it overlaps memory announced before.
 */
int device_register_host(struct device *device, const void *memory, size_t bytes, bool writable);
/*
 * Undoes device_register_host(), before the memory is unmapped; waits for copies that still read
 * it. Accepts what was never announced, and NULL.
 */
void device_unregister_host(struct device *device, const void *memory);

#define DEVICE_SHRINK_MAX 4 /* images may be so many times as high and wide as the input */

/* What a sample takes of another of its batch: in a box all, elsewhere a share. */
struct device_blend {
	uint32_t partner; /* its index in the batch; perhaps its own */
	float share;      /* of its own pixels outside the box, 0..1; the rest is the partner's */
	/* of the input: rows top to bottom - 1, columns left to right - 1; may be empty */
	uint32_t top, bottom, left, right;
};

/*
 * What random draws of a training step depend on, beside the layer: the same numbers, the same
 * draws, on every device.
 */
struct device_draws {
	uint64_t seed;
	uint64_t step;  /* of the update that the batch is for, in all its parts */
	uint32_t first; /* of the batch's samples, in the global batch */
};

/*
 * Images and labels may lie in memory that others can change, such as a feed's ring: each label is
 * read once, and checked in the copy. All else is the caller's own.
 */
struct device_batch {
	const void *images;    /* [count][h][w][channels], dense, of element */
	const int32_t *labels; /* [count], -1: none; NULL: none at all */
	/* samples; a training graph wants exactly its n, an evaluation graph takes fewer */
	uint32_t count;
	uint32_t channels; /* at least the input's; further ones are ignored */
	/* DEVICE_ELEMENT_U8 is normalised, the others are taken as they are */
	enum device_element element;
	bool flip; /* mirror left to right (test-time augmentation) */
	/*
	 * [count], of bytes of 3 or 4 channels: what is done to the images first, which are of
	 * delivered_height x delivered_width then, and become height x width, both given; NULL:
	 * nothing. As deferred_read() leaves them.
	 */
	const struct deferred *deferred;
	uint32_t delivered_height, delivered_width;
	/*
	 * DEVICE_TWO_LABELS: [count] each, the second label and the first one's share, 0..1; both
	 * NULL: every sample has one label. -1: that sample has one
	 */
	const int32_t *labels2;
	const float *shares;
	/*
	 * DEVICE_DENSE: [count][classes], finite and at least 0; the labels then only say what is
	 * right, and without them, or where one is -1, it is the largest target
	 */
	const float *targets;
	/*
	 * with teacher_weight: [count][classes], finite, the teacher's logits; else NULL.
	 * teacher_kept: they are where device_logits_keep() left them, before logit_scale, and
	 * nobody looks whether they are finite; teacher_scale: that, 0 counts as 1
	 */
	const float *teacher;
	bool teacher_kept;
	float teacher_scale;
	/*
	 * The following need device_input_spec.resamples. Arithmetic is fp32; a share is of
	 * normalised pixels, which is the same as of bytes.
	 *
	 * Size of the images, 0: the input's. Others are resized, bilinearly with antialiasing, as
	 * torchvision resizes floats.
	 */
	uint32_t height, width;
	/*
	 * [h], [w] of the input: rows and columns of the images that it is made of, instead of
	 * resizing that way; NULL: none
	 */
	const uint32_t *rows, *columns;
	const struct device_blend *blends; /* [count], after resizing; NULL: none */
	struct device_draws draws;         /* training graphs with operations that draw */
};

/* Bytes of an image, of batches that say what size they have. */
size_t device_batch_image(const struct device_batch *batch);

/*
 * Queues the copy of the next step's batch. One batch may be fed while the previous step still
 * runs. The batch's memory must stay until device_fed() says so: ret_ticket names the copy.
 * -EINVAL: it does not fit the graph; -EBUSY: the one fed before has not been used.
 */
int device_feed(struct device_graph *graph, const struct device_batch *batch, uint64_t *ret_ticket);
/* 0: the memory behind the ticket may be released; -EAGAIN: not yet (never with wait). */
int device_fed(struct device_graph *graph, uint64_t ticket, bool wait);

/*
 * Queues forward and backward on the batch fed last, adding to the gradients (the first since an
 * update overwrites), and with hyper also the update: optimizer, EMA, loss scale. hyper NULL: a
 * micro-batch, gradients only, and only this rank's. Before an update the ranks' gradients are
 * summed, bucket by bucket as backward completes them, so norm, clipping and update see the sum. An
 * update whose gradients are not all finite is skipped, and counted. Numbers steps from 1. -EINVAL:
 * nothing was fed, or not a training graph; -EDOM: see detect_anomaly.
 */
int device_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step);
/*
 * Queues a training graph's forward pass alone, with the statistics of the batch: for its loss, and
 * with moves_statistics also to move the running ones. Gradients summed so far stay.
 */
int device_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
/*
 * Computes the gradients of the batch fed last as a step does, and forgets them, and all that were
 * summed since the last update: nothing else changes, no rank waits for another. What libraries and
 * drivers allocate for a graph's first steps, beside what was planned, is allocated then, part of
 * it in a second rehearsal; where there is no memory for it, -ENOMEM is known before anything
 * depends on it. Waits.
 */
int device_rehearse(struct device_graph *graph);
/*
 * Queues forward with running statistics and the weights of `weights` (DEVICE_VALUE, DEVICE_EMA or
 * an average that has buffers); an evaluation graph only.
 */
int device_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);

/* Of all ranks after a training step, of this rank alone after an evaluation. */
struct device_results {
	uint64_t step;
	uint32_t samples;    /* that had a label */
	uint32_t top1, top5; /* of those */
	double loss;         /* mean over them */
	/* global L2 norm after grad_scale, before clipping; 0 without an update */
	double grad_norm;
	double loss_scale; /* in force during the step */
	bool updated;      /* an update was made */
	bool skipped;      /* an update was due, but a gradient was not finite */
};
/*
 * Results of a step come back asynchronously. -EAGAIN: not yet there (never with wait, and the same
 * on all ranks); -ERANGE: more than DEVICE_RESULTS_MAX steps ago, or not yet run.
 */
int device_results(struct device_graph *graph, uint64_t step, bool wait,
		   struct device_results *ret_results);
/* Logits of the last step, before logit_scale: [n][classes]. Waits. */
int device_logits(struct device_graph *graph, float *ret_logits);
/*
 * Memory for logits that stay on the device, for batches of its other graphs; zeros. -ENOTSUP: the
 * device's memory is the host's, where device_logits() leaves them as well.
 */
int device_memory_new(struct device *device, size_t count, float **ret_memory);
/* Waits for queued work. NULL: nothing. */
void device_memory_free(struct device *device, float *memory);
int device_memory_read(struct device *device, const float *memory, size_t count, float *ret_values);
/*
 * As device_logits(), to such memory or a part of it, for steps that are queued later. Does not
 * wait.
 */
int device_logits_keep(struct device_graph *graph, float *memory);
/*
 * The last step's loss by sample, [n], of this rank: 0 where there is no target; with class weights
 * as it is weighted, before any division (so a teacher's part is times their mean weight). Waits.
 * -EINVAL: the graph has no loss.
 */
int device_losses(struct device_graph *graph, float *ret_losses);

/*
 * A whole value or its gradient as dense fp32 [n][h][w][c], after a step; waits. Only what the
 * graph keeps: everything with keep_all, otherwise results that nothing consumes. Only their
 * DEVICE_GRAD can be written, in a training graph without a loss. -ENOENT: not kept.
 */
int device_value_read(struct device_graph *graph, const struct device_value *value,
		      enum device_slot slot, float *ret_values);
int device_value_write(struct device_graph *graph, const struct device_value *value,
		       enum device_slot slot, const float *values);

#endif
