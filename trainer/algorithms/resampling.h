/* Tells whether the device blends, resizes or drops lines of training images. Pure function. */
#pragma once

#include "trainer/recipe/recipe.h"

#include <stdbool.h>

/* True with train.mixup, train.cutmix, data.colout or progressive resizing. */
bool resampling_is_on(const struct recipe *recipe);
