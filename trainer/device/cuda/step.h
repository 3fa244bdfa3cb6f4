/*
 * What changes from step to step, and the results of a step, as kernels see them in device memory.
 * A separate kernel stores the step_arguments there before the step's work; captured kernels have a
 * pointer to them, so the captured graph never changes. Plain structures, for C and CUDA C.
 */
#ifndef TRAINER_DEVICE_CUDA_STEP_H
#define TRAINER_DEVICE_CUDA_STEP_H

#include "trainer/device/resample.h"

/* One a graph. */
struct step_arguments {
	const void *images; /* [count][h][w][channels] of element, in device memory */
	/*
	 * [n] in device memory, -1: none; those from count on are -1. What else targets are of
	 * follows, as struct device_target_arrays says
	 */
	const int32_t *labels;
	const float *teacher; /* [n][classes] in device memory, or NULL */
	float teacher_scale;  /* on these */
	uint64_t step;
	uint32_t count;    /* samples of the batch; the input's rows from there on are zero */
	uint32_t channels; /* of images: at least the input's */
	uint32_t element;  /* enum device_element of images */
	uint32_t flip;     /* mirror left to right */
	/* of inputs that resample: of the images, and struct device_changes in device memory */
	uint32_t height, width;
	const struct device_blend *blends;
	const struct device_tap *rows, *columns;
	struct device_draws draws;
	struct device_hyper hyper; /* with an update */
};

/*
 * One a store: struct device_params_state (updates, skipped, loss scale, its age) lives on the
 * device, for it is there that an update finds out whether gradients are finite. One a graph:
 * struct device_results, copied out after each step.
 */

/*
 * Dynamic loss scaling, as torch.amp.GradScaler's defaults. Without loss scaling: scale 1, growth
 * 1, backoff 1.
 */
#define STEP_SCALE_FIRST    65536.0
#define STEP_SCALE_GROWTH   2.0
#define STEP_SCALE_BACKOFF  0.5
#define STEP_SCALE_INTERVAL 2000 /* updates without a skip until it grows */

#endif
