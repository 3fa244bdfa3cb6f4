/* Common code of launchers. */
#ifndef TRAINER_DEVICE_CUDA_LAUNCH_H
#define TRAINER_DEVICE_CUDA_LAUNCH_H

#include "trainer/device/cuda/kernels/row_reduce.h"

#define LAUNCH_THREADS 256 /* KERNEL_THREADS */

/* Launches a kernel over columns; `kernels` is the family's table. */
int launch_columns(const struct kernel_device *device, const struct gpu_kernel *kernels,
		   const struct columns *columns, const void *arguments, size_t size);
/*
 * The same for a kernel with sums over rows in combine->partial, followed by the second stage; sets
 * blocks and channels of *combine.
 */
int launch_sums(const struct kernel_device *device, const struct gpu_kernel *kernels,
		const struct columns *columns, const void *arguments, size_t size,
		struct columns_combine *combine);
/* Launches a thread per item; count is below 2^39. */
int launch_flat(const struct kernel_device *device, const struct gpu_kernel *kernel, uint64_t count,
		const void *arguments, size_t size);
/* Launches threads that stride over `count` items, at most as many as the device can hold. */
int launch_strided(const struct kernel_device *device, const struct gpu_kernel *kernel,
		   uint64_t count, const void *arguments, size_t size);

#endif
