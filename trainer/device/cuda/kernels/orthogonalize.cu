/* Kernels and launchers of orthogonalize.h: one thread per element. */
extern "C" {
#include "trainer/device/cuda/kernels/orthogonalize.h"
}

#include "trainer/device/cuda/kernels/common/launch.h"

DEVICE uint64_t thread_element(void)
{
	return (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	orthogonalize_begin_kernel(const __grid_constant__ struct orthogonalize_matrix a)
{
	uint64_t at = thread_element(), row = at / a.x_columns;
	uint32_t column = (uint32_t)(at - row * a.x_columns);
	float value = 0;

	if (!a.decision->made || row >= a.x_rows)
		return;
	float norm = (float)sqrt(*a.squares);
	if (row < a.rows && column < a.columns)
		value = a.gradient[row * a.columns + column] *
			(1 / (norm > UPDATE_MATRIX_NORM_MIN ? norm : UPDATE_MATRIX_NORM_MIN));
	kernel_store(a.x, at, a.element, value);
}

int orthogonalize_begin(const struct kernel_device *device,
			const struct orthogonalize_matrix *arguments)
{
	return launch_flat(device, KERNEL(orthogonalize_begin_kernel),
			   (uint64_t)arguments->x_rows * arguments->x_columns, arguments);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	orthogonalize_end_kernel(const __grid_constant__ struct orthogonalize_matrix a)
{
	uint64_t at = thread_element(), row = at / a.columns;
	uint32_t column = (uint32_t)(at - row * a.columns);

	if (!a.decision->made || row >= a.rows)
		return;
	a.gradient[at] = kernel_load(a.x, row * a.x_columns + column, a.element);
}

int orthogonalize_end(const struct kernel_device *device,
		      const struct orthogonalize_matrix *arguments)
{
	return launch_flat(device, KERNEL(orthogonalize_end_kernel),
			   (uint64_t)arguments->rows * arguments->columns, arguments);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	orthogonalize_combine_kernel(const __grid_constant__ struct orthogonalize_combine a)
{
	uint64_t at = thread_element(), row = at / a.gram_side;

	if (row >= a.gram_side)
		return;
	kernel_store(a.product, at, a.element,
		     (at - row * a.gram_side == row ? a.polynomial.a : 0) +
			     a.polynomial.b * kernel_load(a.gram, at, a.element) +
			     a.polynomial.c * a.square[at]);
}

int orthogonalize_combine(const struct kernel_device *device,
			  const struct orthogonalize_combine *arguments)
{
	return launch_flat(device, KERNEL(orthogonalize_combine_kernel),
			   (uint64_t)arguments->gram_side * arguments->gram_side, arguments);
}
