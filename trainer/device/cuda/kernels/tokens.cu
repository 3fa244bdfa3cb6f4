/* Kernels of tokens.h. */
#include "trainer/device/cuda/kernels/tokens.h"

#include "trainer/device/cuda/kernels/common/kernel.h"
#include "trainer/device/cuda/kernels/tables.h"

#define SAMPLES 4 /* loads in flight per thread */

/* A thread's row and group of channels. */
struct tokens_place {
	uint32_t row, group;
};

DEVICE struct tokens_place tokens_here(const struct tokens_arguments *a)
{
	uint32_t at = blockIdx.x * KERNEL_THREADS + threadIdx.x;
	struct tokens_place here;

	here.row = kernel_divide(at, a->by_groups);
	here.group = at - here.row * a->groups;
	return here;
}

/* Value of a place of the new size: the weighted mean of places of the old size. */
DEVICE float tokens_resized(const struct tokens_resize *a, uint32_t place, uint32_t channel)
{
	const uint32_t row = place / a->size.w;
	const struct positions_window y = positions_window(row, a->size.side, a->size.h);
	const struct positions_window x =
		positions_window(place - row * a->size.w, a->size.side, a->size.w);
	float sum = 0;

	for (uint32_t i = y.first; i < y.first + y.count; i++)
		for (uint32_t j = x.first; j < x.first + x.count; j++) {
			uint64_t from = a->size.first + i * a->size.side + j;

			sum += positions_weight(&y, i) * positions_weight(&x, j) *
			       a->from[from * a->size.channels + channel];
		}
	return sum / (y.sum * x.sum);
}

/* Weight of old row or column `at` in new row or column `place`. */
DEVICE float tokens_weight(uint32_t at, uint32_t place, uint32_t from, uint32_t to)
{
	const struct positions_window window = positions_window(place, from, to);

	if (at < window.first || at >= window.first + window.count)
		return 0;
	return positions_weight(&window, at) / window.sum;
}

/* Gradient of a place of the old size: the weighted sum over the new places that used it. */
DEVICE float tokens_unsized(const struct tokens_resize *a, uint32_t place, uint32_t channel)
{
	const uint32_t row = place / a->size.side, column = place - row * a->size.side;
	float sum = 0;

	for (uint32_t i = 0; i < a->size.h; i++) {
		const float y = tokens_weight(row, i, a->size.side, a->size.h);

		for (uint32_t j = 0; j < a->size.w && y != 0; j++) {
			const float x = tokens_weight(column, j, a->size.side, a->size.w);
			uint64_t from = a->size.first + i * a->size.w + j;

			if (x != 0)
				sum += y * x * a->from[from * a->size.channels + channel];
		}
	}
	return sum;
}

/* One thread per element of `to`. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_resize_all(const __grid_constant__ struct tokens_resize a)
{
	uint32_t at = blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint32_t token = kernel_divide(at, a.by_channels);
	uint32_t channel = at - token * a.size.channels;

	if (token < a.size.first + a.size.h * a.size.w)
		a.to[at] = token < a.size.first ? a.from[at]
						: tokens_resized(&a, token - a.size.first, channel);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	tokens_resize_all_backward(const __grid_constant__ struct tokens_resize a)
{
	uint32_t at = blockIdx.x * KERNEL_THREADS + threadIdx.x;
	uint32_t token = kernel_divide(at, a.by_channels);
	uint32_t channel = at - token * a.size.channels;
	float sum;

	if (token >= a.size.first + a.size.side * a.size.side)
		return;
	sum = token < a.size.first ? a.from[at] : tokens_unsized(&a, token - a.size.first, channel);
	a.to[at] = a.add ? a.to[at] + sum : sum;
}

KERNEL_TABLE tokens_resize_kernel = KERNEL(tokens_resize_all);
KERNEL_TABLE tokens_resize_backward_kernel = KERNEL(tokens_resize_all_backward);

#define KERNEL_BODY "trainer/device/cuda/kernels/common/tokens_kernels.h"
#include "trainer/device/cuda/kernels/common/instances.h"

TOKENS_KERNELS(INSTANCES)
