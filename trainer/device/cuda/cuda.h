/*
 * The CUDA backend: what executes a program (program.h) step by step.
 *
 * A device has two streams, one for computing and one for copies of batches, ordered by events;
 * with several ranks a third one for all-reduce. A store keeps each slot of its parameters
 * contiguous in device memory, and the copies of weights that convolutions read. A graph keeps its
 * arena, two staging buffers for batches, and a ring in page-locked memory for the results of
 * steps; after planning nothing is allocated unless a batch is larger than any before. The host
 * waits only where device.h says so, or when it is a whole ring ahead.
 *
 * A step's work is launched operation by operation the first time and captured the second; from
 * then on the captured graph is replayed. The operations and their arguments depend only on the
 * variant (enum cuda_variant); everything else that changes from step to step is in struct
 * step_arguments. So both ways compute the same bits.
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

#define CUDA_REGISTERED_MAX 8  /* ranges of host memory that are announced at a time */
#define CUDA_TICKETS        16 /* copies of batches that have an event of their own */

/* Host memory that the device copies from by DMA. */
struct cuda_registered {
	const char *memory; /* NULL: free */
	size_t bytes;
	bool staged; /* could not be registered */
};

struct cuda_device {
	struct device base;
	struct gpu_properties gpu;
	unsigned index;            /* of the GPU */
	enum cuda_element element; /* of activations and their gradients */
	enum device_fusion fusion;
	struct engines engines;
	bool engines_open;
	gpu_stream compute, copy;
	struct collective *collective; /* with several ranks, else NULL; and: */
	gpu_stream reduce;             /* sums over ranks are queued here */
	gpu_event ready, reduced;      /* a sum's input has been computed; the sum is done */
	unsigned tuner;                /* the rank that tunes for this one, perhaps itself */
	struct kernel_device kernels;  /* launch on `compute` */
	struct cuda_registered registered[CUDA_REGISTERED_MAX];
	char name[448];
};

/*
 * Sets the device's error to `what` and the GPU's words, and returns result if it is a failure,
 * else 0.
 */
int cuda_check(struct cuda_device *device, int result, const char *what);
/*
 * Of what is made in several parts: these do nothing and return NULL once *r is a failure, which is
 * that of the first part that could not be made.
 */
void *cuda_allocate(int *r, uint64_t bytes);
void *cuda_allocate_host(int *r, uint64_t bytes);
gpu_event cuda_event(int *r, bool timing);
/* Copies on `compute` that wait until they are done. */
int cuda_copy_in(struct cuda_device *device, void *to, const void *from, uint64_t bytes);
int cuda_copy_out(struct cuda_device *device, void *to, const void *from, uint64_t bytes);
/* Whether all of it lies in registered memory. */
bool cuda_is_registered(const struct cuda_device *device, const void *memory, size_t bytes);

/* ---- parameters ---- */

/*
 * A parameter's value as operations read it (CUDA_IN_WEIGHTS): [rows][channels] in the device's
 * element, 0 beyond its own channels.
 */
struct cuda_copy {
	void *data;        /* in device memory */
	uint32_t channels; /* 0: there is none */
};

struct cuda_params {
	/* [device_params_elements()] each in device memory, or NULL; by enum device_slot */
	float *slots[DEVICE_SLOTS];
	struct cuda_copy *copies;          /* [parameters] */
	struct device_params_state *state; /* in device memory */
	bool fresh;                        /* the next gradients overwrite */
	/* of values, buffers and averages: counts what may have changed them */
	uint64_t version;
	struct update_chunk *chunks;      /* in device memory, [chunk_count] */
	struct update_chunk *host_chunks; /* the same on the host */
	uint32_t chunk_count;
	double *partial;                  /* in device memory, [chunk_count][UPDATE_NORMS] */
	struct update_decision *decision; /* in device memory */
	struct cuda_matrices *matrices;   /* of an optimizer by_matrix, else NULL */
};

