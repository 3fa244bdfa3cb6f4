/*
 * Antialiased resizing of interleaved f32, for rasters such as depth and images of 16 bits:
 * torchvision's resize() of float tensors with antialias=True, which is PyTorch's
 * _upsample_bilinear2d_aa() and _upsample_bicubic2d_aa(). The filter is a triangle, two output
 * pixels wide, or Keys' cubic with a = -0.5, four wide; input pixels when enlarging. Weights are
 * computed in f64 and normalized at the edges. The vertical pass runs first (in PyTorch, last): it
 * is faster and leaves fewer rows. Sums are in f32, in the order of the pixels and without
 * contraction, so the bytes are the same everywhere, also of a part of the result. Pixels whose
 * weight is zero at the ends of the filter are not read, so that NaN and infinity do not spread
 * further than the filter.
 */
#pragma once

#include "format/augment/kernels/block.h"
#include "format/augment/resize/resize_kernels.h"

/* One axis of a resize from `size` to `grid` pixels. */
struct float_axis {
	uint32_t size, grid;
	uint32_t first, count; /* pixels of the grid to make */
	uint32_t low, span;    /* pixels in memory, from `low` on: resize_float_range() */
};

/* Filter of one axis. Kept for the next picture. */
struct float_filter {
	struct block memory;
	struct float_axis axis;
	bool cubic;
	uint32_t taps_max;
	uint32_t *start; /* [count] first pixel with a weight, counted from axis.low */
	uint32_t *taps;  /* [count] number of pixels from start on */
	float *weights;  /* [count][taps_max] */
};

/* Scratch memory of one thread. Zero it before first use. */
struct resize_float {
	struct float_filter x, y;
	struct block between; /* rows produced by the vertical pass, and these transposed */
};

void resize_float_deinit(struct resize_float *resize);
/* Sets low and span to the pixels that the others need. count is at least 1. */
void resize_float_range(struct float_axis *axis, bool cubic);
/*
 * Resizes x->span x y->span pixels, rows without padding, to x->count x y->count. Sides are at most
 * RESIZE_SIDE_MAX. Returns 0 or -ENOMEM.
 */
int resize_float_run(struct resize_float *resize, const struct resize_kernels *kernels,
		     const float *pixels, uint32_t channels, const struct float_axis *x,
		     const struct float_axis *y, bool cubic, float *output);
