/*
 * Progressive resizing: training starts with small images and increases their size step by step up
 * to the pipeline's (Howard 2018, for DAWNBench; parameters, arithmetic and rounding as in MosaicML
 * Composer's ProgressiveResizing). The time of a step is about proportional to the square of the
 * scale. The device resizes by averaging the covered pixels; Composer takes the nearest pixel. Pure
 * functions.
 */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdbool.h>
#include <stdint.h>

bool progressive_is_on(const struct recipe_data *recipe);
/*
 * Replaces the pipeline's image size with that of the step after `step` of `steps`: a width that is
 * a multiple of data.size_increment, and the height of the same aspect ratio. In the last steps,
 * this is the full size. Each side is at least a quarter of the full one, the device's limit for
 * shrinking.
 */
void progressive_size(const struct recipe_data *recipe, uint64_t step, uint64_t steps,
		      uint32_t *height, uint32_t *width);
