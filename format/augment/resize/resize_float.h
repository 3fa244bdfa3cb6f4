/*
 * Antialiased bilinear resizing of one channel of f32, for rasters such as depth and images of 16
 * bits: torchvision's resize() of float tensors with antialias=True, which is PyTorch's
 * _upsample_bilinear2d_aa(). The filter is a triangle, two output pixels wide, or two input pixels
 * when enlarging; weights are normalized at the edges. The vertical pass runs first (in PyTorch,
 * last): it is faster and leaves fewer rows. Sums are in f32, in the order of the pixels
 * and without contraction, so the bytes are the same everywhere. Pixels with weight zero are not
 * read, so that NaN and infinity do not spread further than the filter.
 */
#pragma once

#include "format/augment/kernels/block.h"
#include "format/augment/resize.h"

#include <stdint.h>

/* Filter of one axis, from `size` pixels to `count`. Kept for the next channel. */
struct float_filter {
	struct block memory;
	uint32_t size, count, taps_max;
	uint32_t *start; /* [count] first pixel with a weight */
	uint32_t *taps;  /* [count] number of pixels from start on */
	float *weights;  /* [count][taps_max] */
};

/* Scratch memory of one thread. Zero it before first use. */
struct resize_float {
	struct float_filter x, y;
	struct block between; /* rows produced by the vertical pass */
};

void resize_float_deinit(struct resize_float *resize);
/*
 * Resizes width x height pixels, rows without padding, to out_width x out_height. Sides are at most
 * RESIZE_SIDE_MAX. Returns 0 or -ENOMEM.
 */
int resize_float_run(struct resize_float *resize, const float *pixels, uint32_t width,
		     uint32_t height, uint32_t out_width, uint32_t out_height, float *output);
