/*
 * The pipeline as one would write it first: every step by itself, on the whole picture, in double
 * precision. What the planner and the kernels are compared with.
 */
#pragma once

#include "loaderd/augment/grammar/steps.h"

struct reference {
	uint32_t width, height;
	uint8_t *pixels;  /* RGB, owned */
	unsigned resizes; /* that changed pixels */
};

/*
 * Runs the geometric steps on a copy of the pixels. Returns 0, or -EINVAL where a step cannot work.
 */
int reference_run(const struct transform *transform, const uint8_t *pixels, uint32_t width,
		  uint32_t height, uint64_t seed, uint64_t epoch, uint64_t sample,
		  struct reference *ret_picture);
