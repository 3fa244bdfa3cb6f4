/*
 * Bicubic resizing with Pillow's arithmetic, byte for byte: Keys' kernel with a = -0.5 (Keys 1981),
 * whose support grows with the ratio when shrinking; weights with 22 fractional bits; 8 bits
 * between the passes. The horizontal pass runs before the vertical one, as in Pillow 9.4. Pillow
 * 13.0 chooses the order by the sizes; it chooses the same order if the picture has a usual aspect
 * ratio and keeps it. Meant for evaluation as timm and torchvision do it; the bilinear filter of
 * resize.h is faster.
 */
#pragma once

#include "format/augment/kernels/block.h"
#include "format/augment/resize/resize_kernels.h"

/* Filter of one axis, in source pixels. */
struct cubic_table {
	uint32_t count, taps_max;
	int32_t *start;   /* [count] first pixel with a nonzero weight */
	uint32_t *taps;   /* [count] number of pixels from start on */
	int32_t *weights; /* [count][taps_max] */
};

/* Scratch memory of one thread. Zero it before first use. */
struct cubic {
	struct cubic_filter {
		struct cubic_table table;
		struct block memory;
	} x, y;
	struct block between;    /* the latest rows produced by the horizontal pass */
	struct block transposed; /* source rows of a band: [pixel][channel][row] */
	struct block rows;       /* pointers to the input rows of the vertical pass */
	struct block finished;   /* one output row */
};

/* Returns the weight at a distance from the centre, of 2 on either side. */
double cubic_kernel(double distance);

void cubic_deinit(struct cubic *cubic);

/* Implements resize_cubic() (resize.h), which checks the arguments. */
int cubic_run(struct cubic *cubic, const struct resize_kernels *kernels,
	      const struct resize_source *source, const struct cubic_axis *x,
	      const struct cubic_axis *y, const struct resize_target *target);