int cuda_params_allocate(struct device_params *params);
void cuda_params_release(struct device_params *params);
int cuda_param_write(struct device_param *param, enum device_slot slot, const float *values);
int cuda_param_read(struct device_param *param, enum device_slot slot, float *ret_values);
void cuda_drop_gradients(struct device_params *params);
int cuda_get_state(struct device_params *params, struct device_params_state *ret_state);
int cuda_set_state(struct device_params *params, const struct device_params_state *state);
/* Elements of the parameter, in device memory; NULL: no such slot. */
float *cuda_param_slot(const struct device_param *param, enum device_slot slot);
/*
 * While planning: makes a copy of the parameter's value in the device's element with that many
 * channels, unless there is one; every update writes it too. -ENOTSUP: it has a copy with another
 * number. After the last one call cuda_params_publish(), which tells the update.
 */
int cuda_param_prepare(struct device_param *param, uint32_t channels);
int cuda_params_publish(struct device_params *params);
/* The copy, or, where it would be the same, the value itself. */
void *cuda_param_copy(const struct device_param *param);
/*
 * Queues an update with the hyperparameters in `arguments`, which writes its part of *results; both
 * in device memory. The error is the device's.
 */
int cuda_queue_update(struct device_params *params, const struct step_arguments *arguments,
		      struct device_results *results);
/* The same of a perturbation, and its undoing; errors are the GPU's (cuda_check()). */
int cuda_queue_perturb(struct device_params *params, const struct step_arguments *arguments,
		       struct device_results *results);
int cuda_queue_restore(struct device_params *params);
/*
 * Of optimizers by_matrix: plans of their products and what these need; nothing for others. The
 * error is the device's.
 */
int cuda_matrices_new(struct device_params *params, struct cuda_matrices **ret_matrices);
void cuda_matrices_free(struct cuda_matrices *matrices); /* accepts NULL */
/* Between update_prepare() and update_apply(): queues what makes the matrices orthogonal. */
int cuda_queue_matrices(struct device_params *params, const struct update *update);
/* The loss scale in force; waits. */
int cuda_loss_scale(struct device_params *params, double *ret_scale);

/* ---- graphs ---- */

/* Steps that are captured separately: bits for training, and others for evaluation. */
enum cuda_variant {
	/* training: gradients are added to those of earlier micro-batches */
	CUDA_VARIANT_ADDS = 1,
	CUDA_VARIANT_UPDATES = 2,  /* training: an update, or a perturbation, follows */
	CUDA_VARIANT_PERTURBS = 4, /* it is a perturbation */
	/* training: values are perturbed, which the update undoes first */
	CUDA_VARIANT_PERTURBED = 8,
	CUDA_VARIANT_HOLDS = 16,   /* training: running statistics stay */
	CUDA_VARIANT_FORWARD = 32, /* training: nothing but the forward pass */
	/* training: nothing is added up over ranks (cuda_rehearse()) */
	CUDA_VARIANT_REHEARSES = 64,
	CUDA_VARIANT_EMA = 1, /* evaluation: the EMA is read instead of values */
	CUDA_VARIANT_SWA = 4, /* evaluation: the SWA is */
	/* evaluation: constant operations (cuda_operation) have run for an earlier batch */
	CUDA_VARIANT_READY = 2,
	CUDA_VARIANTS = 128,
};

/*
 * A buffer for a batch in device memory, and one in page-locked memory for batches from memory that
 * is not registered.
 */
struct cuda_staging {
	void *images, *host;
	void *targets;              /* in device memory, as device_targets_fill() has them */
	void *changes;              /* there, too, as device_changes_fill() has them, or NULL */
	uint64_t bytes, host_bytes; /* of images and host; host is made when it is first needed */
	gpu_event used, fed;        /* the step that read it has run; the copy into it has */
	/* of batches that came with deferred steps, made when the first comes: their images as the
	 * daemon left them, and the steps */
	void *delivered, *deferred;
	uint64_t delivered_bytes, deferred_bytes;
};

