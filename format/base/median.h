/* Median of measurements. Stateless, any thread. */
#pragma once

#include <stddef.h>

/*
 * Sorts the values and returns their median. If count is even, returns the mean of the middle two.
 */
double median_sort(double *values, size_t count);
