/*
 * Start of a step: stores the per-step arguments in device memory (struct step_arguments), and
 * converts the fed batch.
 */
#ifndef TRAINER_DEVICE_CUDA_INPUT_H
#define TRAINER_DEVICE_CUDA_INPUT_H

#include "trainer/device/cuda/kernels/common/divide.h"
#include "trainer/device/cuda/kernels/row_reduce.h"
#include "trainer/device/cuda/step.h"

/*
 * *to = arguments, passed by value with the launch. A copy from host memory would queue in the copy
 * engine behind the next batch and delay the step.
 */
struct step_store {
	struct step_arguments arguments;
	struct step_arguments *to; /* in device memory */
};
int step_store(const struct kernel_device *device, const struct step_store *arguments);

/*
 * y [n][h][w][padded] E = the batch's images: bytes as (x - mean) / std, other elements unchanged.
 * The batch's channels from `channels` on are ignored, y's are 0; images from step->count on are 0;
 * mirrored if the step says so. Reads the batch once, writes y once.
 */
struct input_normalize {
	const struct step_arguments *step; /* in device memory */
	void *y;
	uint32_t n, h, w;  /* n h w below 2^31 */
	uint32_t channels; /* of the input; at most 4 for bytes */
	uint32_t padded;   /* of y, at least channels */
	enum cuda_element element;
	float mean[4], std[4];   /* for bytes */
	float scale[4], bias[4]; /* filled in by the launcher, here and below */
	struct divider by_h, by_w;
};
int input_normalize(const struct kernel_device *device, const struct input_normalize *arguments);
/*
 * The same for a batch that is resized, thinned and blended by struct device_changes; reads only
 * the needed pixels, through the caches.
 */
int input_resample(const struct kernel_device *device, const struct input_normalize *arguments);

#endif
