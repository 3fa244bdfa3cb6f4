/* Steps of a pipeline that the daemon has left to the device (format/base/deferred.h). */
#ifndef TRAINER_DEVICE_CUDA_DEFERRED_H
#define TRAINER_DEVICE_CUDA_DEFERRED_H

#include "format/base/deferred.h"
#include "trainer/device/cuda/kernels/columns.h"

/*
 * finished [count][deferred.height][deferred.width][channels] = delivered [count][height][width]
 * [channels] with deferred [count] done to them, all of one size: bytes, as deferred_apply() makes
 * them. Reads and writes each byte once, and what is finished once more for each change of
 * contrast, whose mean has to be known.
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
