/* Pipeline operations deferred to the device (format/augment/deferred.h). */
#ifndef TRAINER_DEVICE_CUDA_DEFERRED_H
#define TRAINER_DEVICE_CUDA_DEFERRED_H

#include "format/augment/deferred.h"
#include "trainer/device/cuda/kernels/row_reduce.h"

/*
 * Applies deferred[i] to image i. The output has the same bytes as that of deferred_apply(). All
 * delivered images have one size, and all finished images have one size. Reads `delivered` and
 * writes `finished` once; each contrast change reads and writes `finished` once more, because it
 * needs the mean luma of the whole image.
 */
struct deferred_finish {
	const struct deferred *deferred; /* [count]; in device memory, like the two arrays below */
	const uint8_t *delivered;
	uint8_t *finished;
	uint32_t count;
	uint32_t width, height;
	uint32_t channels; /* channels of both; 3 or 4 */
};
int deferred_finish(const struct kernel_device *device, const struct deferred_finish *arguments);

#endif
