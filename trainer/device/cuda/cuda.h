/*
 * The CUDA backend: executes a program (program.h) step by step.
 *
 * A device has two streams, one for computation and one for batch copies, ordered by events; with
 * several ranks a third one for all-reduce. A store keeps each parameter slot contiguous in device
 * memory, plus the copies of weights that convolutions read. A graph has its arena, two staging
 * buffers for batches, and a page-locked ring for step results; after planning nothing is allocated
 * unless a batch is larger than all before. The host waits only where the interface (device.h)
 * says so, or when it is a whole ring ahead.
 *
 * A step is launched operation by operation the first time, captured the second time, and replayed
 * from then on. Operations and their arguments depend only on the variant (enum cuda_variant);
 * everything else that changes between steps is in struct step_arguments. So eager and captured
 * steps compute the same bits.
 */
#pragma once

#include "trainer/device/backend.h"
#include "trainer/device/buckets.h"
#include "trainer/device/cuda/engines.h"
#include "trainer/device/cuda/kernels/input.h"
#include "trainer/device/cuda/kernels/loss.h"
#include "trainer/device/cuda/kernels/update.h"
#include "trainer/device/cuda/lowering/program.h"
#include "trainer/device/cuda/ranks/collective.h"
#include "trainer/device/cuda/step.h"

#define CUDA_REGISTERED_MAX 8  /* registered ranges of host memory */
#define CUDA_TICKETS        16 /* batch copies with a separate event */

/* Host memory that the device copies from by DMA. */
struct cuda_registered {
	const char *memory; /* NULL if the entry is unused */
	size_t bytes;
	bool staged; /* could not be registered */
};

struct cuda_device {
	struct device base;
	struct gpu_properties gpu;
	unsigned index;            /* index of the GPU */
	enum cuda_element element; /* element type of activations and their gradients */
	enum device_fusion fusion;
	struct engines engines;
	bool engines_open;
	gpu_stream compute, copy;
	struct collective *collective; /* NULL with a single rank */
	struct collective *group;      /* of device_options.group, or NULL; sums on `compute` */
	gpu_stream reduce;             /* stream for sums over ranks */
	gpu_event ready, reduced;      /* a sum's input is computed; the sum is done */
	unsigned tuner;                /* rank whose tuning results this one uses; may be itself */
	struct kernel_device kernels;  /* launch on `compute` */
	struct cuda_registered registered[CUDA_REGISTERED_MAX];
	char name[448];
};

/*
 * If result is a failure, sets the device's error to `what` and the GPU's error message, and
 * returns result. Otherwise returns 0.
 */
int cuda_check(struct cuda_device *device, int result, const char *what);
/*
 * Allocate if *r is 0 and store a failure in *r; otherwise do nothing and return NULL. So several
 * allocations need one check.
 */
void *cuda_allocate(int *r, uint64_t bytes);
void *cuda_allocate_host(int *r, uint64_t bytes);
gpu_event cuda_event(int *r, bool timing);
/* Copy on the `compute` stream and wait. */
int cuda_copy_in(struct cuda_device *device, void *to, const void *from, uint64_t bytes);
int cuda_copy_out(struct cuda_device *device, void *to, const void *from, uint64_t bytes);
/* True if the whole range is in registered memory. */
bool cuda_is_registered(const struct cuda_device *device, const void *memory, size_t bytes);

/* ---- parameters ---- */

/*
 * A copy of a parameter's value for operations (CUDA_IN_WEIGHTS): [rows][channels] in the device's
 * element type, zero-padded beyond the parameter's channels.
 */
struct cuda_copy {
	void *data;        /* in device memory */
	uint32_t channels; /* 0 if there is no copy */
	bool shared;       /* data is in cuda_params.weights */
};

struct cuda_params {
	/* [device_params_elements()] each in device memory, or NULL; by enum device_slot */
	float *slots[DEVICE_SLOTS];
	struct cuda_copy *copies;          /* [parameters] */
	struct device_params_state *state; /* in device memory */
	bool fresh;                        /* the next micro-batch overwrites gradients */
	/* incremented whenever values, buffers or averages may have changed */
	uint64_t version;
	struct update_chunk *chunks;      /* in device memory, [chunk_count] */
	struct update_chunk *host_chunks; /* the same on the host */
	uint32_t chunk_count;
	double *partial;                  /* in device memory, [chunk_count][UPDATE_NORMS] */
	struct update_decision *decision; /* in device memory */
	struct cuda_matrices *matrices;   /* buffers of a by_matrix optimizer, else NULL */
	/*
	 * of a sharded store, in device memory, else NULL: divided weights of all ranks in the
	 * device's element type [divided], at their offsets, unless DEVICE_VALUE has them; and sums
	 * as in struct update
	 */
	void *weights;
	double *sums, *tensor_sums;
};

