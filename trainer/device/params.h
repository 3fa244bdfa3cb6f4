/*
 * Parameter stores: the named tensors of a model with their gradients, optimizer state and averages
 * (slots), how ranks divide them, the optimizer, and the hyperparameters of an update.
 *
 * Layouts at this interface: convolution weights [K][R][S][C] (output channels, rows, columns,
 * input channels), linear weights [O][I], all dense fp32 on the host. Backends may store them
 * otherwise. Master weights, parameter gradients, batch statistics and optimizer are fp32.
 */
#ifndef TRAINER_DEVICE_PARAMS_H
#define TRAINER_DEVICE_PARAMS_H

#include "trainer/device/optimizers/averages.h"
#include "trainer/device/optimizers/optimizers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_GROUPS_MAX 16 /* parameter groups, each with a learning rate and decay */
#define DEVICE_STARTS_MAX 8  /* distinct update counts at which parameters begin to train */

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

struct device;
struct device_params;
struct device_param;

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

#endif
