/* Pipeline operations deferred to the device (format/augment/deferred.h). */
#ifndef TRAINER_DEVICE_CUDA_DEFERRED_H
#define TRAINER_DEVICE_CUDA_DEFERRED_H

#include "format/augment/deferred.h"
#include "trainer/device/cuda/kernels/row_reduce.h"

/*
 * finished [count][deferred.height][deferred.width][channels] = delivered [count][height][width]
 * [channels] with the operations deferred [count] applied; one size for all; bytes, equal to those
 * of deferred_apply(). Reads and writes each byte once, and the result once more per contrast
 * change, which needs the mean first.
 */
struct deferred_finish {
	const struct deferred *deferred; /* in device memory, like the others */
	const uint8_t *delivered;
	uint8_t *finished;
	uint32_t count;
	uint32_t width, height;
	uint32_t channels; /* 3 or 4 */
};
int deferred_finish(const struct kernel_device *device, const struct deferred_finish *arguments);

#endif
