/*
 * Sums and maxima over the threads of a block, in a fixed order. All threads must call; all receive
 * the result.
 */
#ifndef TRAINER_DEVICE_CUDA_BLOCK_REDUCE_H
#define TRAINER_DEVICE_CUDA_BLOCK_REDUCE_H

#include "trainer/device/cuda/kernels/common/kernel.h"

#define REDUCE_WARPS (KERNEL_THREADS / KERNEL_WARP)

/* Sum over the lanes of a warp; all lanes must call. */
template <typename T> DEVICE T reduce_warp(T value)
{
	for (uint32_t mask = KERNEL_WARP / 2; mask; mask /= 2)
		value += __shfl_xor_sync(KERNEL_LANES, value, mask);
	return value;
}

template <typename T> DEVICE T reduce_sum(T value)
{
	SHARED(T, warps, REDUCE_WARPS);
	T sum = 0;

	value = reduce_warp(value);
	/* the previous reduction may still be reading `warps` */
	__syncthreads();
	if (threadIdx.x % KERNEL_WARP == 0)
		warps[threadIdx.x / KERNEL_WARP] = value;
	__syncthreads();
	for (uint32_t i = 0; i < REDUCE_WARPS; i++)
		sum += warps[i];
	return sum;
}

/* The values must not be NaN. */
DEVICE float reduce_max(float value)
{
	SHARED(float, warps, REDUCE_WARPS);
	float largest;

	for (uint32_t mask = KERNEL_WARP / 2; mask; mask /= 2) {
		float other = __shfl_xor_sync(KERNEL_LANES, value, mask);

		value = other > value ? other : value;
	}
	__syncthreads();
	if (threadIdx.x % KERNEL_WARP == 0)
		warps[threadIdx.x / KERNEL_WARP] = value;
	__syncthreads();
	largest = warps[0];
	for (uint32_t i = 1; i < REDUCE_WARPS; i++)
		largest = warps[i] > largest ? warps[i] : largest;
	return largest;
}

#endif