int cuda_params_allocate(struct device_params *params);
void cuda_params_release(struct device_params *params);
int cuda_param_write(struct device_param *param, enum device_slot slot,
		     const struct device_range *part, const float *values);
int cuda_param_read(struct device_param *param, enum device_slot slot,
		    const struct device_range *part, float *ret_values);
void cuda_drop_gradients(struct device_params *params);
int cuda_get_state(struct device_params *params, struct device_params_state *ret_state);
int cuda_set_state(struct device_params *params, const struct device_params_state *state);
/*
 * Address of the parameter in that slot, in device memory; NULL if the store lacks the slot. The
 * slot must not be divided.
 */
float *cuda_param_slot(const struct device_param *param, enum device_slot slot);
/*
 * While planning: adds a copy of the parameter's value with `channels` channels in the device's
 * element type, unless it exists. Every update also writes the copy. -ENOTSUP if a copy with
 * another number of channels exists. After the last call, call cuda_params_publish(), which adds
 * the copies to the chunk table of the update kernels.
 */
int cuda_param_prepare(struct device_param *param, uint32_t channels);
int cuda_params_publish(struct device_params *params);
/* The copy, or the value itself if no copy is needed. */
void *cuda_param_copy(const struct device_param *param);
/*
 * Queues an update with the hyperparameters in `arguments`; the update writes its fields of
 * *results. Both are in device memory. Sets the device's error on failure.
 */
int cuda_queue_update(struct device_params *params, const struct step_arguments *arguments,
		      struct device_results *results);
/* Queue a perturbation, or its reversal. Set the device's error on failure. */
int cuda_queue_perturb(struct device_params *params, const struct step_arguments *arguments,
		       struct device_results *results);
int cuda_queue_restore(struct device_params *params);
/*
 * Sharded stores (ranks/shards.c); no-ops otherwise. Queue that all ranks receive what each has
 * updated, and sums over ranks of values[count] in device memory; later computation waits for them.
 * They set the device's error on failure.
 */
int cuda_shards_gather(struct device_params *params);
int cuda_shards_sum(struct device_params *params, double *values, size_t count);
int cuda_params_exchange(struct device_params *params, enum device_slot slot);
/*
 * Queues, on the stream of sums, that this rank's part of a bucket's gradients[count] is added to a
 * divided DEVICE_GRAD. Returns errors of the GPU; pass them to cuda_check().
 */
int cuda_add_part(struct device_params *params, const struct bucket *bucket,
		  const float *gradients);
/*
 * Queues, on the stream of sums, the copy of this rank's part of a bucket's weights to memory, in
 * the device's element type.
 */
int cuda_copy_part(struct device_params *params, const struct device_range *bucket, void *to);
/* Queues the copy of a value, as cuda_param_prepare() makes it, from all ranks' weights. */
int cuda_param_refresh(const struct device_param *param);
/* Describes an update, with pointers in device memory; arguments and results may be NULL. */
struct update cuda_describe_update(struct device_params *params,
				   const struct step_arguments *arguments,
				   struct device_results *results);
/*
 * Creates plans and buffers for the matrix products of a by_matrix optimizer; no-op for other
 * optimizers. Sets the device's error on failure.
 */
int cuda_matrices_new(struct device_params *params, struct cuda_matrices **ret_matrices);
void cuda_matrices_free(struct cuda_matrices *matrices); /* accepts NULL */
/* Queues the orthogonalization; call it between update_prepare() and update_apply(). */
int cuda_queue_matrices(struct device_params *params, const struct update *update);
/* Reads the current loss scale from device memory; waits for the GPU. */
int cuda_loss_scale(struct device_params *params, double *ret_scale);

/* ---- graphs ---- */

/*
 * Step variants, as bit masks. Each variant is captured separately. Training and evaluation use
 * different bits, with overlapping values.
 */
