/*
 * Kernel and launcher of deferred.h. Compiled without floating-point contraction, so that the
 * pixels equal the daemon's.
 */
extern "C" {
#include "trainer/device/cuda/kernels/deferred.h"
}

#include "trainer/device/cuda/kernels/common/block_reduce.h"
#include "trainer/device/cuda/kernels/common/launch.h"

/* One image, processed by one block. */
struct image_block {
	const struct deferred *deferred;
	const uint8_t *from;
	uint8_t *to;
};

DEVICE uint32_t first_contrast(const struct deferred *deferred, uint32_t from)
{
	while (from < deferred->count && deferred->changes[from].kind != DEFERRED_CONTRAST)
		from++;
	return from;
}

/*
 * Applies changes begin .. end - 1 to all pixels and stores the result in `to`. On the first pass
 * (`begins`) the source is the visible crop of the delivered image, on later passes the pixels
 * already in `to`. `mean` is the mean luma of the image, used by a contrast change at `begin`.
 * Returns the sum of the resulting luma over this thread's pixels.
 */
DEVICE uint32_t finish_pixels(const struct deferred_finish *a, const struct image_block *image,
			      bool begins, uint32_t begin, uint32_t end, float mean)
{
	const struct deferred *deferred = image->deferred;
	uint32_t width = deferred->width, pixels = width * deferred->height, sum = 0;

	for (uint32_t at = threadIdx.x; at < pixels; at += KERNEL_THREADS) {
		uint32_t y = at / width, x = at - y * width;
		uint32_t pixel = begins ? deferred_shown(deferred, image->from, a->width, a->height,
							 a->channels, x, y)
					: deferred_load(image->to, at, a->channels);

		for (uint32_t i = begin; i < end; i++)
			pixel = deferred_change_pixel(&deferred->changes[i], pixel, x, y, mean);
		deferred_store(image->to, at, a->channels, pixel);
		sum += (uint32_t)colour_luma(pixel);
	}
	return sum;
}

/*
 * One block per image. A thread always processes the same pixels, so it only rereads its own
 * writes.
 */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	deferred_finish_kernel(const __grid_constant__ struct deferred_finish a)
{
	const struct deferred *deferred = a.deferred + blockIdx.x;
	uint64_t delivered = (uint64_t)a.width * a.height * a.channels;
	uint32_t pixels = deferred->width * deferred->height, begin = 0;
	struct image_block image;
	float mean = 0;
	bool begins = true;

	image.deferred = deferred;
	image.from = a.delivered + blockIdx.x * delivered;
	image.to = a.finished + blockIdx.x * (uint64_t)pixels * a.channels;
	while (begins || begin < deferred->count) {
		/* on every pass but the first, changes[begin] is the contrast that needs `mean` */
		uint32_t end = first_contrast(deferred, begins ? 0 : begin + 1);
		uint32_t sum = finish_pixels(&a, &image, begins, begin, end, mean);

		/* the sum is at most 4096 x 4096 x 255, which a double represents exactly */
		if (end < deferred->count)
			mean = (float)reduce_sum<double>(sum) / (float)pixels;
		begin = end;
		begins = false;
	}
}

int deferred_finish(const struct kernel_device *device, const struct deferred_finish *arguments)
{
	return launch(device, KERNEL(deferred_finish_kernel), arguments->count, arguments);
}
