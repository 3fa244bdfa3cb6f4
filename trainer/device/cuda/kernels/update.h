/*
 * Updates all parameters in three launches: norm of the gradients, decision, update. Modifying
 * gradients first (gradients.h) takes one more launch; the norms that by_tensor and by_matrix
 * optimizers need take two more. orthogonalize.h processes matrices between these launches. The
 * host takes no part: whether gradients are finite, the loss scale, the clipping factor and the
 * number of updates are computed and kept in device memory. Semantics are those of struct
 * device_hyper and cpu/params.c.
 *
 * A constant table in device memory divides the parameters into chunks. A slot is one fp32 array
 * that has each parameter at its offset (device_param.offset, a multiple of 16 elements). Optimizer
 * state from DEVICE_MATRIX_STATES on contains no matrices; it has every other parameter at its
 * rest_offset.
 */
#ifndef TRAINER_DEVICE_CUDA_UPDATE_H
#define TRAINER_DEVICE_CUDA_UPDATE_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/optimizers/gradients.h"
#include "trainer/device/optimizers/perturb.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

#define UPDATE_CHUNK_MAX 4096 /* elements */
#define UPDATE_SUMS      4    /* of squares, by which ranks sum them */

/* A range of one parameter. */
struct update_chunk {
	uint64_t offset; /* offset of the chunk in slots: the parameter's offset + first */
	/*
	 * of a sharded store: what offset lacks in the slots of values and gradients, and the first
	 * element of the parameter in this rank's part, whose first chunk begins there
	 */
	uint64_t value_shift, gradient_shift;
	uint32_t begin;
	uint32_t param;       /* index of the parameter */
	uint32_t divided;     /* the ranks have a part of the parameter each */
	uint64_t rest_offset; /* offset of the chunk in state slots without matrices */
	uint32_t count;       /* 1..UPDATE_CHUNK_MAX */
	uint32_t first;       /* offset in the parameter, begin + multiple of UPDATE_CHUNK_MAX */
	/* the parameter's whole copy in `copy_element`, [..][copy_columns]; NULL for none */
	void *copy;
	/*
	 * last dimension of the parameter and of its copy; the copy's excess columns are not
	 * written
	 */
	uint32_t columns, copy_columns;
	uint32_t row;     /* device_param_row() */
	uint32_t matrix;  /* device_param_matrix() */
	uint32_t chunks;  /* number of chunks of the parameter */
	uint32_t group;   /* index of the hyperparameter group */
	float lr_factor;  /* factor on the learning rate of the group */
	uint32_t start;   /* index into device_hyper.begun */
	uint32_t split;   /* of a parameter of which this rank has a part */
	uint32_t trained; /* 0 for a buffer or a frozen parameter, which only the EMA follows */
	uint32_t frozen;  /* never written, not even by Lookahead */
};

/* Dynamic loss scaling; growth = backoff = 1 without it. */
struct update_scaling {
	/*
	 * factors on the loss scale: growth after `interval` updates without a skip, backoff at a
	 * skip
	 */
	double growth, backoff;
	double min, max;
	uint64_t interval;
};

struct update {
	const struct update_chunk *chunks; /* [chunk_count] in device memory */
	uint32_t chunk_count;
	float *slots[DEVICE_SLOTS]; /* by enum device_slot; NULL if the store lacks the slot */
	enum cuda_element copy_element;
	struct device_optimizer_spec optimizer;
	const struct step_arguments *step; /* in device memory, like the next two */
	struct device_params_state *state; /* counters and loss scale: read and updated */
	struct device_results *results;    /* grad_norm, loss_scale, updated, skipped are set */
	struct update_scaling scaling;
	double *partial;                  /* workspace, [chunk_count][UPDATE_NORMS] */
	struct update_decision *decision; /* read by the update; in device memory */
	/*
	 * NULL for a store of which every rank has everything. Sums of squares of gradients
	 * [UPDATE_SUMS]: 0, 1 of sharded ones, which the caller sums over the ranks that share
	 * batches; then 1, 2 of parameters split over a group, which it sums over that; and 3 of
	 * all others. Of by_tensor optimizers those of each tensor [params][UPDATE_NORMS], which
	 * the caller sums over ranks
	 */
	double *sums, *tensor_sums;
	enum device_slot average; /* set by the launcher of update_average() */
};
/*
 * Stores the sums of squares of the gradients in `partial`, then sets *decision, *state and
 * *results. Gradients are still multiplied by the loss scale and are read once. If an element is
 * not finite, counts the update as skipped and lowers the loss scale.
 */
int update_decide(const struct kernel_device *device, const struct update *update);
/*
 * With `sums`, instead of what update_decide() and update_apply() do otherwise: update_squares()
 * fills `sums`, which are to be summed over ranks before update_decide(); update_measure() fills
 * tensor_sums, which are to be summed before update_apply().
 */
int update_squares(const struct kernel_device *device, const struct update *update);
int update_measure(const struct kernel_device *device, const struct update *update);
/*
 * Call before update_apply(). Clips and centralizes gradients, if enabled. For a by_matrix
 * optimizer, also replaces the gradients of matrices by the direction of the update, and stores the
 * sum of squares of each (update_matrix_squares()).
 */
int update_prepare(const struct kernel_device *device, const struct update *update);
/*
 * Address in device memory of the sum of squares of a matrix. `first` is the index of its first
 * chunk.
 */
const double *update_matrix_squares(const struct update *update, uint32_t first);
/*
 * Reads gradient, value, moments and EMA once; writes value, moments, EMA and copies once.
 * By_tensor optimizers read gradient, value and moments one more time before. Does nothing if
 * *decision says so.
 */
int update_apply(const struct kernel_device *device, const struct update *update);
/*
 * update_perturb() takes the place of an update after update_decide() if step->hyper.perturb is
 * above 0: it copies values to the `saved` slot, and if gradients are finite adds
 * decision->gradient_scale times the gradient to values. update_restore() copies `saved` back to
 * values and reads neither step nor results. Both also update the copies.
 */
int update_perturb(const struct kernel_device *device, const struct update *update);
int update_restore(const struct kernel_device *device, const struct update *update);
/* Exchanges values with the average in slot update->average, and updates the copies. */
int update_exchange(const struct kernel_device *device, const struct update *update);
/* Updates each existing average with its weight from step->hyper, one pass per average. */
int update_average(const struct kernel_device *device, const struct update *update);

#endif