/* Copies of batches under way. */
struct cuda_ticket {
	gpu_event event;
	bool staged;    /* the batch went through staging.host: its own memory is free already */
	void *targets;  /* page-locked, as device_targets_fill() has them */
	void *changes;  /* likewise, as device_changes_fill() has them, or NULL */
	void *deferred; /* likewise, the batch's; made when the first comes */
};

/* A gradient that device_value_write() gave. */
struct cuda_given {
	struct cuda_tensor *tensor;
	float *values; /* on the host; NULL: none, zeros */
	double scale;  /* loss scale that the tensor has */
};

/* Elements of the gradient slot. */
struct cuda_range {
	size_t offset, count;
};

/* Of a training graph among several ranks. */
struct cuda_ranks {
	const struct cuda_op *loss; /* or NULL */
	struct loss_totals *totals; /* in device memory */
	struct buckets buckets;
	uint32_t complete[BUCKETS_MAX]; /* the operation after which a bucket's sum begins */
	uint32_t started;               /* buckets, in the step under way */
	uint64_t awaited;               /* the last step whose results were waited for */
};

struct cuda_graph {
	struct device_graph *graph;
	struct cuda_device *device;
	struct cuda_program *program;
	char *arena;     /* here and in the next five: device memory */
	void *workspace; /* of our own kernels */
	struct step_arguments *arguments;
	struct device_results *results;
	uint64_t *anomaly;          /* with detect_anomaly: as elementwise_check has it */
	float *scratch;             /* logits as dense fp32; NULL: they are */
	struct cuda_tensor *logits; /* or NULL */
	float *losses;              /* [n] of the last step, with a loss; device memory, too: */
	float *class_weights;       /* the loss's, or NULL */

	/*
	 * rings, [DEVICE_RESULTS_MAX]: by step number modulo that many; the first in page-locked
	 * memory
	 */
	struct device_results *result_ring;
	gpu_event done[DEVICE_RESULTS_MAX];
	uint64_t steps;

	struct cuda_staging staging[2];
	struct cuda_ticket tickets[CUDA_TICKETS];
	uint64_t ticket;             /* last given */
	bool fed;                    /* its batch, in staging[ticket % 2], waits for a step */
	struct step_arguments batch; /* what that step will be told of it */

	struct cuda_ranks ranks;

	gpu_graph captured[CUDA_VARIANTS];
	bool warm[CUDA_VARIANTS];  /* has run once, operation by operation */
	enum cuda_variant variant; /* of the step under way */
	/* evaluation: version of the store for which constant operations have run; 0: none */
	uint64_t constant;
	enum device_slot constant_slot; /* and the slot that they read */
	struct cuda_range *untouched;   /* [untouched_count] gradients that no operation writes */
	uint32_t untouched_count;
	struct cuda_given *given; /* [given_count], without a loss */
	uint32_t given_count;

	gpu_event *times;          /* [operations + 2], with profile or when first watched */
	struct cuda_layer *layers; /* [nodes] */
	uint64_t runs;
	char *error; /* while planning */
};

/* What device_graph_layer() tells of a node. */
struct cuda_layer {
	char engine[160];
	double flops[2], bytes[2], seconds[2]; /* forward, backward */
};

int cuda_graph_plan(struct device_graph *graph, char *error);
void cuda_graph_release(struct device_graph *graph);
/* The events between operations, unless they are there. */
int cuda_plan_times(struct cuda_graph *graph);
/* Of the program: graph->layers, from which the next two tell. */
int cuda_make_layers(struct cuda_graph *graph);
void cuda_graph_info(const struct device_graph *graph, struct device_graph_info *info);
void cuda_graph_layer(const struct device_graph *graph, uint32_t index,
		      struct device_layer_info *info);
