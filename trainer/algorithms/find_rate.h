/*
 * What the smoothed losses of a training whose rate grows from step to step suggest (Smith, WACV
 * 2017, arXiv:1506.01186, section 3.3): where they are least, and where they fall steepest before.
 * After the minimum the training diverges, and what falls there falls from a peak. In the first
 * quarter the rate changes nothing, and losses differ by noise: both lie behind it. Plain
 * functions.
 */
#pragma once

/*
 * losses: [count], evenly spaced on a logarithmic scale of rates, so that differences are slopes on
 * it; those before `first`, at least 1, are left out. count is more than first + 1.
 */
void find_rate_read(const double *losses, unsigned first, unsigned count, unsigned *ret_steepest,
		    unsigned *ret_least);
