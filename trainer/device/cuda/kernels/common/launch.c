/* Grid sizes, and divisors that are constant during a launch. */
#include "trainer/device/cuda/kernels/common/launch.h"

#include "trainer/device/cuda/kernels/common/divide.h"

/*
 * Blocks per multiprocessor of a grid-stride launch: as many as are resident of input_normalize and
 * elementwise_check, twice as many as of elementwise_add.
 */
#define BLOCKS 6

int launch_columns(const struct kernel_device *device, const struct gpu_kernel *kernels,
		   const struct columns *columns, const void *arguments, size_t size)
{
	return gpu_launch(&kernels[columns->instance], columns->blocks_x, columns->blocks_y,
			  LAUNCH_THREADS, arguments, size, device->stream);
}

int launch_sums(const struct kernel_device *device, const struct gpu_kernel *kernels,
		const struct columns *columns, const void *arguments, size_t size,
		struct columns_combine *combine)
{
	int r = launch_columns(device, kernels, columns, arguments, size);

	combine->blocks = columns->blocks_x;
	combine->channels = columns->channels;
	return r < 0 ? r : columns_combine(device, combine);
}

int launch_flat(const struct kernel_device *device, const struct gpu_kernel *kernel, uint64_t count,
		const void *arguments, size_t size)
{
	uint64_t blocks = (count + LAUNCH_THREADS - 1) / LAUNCH_THREADS;

	return gpu_launch(kernel, (uint32_t)blocks, 1, LAUNCH_THREADS, arguments, size,
			  device->stream);
}

int launch_strided(const struct kernel_device *device, const struct gpu_kernel *kernel,
		   uint64_t count, const void *arguments, size_t size)
{
	uint64_t blocks = (count + LAUNCH_THREADS - 1) / LAUNCH_THREADS,
		 wave = (uint64_t)BLOCKS * device->multiprocessors;

	return gpu_launch(kernel, (uint32_t)(blocks < wave ? blocks : wave), 1, LAUNCH_THREADS,
			  arguments, size, device->stream);
}

struct divider divider_of(uint32_t divisor)
{
	struct divider d = {.divisor = divisor, .shift = 31};

	while (1ull << (d.shift - 31) < divisor)
		d.shift++;
	d.factor = (uint32_t)(((1ull << d.shift) + divisor - 1) / divisor);
	return d;
}
