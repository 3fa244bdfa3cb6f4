/*
 * Learning rate finder (Smith, WACV 2017, arXiv:1506.01186, section 3.3): in the smoothed losses of
 * a run whose learning rate grows at every step, finds the minimum and the steepest descent before
 * it.
 *
 * Both are searched after the first quarter of the losses, where the rate is too small to have an
 * effect and losses differ only by noise. Losses after the minimum are ignored: training diverges
 * there. Pure functions.
 */
#pragma once

/*
 * losses: [count], at learning rates evenly spaced on a logarithmic scale, so that differences are
 * proportional to derivatives on that scale. Ignores entries before `first`, which is at least 1;
 * requires count > first + 1.
 */
void find_rate_read(const double *losses, unsigned first, unsigned count, unsigned *ret_steepest,
		    unsigned *ret_lowest);
