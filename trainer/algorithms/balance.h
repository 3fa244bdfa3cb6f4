/*
 * Class weights by which all classes count the same, however many samples each has: inverse to
 * their frequency, with the mean of 1 over the samples, as scikit-learn's class_weight="balanced"
 * (King, Zeng: "Logistic Regression in Rare Events Data", 2001, on weighting). Plain functions.
 */
#pragma once

#include <stdint.h>

/*
 * samples / (classes that have any * counts[i]), and 1 of a class that has none: losses of each
 * class by itself still have it as one of the others.
 */
void balance_weights(const uint64_t *counts, uint32_t classes, float *ret_weights);
