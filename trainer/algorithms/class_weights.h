/*
 * Class weights that make every class count equally: inversely proportional to class frequency,
 * with a mean of 1 over the samples, as scikit-learn's class_weight="balanced" (King, Zeng:
 * "Logistic Regression in Rare Events Data", 2001, on weighting). Pure functions.
 */
#pragma once

#include <stdint.h>

/*
 * samples / (nonempty classes * counts[i]); 1 for an empty class, which per-class losses still
 * include.
 */
void class_weights_balanced(const uint64_t *counts, uint32_t classes, float *ret_weights);
