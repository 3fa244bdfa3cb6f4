/*
 * Reference implementation of geometric pipelines: runs each transform separately, on the whole
 * image, in double precision. Tests compare geometry.c and the kernels with it.
 */
#pragma once

#include "format/augment/grammar/transforms.h"

struct reference {
	uint32_t width, height;
	uint8_t *pixels;  /* RGB, owned */
	unsigned resizes; /* number of resizes that changed pixels */
};

/*
 * Runs the geometric transforms on a copy of the pixels. Returns 0, or -EINVAL if a transform
 * cannot be applied.
 */
int reference_run(const struct pipeline *pipeline, const uint8_t *pixels, uint32_t width,
		  uint32_t height, uint64_t seed, uint64_t epoch, uint64_t sample,
		  struct reference *ret_picture);
