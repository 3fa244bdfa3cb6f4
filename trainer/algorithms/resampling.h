/*
 * Tells whether the device resamples training images: blends them, drops their rows and columns,
 * or resizes them. Pure function.
 */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdbool.h>

/* True with train.mixup, train.cutmix, data.colout or progressive resizing. */
bool resampling_is_on(const struct recipe *recipe);
