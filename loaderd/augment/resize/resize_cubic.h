/*
 * Bicubic resizing with Pillow's own arithmetic, byte for byte: Keys' kernel with a = -0.5 (Keys
 * 1981) whose support grows with the ratio when shrinking, weights of 22 fractional bits, and 8
 * bits between the horizontal pass and the vertical one after it. That order is Pillow 9.4's; 13.0
 * chooses by the sizes, and has the same one for pictures of usual shapes that keep theirs. It is
 * for evaluation as timm and torchvision do it; resize.h's bilinear is the fast path, and is not
 * touched.
 */
#pragma once

#include "loaderd/augment/kernels/block.h"
#include "loaderd/augment/resize/resize_kernels.h"

/* Filter of one direction, in the pixels of the source. */
struct cubic_table {
	uint32_t count, taps_max;
	int32_t *start;   /* [count] first pixel that has weight */
	uint32_t *taps;   /* [count] pixels from there */
	int32_t *weights; /* [count][taps_max] */
};

/* What a thread keeps; zeros at first. */
struct cubic {
	struct cubic_filter {
		struct cubic_table table;
		struct block memory;
	} x, y;
	struct block between;    /* the last rows after the horizontal pass */
	struct block transposed; /* source rows of a band, pixel by pixel */
	struct block rows;       /* pointers to rows between the passes */
	struct block finished;   /* one row */
};

void cubic_deinit(struct cubic *cubic);

/* As resize_cubic() (resize.h), whose arguments have been checked. */
int cubic_run(struct cubic *cubic, const struct resize_kernels *kernels,
	      const struct resize_source *source, const struct cubic_axis *x,
	      const struct cubic_axis *y, const struct resize_target *target);
