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
 * Kernel that stores `arguments`, which are passed by value with the launch, in *to. A copy from
 * host memory would wait in the copy engine's queue for the transfer of the next batch and delay
 * the step.
 */
struct step_store {
	struct step_arguments arguments;
	struct step_arguments *to; /* in device memory */
};
int step_store(const struct kernel_device *device, const struct step_store *arguments);

/*
 * Converts the batch to y [n][h][w][padded] of E. A byte x becomes (x - mean) / std; elements of
 * other types are converted only. An image is mirrored if step->flip is set. Channels of y from
 * `channels` on, and images from step->count on, are 0; further channels of the batch are ignored.
 * Reads the batch once, writes y once.
 */
struct input_normalize {
	const struct step_arguments *step; /* in device memory */
	void *y;
	uint32_t n, h, w;  /* n h w below 2^31 */
	uint32_t channels; /* channels of the input; at most 4 for bytes */
	uint32_t padded;   /* channels of y, at least `channels` */
	enum cuda_element element;
	float mean[4], std[4];   /* per channel; used for bytes only */
	float scale[4], bias[4]; /* filled in by the launcher, as are the dividers */
	struct divider by_h, by_w;
};
int input_normalize(const struct kernel_device *device, const struct input_normalize *arguments);
/*
 * As input_normalize(), for a batch that is resampled and blended by the tables of struct
 * device_changes. Reads only the pixels that contribute, through the caches.
 */
int input_resample(const struct kernel_device *device, const struct input_normalize *arguments);

#endif