enum cuda_variant {
	/* training: add to the gradients of earlier micro-batches */
	CUDA_VARIANT_ADDS = 1,
	CUDA_VARIANT_UPDATES = 2,  /* training: followed by an update or a perturbation */
	CUDA_VARIANT_PERTURBS = 4, /* training: that is a perturbation; set together with UPDATES */
	/* training: values are perturbed; the update first restores them */
	CUDA_VARIANT_PERTURBED = 8,
	CUDA_VARIANT_HOLDS = 16,   /* training: running statistics stay unchanged */
	CUDA_VARIANT_FORWARD = 32, /* training: only the forward pass */
	/* training: no sums over ranks (cuda_warmup()) */
	CUDA_VARIANT_WARMS_UP = 64,
	CUDA_VARIANT_EMA = 1, /* evaluation: read the EMA instead of values */
	CUDA_VARIANT_SWA = 4, /* evaluation: read the SWA average instead of values */
	/*
	 * evaluation: skip constant operations (cuda_op_def), which already ran for an earlier
	 * batch
	 */
	CUDA_VARIANT_READY = 2,
	CUDA_VARIANTS = 128,
};

/*
 * A batch buffer in device memory. `host` is a page-locked buffer for batches whose memory is not
 * registered.
 */
struct cuda_staging {
	void *images, *host;
	void *targets; /* in device memory, with the layout of device_targets_fill() */
	void *changes; /* in device memory, with the layout of device_changes_fill(), or NULL */
	uint64_t bytes, host_bytes; /* sizes of images and host; host is allocated on first use */
	gpu_event used, fed;        /* its last reader has run; the copy into it is done */
	/*
	 * for batches with deferred operations: the images as delivered and the operations;
	 * allocated for the first such batch
	 */
	void *delivered, *deferred;
	uint64_t delivered_bytes, deferred_bytes;
};

/* A batch copy in flight. */
struct cuda_ticket {
	gpu_event event;
	bool staged; /* the batch was copied through staging.host, so its memory is already free */
	void *targets;  /* page-locked, with the layout of device_targets_fill() */
	void *changes;  /* page-locked, with the layout of device_changes_fill(), or NULL */
	void *deferred; /* page-locked copy of deferred operations; allocated on first use */
};

/* A gradient set by device_value_write(). */
struct cuda_grad_output {
	struct cuda_tensor *tensor;
	float *values; /* on the host; NULL for zeros */
	double scale;  /* the loss scale that the tensor is multiplied by */
};

/* A range of elements in the gradient slot. */
struct cuda_range {
	size_t offset, count;
};

/* Memory that buckets of gradients take in turn, if the store keeps parts of gradients. */
struct cuda_turn {
	float *memory; /* in device memory, [elements] */
	size_t elements;
	gpu_event summed; /* the last bucket in it is summed */
	uint32_t last;    /* while planning: that bucket */
};

/* State of a training graph with several ranks. */
struct cuda_ranks {
	const struct cuda_op *loss; /* or NULL */
	struct loss_totals *totals; /* in device memory */
	struct buckets buckets;
	uint32_t complete[BUCKETS_MAX]; /* operation after which the bucket's all-reduce starts */
	uint32_t started;               /* buckets started in the current step */
	uint64_t awaited;               /* last step whose results the host has waited for */
	/*
	 * only if the store keeps parts of gradients: where operations write whole ones
	 * [parameters], and which of them they do not write; of each bucket its memory, the
	 * operation that writes to it first, and whether that waits for an earlier bucket
	 */
	float **gradients;
	bool *untouched;
	struct cuda_turn turns[BUCKETS_MAX];
	uint32_t turn_count;
	uint32_t turn[BUCKETS_MAX], begin[BUCKETS_MAX];
	bool waits[BUCKETS_MAX];
};

/*
 * Gathers of a graph's weights, by bucket: an event after the last one, and whether nothing has
 * waited for that yet.
 */
struct cuda_gathers {
	gpu_event gathered[DEVICE_SHARD_BUCKETS_MAX];
	bool awaited[DEVICE_SHARD_BUCKETS_MAX];
};

