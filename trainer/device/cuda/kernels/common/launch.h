/*
 * Launches kernels. A launcher in a .cu file checks its arguments, cuts the grid and calls one of
 * these with KERNEL(kernel) or INSTANCES(kernel) and the kernel's argument.
 */
#ifndef TRAINER_DEVICE_CUDA_LAUNCH_H
#define TRAINER_DEVICE_CUDA_LAUNCH_H

#include "trainer/device/cuda/kernels/common/kernel.h"

extern "C" {
#include "trainer/device/cuda/kernels/row_reduce.h"
}

static inline uint32_t divide_up(uint64_t a, uint64_t b)
{
	return (uint32_t)((a + b - 1) / b);
}

template <typename A>
static int launch(const struct kernel_device *device, const struct gpu_kernel &kernel,
		  uint32_t blocks, const A *arguments)
{
	return gpu_launch(&kernel, blocks, 1, KERNEL_THREADS, arguments, sizeof(*arguments),
			  device->stream);
}

/* Launches one thread per item. count must be below 2^39. */
template <typename A>
static int launch_flat(const struct kernel_device *device, const struct gpu_kernel &kernel,
		       uint64_t count, const A *arguments)
{
	return launch(device, kernel, divide_up(count, KERNEL_THREADS), arguments);
}

/*
 * Launches threads that stride over `count` items, with at most LAUNCH_BLOCKS blocks per
 * multiprocessor. As many blocks of input_normalize and elementwise_check are resident, and half as
 * many of elementwise_add.
 */
#define LAUNCH_BLOCKS 6

template <typename A>
static int launch_strided(const struct kernel_device *device, const struct gpu_kernel &kernel,
			  uint64_t count, const A *arguments)
{
	uint64_t blocks = (count + KERNEL_THREADS - 1) / KERNEL_THREADS,
		 wave = (uint64_t)LAUNCH_BLOCKS * device->multiprocessors;

	return launch(device, kernel, (uint32_t)(blocks < wave ? blocks : wave), arguments);
}

/* Launches the grid and the kernel instance of arguments->grid. */
template <typename A>
static int launch_grid(const struct kernel_device *device,
		       const struct gpu_kernel (&instances)[KERNEL_INSTANCES], const A *arguments)
{
	const struct row_grid *grid = &arguments->grid;

	return gpu_launch(&instances[grid->instance], grid->blocks_x, grid->blocks_y,
			  KERNEL_THREADS, arguments, sizeof(*arguments), device->stream);
}

/*
 * As launch_grid(), for a kernel that stores its sums over rows in combine->partial; also launches
 * the second stage. Sets blocks and channels of *combine.
 */
template <typename A>
static int launch_sums(const struct kernel_device *device,
		       const struct gpu_kernel (&instances)[KERNEL_INSTANCES], const A *arguments,
		       struct row_reduce_combine *combine)
{
	int r = launch_grid(device, instances, arguments);

	combine->blocks = arguments->grid.blocks_x;
	combine->channels = arguments->grid.channels;
	return r < 0 ? r : row_reduce_combine(device, combine);
}

#endif
