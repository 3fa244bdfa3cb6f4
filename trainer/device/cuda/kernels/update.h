/*
 * The update of all parameters in three launches: norm of the gradients, decision, update; one more
 * before the update where gradients change (gradients.h), and two for the norms of each tensor,
 * where the optimizer is by_tensor or by_matrix; what is done with matrices between is
 * orthogonalize.h's. The host takes no part: whether the gradients are finite, the loss scale, the
 * clipping factor and the count of updates are computed and kept in device memory. Semantics are
 * those of device_hyper and cpu/params.c.
 *
 * A table of chunks in device memory, made once, says which elements of the slots belong together.
 * A slot is one fp32 array with every parameter at its offset (device_param.offset, a multiple of
 * 16 elements); in state beyond DEVICE_MATRIX_STATES, all but matrices at their rest_offset.
 */
#ifndef TRAINER_DEVICE_CUDA_UPDATE_H
#define TRAINER_DEVICE_CUDA_UPDATE_H

#include "trainer/device/cuda/kernels/columns.h"
#include "trainer/device/cuda/step.h"
#include "trainer/device/optimizers/gradients.h"
#include "trainer/device/optimizers/perturb.h"

#define UPDATE_CHUNK_MAX 4096 /* elements */

/* Elements of one parameter. */
struct update_chunk {
	uint64_t offset;      /* in the slots: the parameter's offset + first */
	uint64_t rest_offset; /* the same in slots of state that matrices lack */
	uint32_t count;       /* 1..UPDATE_CHUNK_MAX */
	uint32_t first;       /* in the parameter: a multiple of UPDATE_CHUNK_MAX */
	/* all of the parameter's copy in `copy_element`, [..][copy_columns]; NULL: there is none */
	void *copy;
	/*
	 * last dimension of the parameter and of its copy; columns of the copy beyond the
	 * parameter's are left alone
	 */
	uint32_t columns, copy_columns;
	uint32_t row;     /* device_param_row() */
	uint32_t matrix;  /* device_param_matrix() */
	uint32_t chunks;  /* that the parameter has */
	uint32_t group;   /* of hyperparameters */
	float lr_factor;  /* on the group's learning rate */
	uint32_t start;   /* index into device_hyper.begun */
	uint32_t trained; /* 0: a buffer or frozen; only the EMA follows it */
	uint32_t frozen;  /* never written, not even by Lookahead */
};

/* Dynamic loss scaling. Without: growth = backoff = 1. */
struct update_scaling {
	/* of the scale after `interval` updates without a skip; at a skip */
	double growth, backoff;
	double least, largest;
	uint64_t interval;
};

struct update {
	const struct update_chunk *chunks; /* [chunk_count] in device memory */
	uint32_t chunk_count;
	float *slots[DEVICE_SLOTS]; /* by enum device_slot; NULL: the store has no such slot */
	enum cuda_element copy_element;
	struct device_optimizer_spec optimizer;
	const struct step_arguments *step; /* hyperparameters; here and below in device memory */
	struct device_params_state *state; /* counters and loss scale: read and moved */
	struct device_results *results;    /* grad_norm, loss_scale, updated, skipped are set */
	struct update_scaling scaling;
	double *partial;                  /* workspace, [chunk_count][UPDATE_NORMS] */
	struct update_decision *decision; /* tells the update; in device memory */
	enum device_slot average;         /* filled in by the launcher */
};
/*
 * partial = sums of squares of the gradients, which are read once; then *decision, *state and
 * *results. gradients are those of the loss times the loss scale. An update whose gradients are not
 * all finite is counted as skipped, and the loss scale backs off.
 */
int update_decide(const struct kernel_device *device, const struct update *update);
/*
 * Before update_apply(): gradients are clipped and centralized, where they are at all, and for an
 * optimizer by_matrix those of matrices become what it makes of them, with the square of their norm
 * where update_matrix_squares() says.
 */
int update_prepare(const struct kernel_device *device, const struct update *update);
/* In device memory. first: the index of the tensor's first chunk. */
const double *update_matrix_squares(const struct update *update, uint32_t first);
/*
 * Reads gradient, value, moments and EMA once, writes value, moments, EMA and copies once; an
 * optimizer by_tensor reads gradient, value and moments once more, before. Nothing where *decision
 * says so.
 */
int update_apply(const struct kernel_device *device, const struct update *update);
/*
 * After update_decide(), in place of an update where step->hyper.perturb is above 0: saved = value,
 * and, where the gradients are finite, value += decision->gradient_scale gradient, and copies.
 * update_restore(): value = saved, and copies; takes neither step nor results.
 */
int update_perturb(const struct kernel_device *device, const struct update *update);
int update_restore(const struct kernel_device *device, const struct update *update);
/* Has each average that there is follow the values, as step->hyper says, in a pass of its own. */
int update_average(const struct kernel_device *device, const struct update *update);

#endif
