/*
 * Progressive resizing: training starts with small images that grow step by step to the pipeline's
 * size (Howard 2018, for DAWNBench; parameters, arithmetic and rounding as in MosaicML Composer's
 * ProgressiveResizing). A step's time is about proportional to the square of the scale. The device
 * resizes by averaging the covered pixels, where Composer takes the nearest one. Pure functions.
 */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

bool progressive_is_on(const struct recipe_data *recipe);
/*
 * In: the pipeline's size. Out: the image size of the step after `step` of `steps`: a width that is
 * a multiple of data.size_increment and the matching height, or the full size once images have
 * grown. At least a quarter of the full size, the device's limit for shrinking.
 */
void progressive_size(const struct recipe_data *recipe, uint64_t step, uint64_t steps,
		      uint32_t *height, uint32_t *width);
