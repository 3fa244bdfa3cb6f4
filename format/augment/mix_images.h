/* Blends finished images as mix.h has drawn it. Pure functions. */
#pragma once

#include "format/augment/mix.h"
#include "format/augment/pipeline.h"
#include "format/base/system/cpu.h"

/*
 * Blends two finished images of one shape with each other, both by this blend: outside the box,
 * each becomes share * itself + (1 - share) * the other; inside, each gets the other's pixels.
 * Elements are blended as they are, in single precision (kernels/blend.h).
 */
void mix_images(enum cpu_isa isa, const struct pipeline_shape *shape, const struct mix_blend *blend,
		void *a, void *b);
