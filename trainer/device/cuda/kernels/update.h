/*
 * Updates all parameters in three launches: norm of the gradients, decision, update. There is one
 * more launch if gradients are modified first (gradients.h), and two for per-tensor norms of
 * by_tensor and by_matrix optimizers; orthogonalize.h processes the matrices in between. The host
 * is not involved: whether gradients are finite, the loss scale, the clipping factor and the number
 * of updates are computed and kept in device memory. Semantics are those of device_hyper and
 * cpu/params.c.
 *
 * A constant table of chunks in device memory describes the parameters' ranges in the slots. A slot
 * is one fp32 array with every parameter at its offset (device_param.offset, a multiple of 16
 * elements); in state beyond DEVICE_MATRIX_STATES, all parameters except matrices at their
 * rest_offset.
 */
#ifndef TRAINER_DEVICE_CUDA_UPDATE_H
#define TRAINER_DEVICE_CUDA_UPDATE_H

#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/optimizers/gradients.h"
#include "trainer/device/optimizers/perturb.h"

#define UPDATE_CHUNK_MAX 4096 /* elements */

/* A range of one parameter. */
struct update_chunk {
	uint64_t offset;      /* in the slots: the parameter's offset + first */
	uint64_t rest_offset; /* the same in state slots that matrices lack */
	uint32_t count;       /* 1..UPDATE_CHUNK_MAX */
	uint32_t first;       /* in the parameter: a multiple of UPDATE_CHUNK_MAX */
	/* the parameter's whole copy in `copy_element`, [..][copy_columns]; NULL for none */
	void *copy;
	/*
	 * last dimension of the parameter and of its copy; the copy's excess columns are not
	 * written
	 */
	uint32_t columns, copy_columns;
	uint32_t row;     /* device_param_row() */
	uint32_t matrix;  /* device_param_matrix() */
	uint32_t chunks;  /* of the parameter */
	uint32_t group;   /* of hyperparameters */
	float lr_factor;  /* on the group's learning rate */
	uint32_t start;   /* index into device_hyper.begun */
	uint32_t trained; /* 0 for a buffer or a frozen parameter, which only the EMA follows */
	uint32_t frozen;  /* never written, not even by Lookahead */
};

/* Dynamic loss scaling; growth = backoff = 1 without it. */
struct update_scaling {
	/* factors on the scale: after `interval` updates without a skip, and at a skip */
	double growth, backoff;
	double least, largest;
	uint64_t interval;
};

struct update {
	const struct update_chunk *chunks; /* [chunk_count] in device memory */
	uint32_t chunk_count;
	float *slots[DEVICE_SLOTS]; /* by enum device_slot; NULL if the store lacks the slot */
	enum cuda_element copy_element;
	struct device_optimizer_spec optimizer;
	const struct step_arguments *step; /* hyperparameters; here and below in device memory */
	struct device_params_state *state; /* counters and loss scale: read and updated */
	struct device_results *results;    /* grad_norm, loss_scale, updated, skipped are set */
	struct update_scaling scaling;
	double *partial;                  /* workspace, [chunk_count][UPDATE_NORMS] */
	struct update_decision *decision; /* read by the update; in device memory */
	enum device_slot average;         /* set by the launcher */
};
/*
 * Stores sums of squares of the gradients, which are read once, in partial; then sets *decision,
 * *state and *results. gradients include the loss scale. If one is not finite, the update is
 * counted as skipped and the loss scale backs off.
 */
int update_decide(const struct kernel_device *device, const struct update *update);
/*
 * Before update_apply(): clips and centralizes gradients, if enabled; for a by_matrix optimizer,
 * replaces those of matrices by its direction, and stores the squares of their norms
 * (update_matrix_squares()).
 */
int update_prepare(const struct kernel_device *device, const struct update *update);
/* In device memory. first: index of the tensor's first chunk. */
const double *update_matrix_squares(const struct update *update, uint32_t first);
/*
 * Reads gradient, value, moments and EMA once, writes value, moments, EMA and copies once; a
 * by_tensor optimizer first reads gradient, value and moments once more. No-op if *decision says
 * so.
 */
int update_apply(const struct kernel_device *device, const struct update *update);
/*
 * After update_decide(), instead of an update, if step->hyper.perturb is above 0: saved = value,
 * and, if gradients are finite, value += decision->gradient_scale gradient; also updates copies.
 * update_restore(): value = saved, and copies; uses neither step nor results.
 */
int update_perturb(const struct kernel_device *device, const struct update *update);
int update_restore(const struct kernel_device *device, const struct update *update);
/* Updates each average that exists with its share in step->hyper, in a separate pass. */
int update_average(const struct kernel_device *device, const struct update *update);

#endif