int cuda_feed(struct device_graph *graph, const struct device_batch *batch, uint64_t *ret_ticket);
int cuda_fed(struct device_graph *graph, uint64_t ticket, bool wait);
int cuda_step(struct device_graph *graph, const struct device_hyper *hyper, uint64_t *ret_step);
int cuda_forward(struct device_graph *graph, bool moves_statistics, uint64_t *ret_step);
int cuda_rehearse(struct device_graph *graph);
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
/*
 * Gradients that were given must carry the loss scale, which an update may have moved. Before a
 * step.
 */
int cuda_rescale_given(struct cuda_graph *graph);

/* Where a tensor lies for the variant under way. */
void *cuda_tensor_data(const struct cuda_graph *graph, const struct cuda_tensor *tensor);
/* Queues one operation (execute/). */
int cuda_execute(struct cuda_graph *graph, const struct cuda_op *op);
struct loss_arguments cuda_loss_arguments(const struct cuda_graph *graph, const struct cuda_op *op);
/* Bytes of graph->workspace that it takes. */
uint64_t cuda_kernel_workspace(const struct cuda_graph *graph, const struct cuda_op *op);
/* Of a convolution that stores its result. */
struct conv_arguments cuda_conv_arguments(const struct cuda_graph *graph, const struct cuda_op *op);
/*
 * Times the engines' plans for each convolution of the program, on whatever data the arena holds,
 * so that the next program gets the fastest. Does nothing on a rank that another one tunes for.
 */
int cuda_tune(struct cuda_graph *graph);

/* ---- several ranks; with one, these do nothing unless it is said ---- */

/*
 * Whether it is a training graph among several ranks: all of them plan it, and step through it,
 * together.
 */
bool cuda_ranks_several(const struct device_graph *graph);

/*
 * What they agree on (agree.c). If one fails all do; the error is then, on every rank, "rank N: "
 * and the message of the first rank that failed.
 */

/*
 * Whether all could open their GPUs, and who tunes for whom. Not to be called with one rank.
 * result, error: this rank's.
 */
int cuda_ranks_meet(struct cuda_device *device, int result, char *error);
/*
 * Whether a part of planning succeeded on all ranks; result and error are this rank's. One rank:
 * returns result.
 */
int cuda_ranks_agree(const struct device_graph *graph, int result, char *error);
/* Whether this rank is to tune. One rank: true. */
bool cuda_ranks_tunes(const struct cuda_graph *graph);
/* Takes over what the rank that tunes for this one has found so far. Sets graph->error. */
int cuda_ranks_share(struct cuda_graph *graph);

/* What they add up (ranks.c). */

/*
 * The GPU is open, or `result` says why it is not: all ranks go on, or none does. error as in
 * device_open().
 */
int cuda_ranks_open(struct cuda_device *device, int result, char *error);
void cuda_ranks_close(struct cuda_device *device);
int cuda_ranks_plan(struct cuda_graph *graph);
/* -ENOTSUP: ranks have planned different orders of sums; all of them find out. */
int cuda_ranks_compare(struct cuda_graph *graph);
void cuda_ranks_release(struct cuda_graph *graph);
/* Whether the operation needs sums over all ranks: those of a synchronized norm. */
bool cuda_ranks_sums(const struct cuda_graph *graph, const struct cuda_op *op);
/* Queues that sum, of SUM and SQUARES in place. */
int cuda_ranks_sum_norm(struct cuda_graph *graph, const struct cuda_op *op);
/*
 * Around the operations of a step: labels are counted, gradient buckets summed as they become
 * complete, and at the end the compute stream waits for all.
 */
int cuda_ranks_begin(struct cuda_graph *graph);
int cuda_ranks_before(struct cuda_graph *graph, const struct cuda_op *op);
int cuda_ranks_after(struct cuda_graph *graph, uint32_t index);
int cuda_ranks_end(struct cuda_graph *graph);
/*
 * Waits for an event of `compute`, with one rank too; returns early if sums fail. Sets the device's
 * error.
 */
int cuda_ranks_wait(struct cuda_device *device, gpu_event event, const char *what);
