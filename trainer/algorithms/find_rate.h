/*
 * Learning rate finder: from the smoothed losses of a run whose rate grows at every step (Smith,
 * WACV 2017, arXiv:1506.01186, section 3.3), finds the minimum and the steepest descent before it.
 * Both are searched after the first quarter, in which the rate has no effect yet and losses differ
 * only by noise. After the minimum training diverges, and any descent there is from a
 * peak. Pure functions.
 */
#pragma once

/*
 * losses: [count], at rates evenly spaced on a logarithmic scale, so that differences are slopes in
 * it. Entries before `first` (at least 1) are ignored; count > first + 1.
 */
void find_rate_read(const double *losses, unsigned first, unsigned count, unsigned *ret_steepest,
		    unsigned *ret_lowest);
