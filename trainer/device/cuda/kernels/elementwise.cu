/* Kernels of elementwise.h. */
#include "trainer/device/cuda/kernels/elementwise.h"

#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/cuda/kernels/tables.h"

DEVICE uint64_t elementwise_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Writes one element of `to`. A plain copy preserves the sign of zero. */
DEVICE void elementwise_put(const struct elementwise_copy *a, uint64_t at, float value)
{
	kernel_store(a->to, at, a->to_element,
		     a->add ? value + kernel_load(a->to, at, a->to_element) : value);
}

#define KERNEL_BODY "trainer/device/cuda/kernels/common/elementwise_kernels.h"
#include "trainer/device/cuda/kernels/common/instances.h"

/* One thread per element of `to`. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	copy_columns(const __grid_constant__ struct elementwise_copy a)
{
	uint64_t at = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x, row = at / a.to_columns;
	uint32_t column = (uint32_t)(at - row * a.to_columns);
	float value = 0;

	if (row >= a.rows)
		return;
	if (column < a.from_columns)
		value = kernel_load(a.from, row * a.from_columns + column, a.from_element);
	elementwise_put(&a, at, value);
}

/* One thread per element of `to`, and at least one per k. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	fold(const __grid_constant__ struct elementwise_fold a)
{
	uint64_t at = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x, row = at / a.to_columns;
	uint32_t column = (uint32_t)(at - row * a.to_columns), k = (uint32_t)(row / a.positions);
	float scale;

	if (k >= a.k)
		return;
	scale = a.gamma[k] / sqrtf(a.running_var[k] + a.epsilon);
	if (row == (uint64_t)k * a.positions && column == 0)
		kernel_store(a.bias, k, a.bias_element, a.beta[k] - a.running_mean[k] * scale);
	kernel_store(a.to, at, a.to_element,
		     column < a.from_columns ? a.w[row * a.from_columns + column] * scale : 0);
}

ELEMENTWISE_KERNELS(INSTANCES)
KERNEL_TABLE elementwise_copy_columns_kernel = KERNEL(copy_columns);
KERNEL_TABLE elementwise_fold_kernel = KERNEL(fold);
