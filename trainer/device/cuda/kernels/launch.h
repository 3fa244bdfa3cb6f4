/* What launchers share. */
#ifndef TRAINER_DEVICE_CUDA_LAUNCH_H
#define TRAINER_DEVICE_CUDA_LAUNCH_H

#include "trainer/device/cuda/kernels/columns.h"

#define LAUNCH_THREADS 256 /* KERNEL_THREADS */

/* A kernel over columns; `kernels` is the family's table. */
int launch_columns(const struct kernel_device *device, const struct gpu_kernel *kernels,
		   const struct columns *columns, const void *arguments, size_t size);
/*
 * The same of one that leaves sums over rows in combine->partial, and their second stage; blocks
 * and channels of *combine are filled in here.
 */
int launch_sums(const struct kernel_device *device, const struct gpu_kernel *kernels,
		const struct columns *columns, const void *arguments, size_t size,
		struct columns_combine *combine);
/* One thread for each of `count`, which is below 2^39. */
int launch_flat(const struct kernel_device *device, const struct gpu_kernel *kernel, uint64_t count,
		const void *arguments, size_t size);
/*
 * Threads that walk over `count` items in strides of the grid, at most as many as the device has
 * room for.
 */
int launch_strided(const struct kernel_device *device, const struct gpu_kernel *kernel,
		   uint64_t count, const void *arguments, size_t size);

#endif
