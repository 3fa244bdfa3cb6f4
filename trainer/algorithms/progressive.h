/*
 * Progressive resizing: training begins with small images, which grow from step to step until they
 * are as large as the pipeline makes them (Howard 2018, for DAWNBench; parameters, arithmetic and
 * rounding are those of MosaicML Composer's ProgressiveResizing). The time of a step is about the
 * square of the scale. The device resizes, each pixel the mean of those that it covers, where
 * Composer takes the nearest one. Plain functions.
 */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

bool progressive_is_on(const struct recipe_data *recipe);
/*
 * Size of the images of the step that follows `step` of `steps`, from that of the pipeline's:
 * a width that is a multiple of data.size_increment, and the height that goes with it; the whole
 * size once images have grown. Never below a quarter, which the device shrinks to at most.
 */
void progressive_size(const struct recipe_data *recipe, uint64_t step, uint64_t steps,
		      uint32_t *height, uint32_t *width);
