/*
 * Sums and maxima over the threads of a block, in a fixed order. All threads must call; all receive
 * the result.
 */
#ifndef TRAINER_DEVICE_CUDA_REDUCE_H
#define TRAINER_DEVICE_CUDA_REDUCE_H

#include "trainer/device/cuda/kernels/common/kernel.h"

#define REDUCE_WARPS (KERNEL_THREADS / KERNEL_WARP)

/* Sum over the lanes of a warp; all lanes must call. */
DEVICE float reduce_warp_f32(float value)
{
	for (uint32_t mask = KERNEL_WARP / 2; mask; mask /= 2)
		value += KERNEL_SHUFFLE_F32(value, mask);
	return value;
}

DEVICE double reduce_warp_f64(double value)
{
	for (uint32_t mask = KERNEL_WARP / 2; mask; mask /= 2)
		value += KERNEL_SHUFFLE_F64(value, mask);
	return value;
}

#define REDUCE_SUM(name, type, shuffle)                                                            \
	DEVICE type name(type value)                                                               \
	{                                                                                          \
		SHARED(type, warps, REDUCE_WARPS);                                                 \
		type sum = 0;                                                                      \
                                                                                                   \
		for (uint32_t mask = KERNEL_WARP / 2; mask; mask /= 2)                             \
			value += shuffle(value, mask);                                             \
		/* the array may still be read for the sum before */                               \
		KERNEL_BARRIER();                                                                  \
		if (kernel_thread() % KERNEL_WARP == 0)                                            \
			warps[kernel_thread() / KERNEL_WARP] = value;                              \
		KERNEL_BARRIER();                                                                  \
		for (uint32_t i = 0; i < REDUCE_WARPS; i++)                                        \
			sum += warps[i];                                                           \
		return sum;                                                                        \
	}

REDUCE_SUM(reduce_sum_f64, double, KERNEL_SHUFFLE_F64)
REDUCE_SUM(reduce_sum_u32, uint32_t, KERNEL_SHUFFLE_U32)

/* The values must not be NaN. */
DEVICE float reduce_max_f32(float value)
{
	SHARED(float, warps, REDUCE_WARPS);
	float largest;

	for (uint32_t mask = KERNEL_WARP / 2; mask; mask /= 2) {
		float other = KERNEL_SHUFFLE_F32(value, mask);

		value = other > value ? other : value;
	}
	KERNEL_BARRIER();
	if (kernel_thread() % KERNEL_WARP == 0)
		warps[kernel_thread() / KERNEL_WARP] = value;
	KERNEL_BARRIER();
	largest = warps[0];
	for (uint32_t i = 1; i < REDUCE_WARPS; i++)
		largest = warps[i] > largest ? warps[i] : largest;
	return largest;
}

#endif
