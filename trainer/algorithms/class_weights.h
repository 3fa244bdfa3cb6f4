/*
 * Class weights that make every class count equally, as scikit-learn's class_weight="balanced":
 * inversely proportional to class frequency, with a mean of 1 over the samples (King and Zeng 2001,
 * "Logistic Regression in Rare Events Data"). Pure functions.
 */
#pragma once

#include <stdint.h>

/*
 * Sets each weight to samples / (nonempty classes * counts[i]), where samples is the sum of counts:
 * the samples of each class, or their expected number in any period. An empty class gets 1, because
 * per-class losses still include it.
 */
void class_weights_balanced(const double *counts, uint32_t classes, float *ret_weights);
