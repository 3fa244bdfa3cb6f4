/*
 * Per-step arguments and results, as kernels see them in device memory. A separate kernel stores
 * the step_arguments there at the start of a step; captured kernels only hold a pointer to them, so
 * the captured graph never changes. Plain structures, for C and CUDA C.
 */
#ifndef TRAINER_DEVICE_CUDA_STEP_H
#define TRAINER_DEVICE_CUDA_STEP_H

#include "trainer/device/params.h"
#include "trainer/device/resample.h"
#include "trainer/device/steps.h"

/* One per graph. */
struct step_arguments {
	const void *images; /* [count][h][w][channels] of element, in device memory */
	/*
	 * [n] in device memory; -1 for samples without a label and from `count` on. The other
	 * target arrays follow it, as in struct device_target_arrays
	 */
	const int32_t *labels;
	const float *teacher; /* [n][classes] in device memory, or NULL */
	float teacher_scale;  /* factor on teacher */
	uint64_t step;
	uint32_t count;    /* samples in the batch; rows of the input from count on are zero */
	uint32_t channels; /* channels of images: at least those of the input */
	uint32_t element;  /* enum device_element of images */
	uint32_t flip;     /* mirror left to right */
	/* only with a resampling input: image size, and struct device_changes in device memory */
	uint32_t height, width;
	const struct device_blend *blends;
	const struct device_tap *rows, *columns;
	struct device_draws draws;
	struct device_hyper hyper; /* valid if the step ends in an update */
};

/*
 * Other state in device memory: struct device_params_state per store (counts of updates and skipped
 * updates, the loss scale and its age), because only the update kernels know whether gradients are
 * finite; and struct device_results per graph, which is copied to the host after each step.
 */

/*
 * Dynamic loss scaling with torch.amp.GradScaler's defaults. Without loss scaling: scale 1, growth
 * 1, backoff 1.
 */
#define STEP_SCALE_FIRST    65536.0
#define STEP_SCALE_GROWTH   2.0
#define STEP_SCALE_BACKOFF  0.5
#define STEP_SCALE_INTERVAL 2000 /* updates without a skip before the scale grows */

#endif