/* What the backend executes for a planned device_graph. */
struct cuda_exec {
	struct device_graph *graph;
	struct cuda_device *device;
	struct cuda_program *program;
	char *arena;     /* in device memory, like the next five */
	void *workspace; /* shared by the kernels of kernels/ */
	struct step_arguments *arguments;
	struct device_results *results;
	uint64_t *anomaly;          /* `first` of elementwise_check; NULL without detect_anomaly */
	float *scratch;             /* for logits as fp32 without padding; NULL if not needed */
	struct cuda_tensor *logits; /* or NULL */
	float *losses;        /* [n] losses of the last step; device memory, like class_weights */
	float *class_weights; /* [classes], or NULL */

	/*
	 * rings of DEVICE_RESULTS_MAX entries, indexed by step number modulo that; result_ring is
	 * page-locked
	 */
	struct device_results *result_ring;
	gpu_event done[DEVICE_RESULTS_MAX];
	uint64_t steps;

	struct cuda_staging staging[2];
	struct cuda_ticket tickets[CUDA_TICKETS];
	uint64_t ticket;             /* number of the last copy, 0 if there is none */
	bool fed;                    /* the batch in staging[ticket % 2] waits for a step */
	struct step_arguments batch; /* the arguments that describe this batch */

	struct cuda_ranks ranks;
	struct cuda_gathers gathers;

	gpu_graph captured[CUDA_VARIANTS];
	struct comm_sent captured_sent[CUDA_VARIANTS]; /* bytes that a replay sends */
	bool warm[CUDA_VARIANTS];  /* ran once, operation by operation, and can be captured */
	enum cuda_variant variant; /* variant of the current step */
	/* evaluation: version of the store that constant operations have run for; 0 if none */
	uint64_t constant;
	enum device_slot constant_slot; /* the slot that constant operations read */
	struct cuda_range *untouched;   /* [untouched_count] gradients that no operation writes */
	uint32_t untouched_count;
	struct cuda_grad_output *grad_outputs; /* [grad_output_count], without a loss */
	uint32_t grad_output_count;

	gpu_event *times;          /* [operations + 2], with profile or device_watch() */
	struct cuda_layer *layers; /* [nodes] */
	uint64_t runs;
	char *error; /* valid while planning */
};

/* A node's data for device_graph_layer(). */
struct cuda_layer {
	char engine[160];
	double flops[2], bytes[2], seconds[2]; /* forward, backward */
};

int cuda_graph_plan(struct device_graph *graph, char *error);
void cuda_graph_release(struct device_graph *graph);
/* Creates the events between operations, unless they exist. */
int cuda_plan_times(struct cuda_exec *exec);
/* Fills in exec->layers from the program; the next two read it. */
int cuda_make_layers(struct cuda_exec *exec);
void cuda_graph_info(const struct device_graph *graph, struct device_graph_info *info);
void cuda_graph_layer(const struct device_graph *graph, uint32_t index,
		      struct device_layer_info *info);
int cuda_upload(struct device_graph *graph, const struct device_batch *batch, uint64_t *ret_ticket);
int cuda_upload_done(struct device_graph *graph, uint64_t ticket, bool wait);
int cuda_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step);
int cuda_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
int cuda_warmup(struct device_graph *graph);
int cuda_evaluate(struct device_graph *graph, enum device_slot weights, uint64_t *ret_step);
int cuda_results(struct device_graph *graph, uint64_t step, bool wait,
		 struct device_results *ret_results);
int cuda_logits(struct device_graph *graph, float *ret_logits);
int cuda_logits_keep(struct device_graph *graph, float *memory);
int cuda_memory_new(struct device *device, size_t count, float **ret_memory);
void cuda_memory_free(struct device *device, float *memory);
int cuda_memory_read(struct device *device, const float *memory, size_t count, float *ret_values);
int cuda_losses(struct device_graph *graph, float *ret_losses);
int cuda_value_read(struct device_graph *graph, const struct device_value *value,
		    enum device_slot slot, float *ret_values);
int cuda_value_write(struct device_graph *graph, const struct device_value *value,
		     enum device_slot slot, const float *values);
/* Called before a step: rescales gradients of outputs to the current loss scale. */
int cuda_rescale_grad_outputs(struct cuda_exec *exec);

