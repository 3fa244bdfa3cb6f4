/*
 * Shared by the kernel sources: passes over rows of either element type as floats, and e^x.
 * Included by sources compiled once per instruction set.
 */
#pragma once

#include "format/base/half.h"
#include "trainer/device/cpu/kernels.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE void load_row(float *restrict to, const void *from, enum element element, size_t at,
		     size_t width)
{
	if (element == ELEMENT_BF16) {
		const uint16_t *x = (const uint16_t *)from + at;

		for (size_t i = 0; i < width; i++)
			to[i] = bfloat_to_float(x[i]);
	} else {
		memcpy(to, (const float *)from + at, width * sizeof(float));
	}
}

INLINE void add_row(float *restrict to, const void *from, enum element element, size_t at,
		    size_t width)
{
	if (element == ELEMENT_BF16) {
		const uint16_t *x = (const uint16_t *)from + at;

		for (size_t i = 0; i < width; i++)
			to[i] += bfloat_to_float(x[i]);
	} else {
		const float *x = (const float *)from + at;

		for (size_t i = 0; i < width; i++)
			to[i] += x[i];
	}
}

INLINE void store_row(void *to, const float *restrict from, enum element element, size_t at,
		      size_t width)
{
	if (element == ELEMENT_BF16) {
		uint16_t *y = (uint16_t *)to + at;

		for (size_t i = 0; i < width; i++)
			y[i] = float_to_bfloat(from[i]);
	} else {
		memcpy((float *)to + at, from, width * sizeof(float));
	}
}

INLINE size_t size_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

INLINE void affine_row(float *restrict to, const float *restrict x, const float *restrict scale,
		       const float *restrict bias, size_t width)
{
	for (size_t i = 0; i < width; i++)
		to[i] = scale[i] * x[i] + bias[i];
}

INLINE void multiply_row(float *restrict to, const float *restrict by, size_t width)
{
	for (size_t i = 0; i < width; i++)
		to[i] *= by[i];
}

INLINE void relu_row(float *restrict z, size_t width)
{
	/* written so that NaN propagates */
	for (size_t i = 0; i < width; i++)
		z[i] = z[i] < 0 ? 0 : z[i];
}

/* Sets g to 0 except where mask > 0. */
INLINE void mask_row(float *restrict g, const float *restrict mask, size_t width)
{
	for (size_t i = 0; i < width; i++)
		g[i] = mask[i] > 0 ? g[i] : 0;
}

#define FLUSH_ROWS 64 /* rows summed in fp32 before they go into the double sums */

INLINE void flush(double *restrict to, float *restrict from, size_t width)
{
	for (size_t i = 0; i < width; i++) {
		to[i] += (double)from[i];
		from[i] = 0;
	}
}

/* Instantiates a function per element type, so that inner loops do not branch on it. */
#define BY_ELEMENT(rows_of, args, ...)                                                             \
	((args)->element == ELEMENT_BF16 ? rows_of(args, ELEMENT_BF16, __VA_ARGS__)                \
					 : rows_of(args, ELEMENT_F32, __VA_ARGS__))

/*
 * e^x to about 2 units in the last place: x = k ln 2 + r, e^x = 2^k e^r with a polynomial for e^r
 * (the scheme of Cephes' expf, with the range clamped so that no special case is left in the loop).
 */
INLINE float exp_fast(float x)
{
	x = x < -87.0f ? -87.0f : x;
	x = x > 88.0f ? 88.0f : x;
	/* adding and subtracting 1.5 * 2^23 rounds to an integer */
	float k = x * 1.44269504f + 12582912.0f;
	k -= 12582912.0f;
	float r = x - k * 0.693359375f;
	r -= k * -2.12194440e-4f;
	float p = 1.9875691500e-4f;
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	return p * float_of_bits((uint32_t)((int32_t)k + 127) << 23);
}

/* Draws the dropout factors for consecutive quads of elements, starting with quad `first`. */
INLINE void draw_quads(float *restrict to, struct dropout_rate drop, struct dropout_key key,
		       uint32_t sample, uint32_t first, size_t quads)
{
	for (size_t i = 0; i < quads; i++) {
		struct philox_block block = dropout_quad(key, sample, first + (uint32_t)i);

		to[4 * i] = dropout_factor(drop, block.a);
		to[4 * i + 1] = dropout_factor(drop, block.b);
		to[4 * i + 2] = dropout_factor(drop, block.c);
		to[4 * i + 3] = dropout_factor(drop, block.d);
	}
}

/* Function names with the instruction set as suffix, for functions used across files of a set. */
#define KERNELS_NAMED(name)           KERNELS_JOINED(name, KERNELS_SET)
#define KERNELS_JOINED(name, set)     KERNELS_JOINED_NOW(name, set)
#define KERNELS_JOINED_NOW(name, set) name##_##set

void KERNELS_NAMED(depthwise)(const struct depthwise_args *args, float *sum);
void KERNELS_NAMED(max_pool)(const struct max_pool_args *args);
void KERNELS_NAMED(max_pool_backward)(const struct max_pool_args *args);
void KERNELS_NAMED(winograd)(enum winograd_transform transform, struct winograd_array from,
			     struct winograd_array to);
void KERNELS_NAMED(product)(const struct product_args *args);
void KERNELS_NAMED(attention)(const struct attention_args *args);
void KERNELS_NAMED(attention_backward)(const struct attention_args *args);
void KERNELS_NAMED(layer_norm)(const struct layer_norm_args *args, size_t rows, size_t channels);
void KERNELS_NAMED(layer_norm_backward)(const struct layer_norm_backward_args *args, size_t rows,
					size_t channels, double *dbeta, double *dgamma);
void KERNELS_NAMED(scale_add)(const struct scale_add_args *args);
void KERNELS_NAMED(scale_add_backward)(const struct scale_add_args *args, double *product);
void KERNELS_NAMED(loss)(const struct loss_args *args, struct loss_sums *sums);
