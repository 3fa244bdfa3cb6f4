/*
 * Blends two finished images with each other: both become weighted means of both. Arithmetic is in
 * single precision with two roundings of the products and one of the sum; narrower elements are
 * then rounded to nearest even. All instruction sets produce the same bits. Pure functions.
 */
#pragma once

#include "format/augment/pipeline.h"

struct blend_kernels {
	/*
	 * a, b: `count` elements each. Sets each of a to share * a + (1 - share) * b, and each of b
	 * to share * b + (1 - share) * a.
	 */
	void (*pair)(enum pipeline_element element, float share, void *a, void *b, size_t count);
};

extern const struct blend_kernels blend_kernels_c;
extern const struct blend_kernels blend_kernels_avx2;
extern const struct blend_kernels blend_kernels_avx512bw;
extern const struct blend_kernels blend_kernels_avx512;