/* Address of a tensor for the current variant. */
void *cuda_tensor_data(const struct cuda_exec *exec, const struct cuda_tensor *tensor);
/* Queues an operation (execute/). */
int cuda_execute(struct cuda_exec *exec, const struct cuda_op *op);
struct loss_arguments cuda_loss_arguments(const struct cuda_exec *exec, const struct cuda_op *op);
/* Bytes of exec->workspace that the operation needs. */
uint64_t cuda_kernel_workspace(const struct cuda_exec *exec, const struct cuda_op *op);
/* Arguments of a convolution that stores its result. */
struct conv_arguments cuda_conv_arguments(const struct cuda_exec *exec, const struct cuda_op *op);
/*
 * Times the engines' plans for each convolution of the program, on the arena's current contents;
 * the next program gets the fastest. No-op on a rank that uses another rank's results.
 */
int cuda_tune(struct cuda_exec *exec);

/* ---- several ranks; no-ops with one, unless noted ---- */

/* True for a training graph with several ranks that share batches. */
bool cuda_ranks_several(const struct device_graph *graph);

/*
 * Agreement (agree.c). If opening or planning fails on any rank, it fails on all. The error is
 * "rank N: " and the message of the first rank that failed.
 */

/*
 * Checks that all ranks opened their GPUs, and determines which rank tunes for which. `result` and
 * `error` are this rank's. Must not be called with a single rank.
 */
int cuda_ranks_meet(struct cuda_device *device, int result, char *error);
/*
 * Agrees on the outcome of a planning phase; result and error are this rank's. With one rank,
 * returns result.
 */
int cuda_ranks_agree(const struct device_graph *graph, int result, char *error);
/* True if this rank tunes; always true with one rank. */
bool cuda_ranks_tunes(const struct cuda_exec *exec);
/* Imports the tuning results of the rank that tunes for this one. Sets exec->error on failure. */
int cuda_ranks_share(struct cuda_exec *exec);

/* Sums (ranks.c). */

/*
 * Called when the GPU is open, or with the failure in `result`. Either all ranks continue or none
 * does. error as in device_open().
 */
int cuda_ranks_open(struct cuda_device *device, int result, char *error);
void cuda_ranks_close(struct cuda_device *device);
int cuda_ranks_plan(struct cuda_exec *exec);
/* -ENOTSUP on all ranks if they have planned different orders of sums. */
int cuda_ranks_compare(struct cuda_exec *exec);
void cuda_ranks_release(struct cuda_exec *exec);
/* Makes the stream of sums wait for computation so far, and computation for sums so far. */
int cuda_ranks_fork(struct cuda_device *device);
int cuda_ranks_join(struct cuda_device *device);
/* Where operations write a gradient of which the store keeps a part; NULL for other gradients. */
float *cuda_ranks_gradient(const struct cuda_exec *exec, const struct device_param *param);
/* True if the operation needs sums over all ranks, like those of a synchronized norm. */
bool cuda_ranks_sums(const struct cuda_exec *exec, const struct cuda_op *op);
/* Queues the sum over the group of a product's result, in place. */
int cuda_ranks_sum_product(struct cuda_exec *exec, const struct cuda_op *op);
/* Queues the sum over the group of values[count], in device memory. */
int cuda_ranks_sum_group(struct cuda_device *device, double *values, size_t count);
/* Queues the all-reduce of SUM and PRODUCTS, in place. */
int cuda_ranks_sum_norm(struct cuda_exec *exec, const struct cuda_op *op);
/*
 * Hooks around the operations of a step. They count labels, all-reduce gradient buckets as they
 * become complete, and at the end make the compute stream wait for all sums.
 */
int cuda_ranks_begin_step(struct cuda_exec *exec);
int cuda_ranks_before(struct cuda_exec *exec, const struct cuda_op *op);
int cuda_ranks_after_op(struct cuda_exec *exec, uint32_t index);
int cuda_ranks_end_step(struct cuda_exec *exec);
/*
 * Gathers of weights (gathers.c): events; the operation GATHER, which a warm-up replaces with
 * zeros; and, before an operation, waiting for the weights that it reads.
 */
int cuda_gathers_plan(struct cuda_exec *exec);
void cuda_gathers_release(struct cuda_exec *exec);
int cuda_gather(struct cuda_exec *exec, const struct cuda_op *op);
int cuda_gathers_before(struct cuda_exec *exec, const struct cuda_op *op);
/*
 * Waits for an event of the compute stream; works with a single rank, too. Returns early if an all-
 * reduce fails. Sets the device's error on failure.
 */
int cuda_ranks_wait(struct cuda_device *device, gpu_event event, const char *what);
