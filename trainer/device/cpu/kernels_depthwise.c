/*
 * Weight gradient of a depthwise convolution of stride 1, DEPTHWISE_BLOCK channels at a time;
 * compiled once per instruction set, as kernels.c. Keeps the sums of a window row in registers
 * while it iterates over the result's gradient and multiplies each value by its window in x.
 */
#include "trainer/device/cpu/tile.h"

_Static_assert(DEPTHWISE_BLOCK % LANES == 0, "blocks are whole vectors");

/* sum [window][DEPTHWISE_BLOCK] += x [q + window - 1][DEPTHWISE_BLOCK] times gradient, along q */
INLINE void add_products(float *restrict sum, const float *x, const float *gradient, size_t stride,
			 size_t q, const int window)
{
	lanes s[DEPTHWISE_WINDOW_MAX];

#pragma GCC unroll 7
	for (int j = 0; j < window; j++)
		s[j] = load(sum + (size_t)j * DEPTHWISE_BLOCK);
	for (size_t i = 0; i < q; i++) {
		lanes g = load(gradient + i * stride);

#pragma GCC unroll 7
		for (int j = 0; j < window; j++)
			s[j] += g * load(x + (i + (size_t)j) * DEPTHWISE_BLOCK);
	}
#pragma GCC unroll 7
	for (int j = 0; j < window; j++)
		store(sum + (size_t)j * DEPTHWISE_BLOCK, s[j]);
}

INLINE void depthwise_window(const struct depthwise_args *args, float *sum, const int window)
{
	size_t row = (args->q + (size_t)window - 1) * DEPTHWISE_BLOCK;

	for (size_t p = 0; p < args->p; p++)
		for (size_t r = 0; r < (size_t)window; r++)
			for (size_t lane = 0; lane < DEPTHWISE_BLOCK; lane += LANES)
				add_products(sum + r * (size_t)window * DEPTHWISE_BLOCK + lane,
					     args->x + (p + r) * row + lane,
					     args->gradient + p * args->q * args->stride + lane,
					     args->stride, args->q, window);
}

void KERNELS_NAMED(depthwise)(const struct depthwise_args *args, float *sum)
{
	if (args->window == 7)
		depthwise_window(args, sum, 7);
	else
		depthwise_window(args, sum, 5);
}
