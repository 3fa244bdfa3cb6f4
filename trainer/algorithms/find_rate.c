#include "trainer/algorithms/find_rate.h"

static double find_rate_fall(const double *losses, unsigned i)
{
	return losses[i - 1] - losses[i + 1];
}

/*
 * Returns the index where training begins to diverge: the first one, from `quiet` on, whose loss
 * exceeds all losses before `quiet`. Before `quiet`, the rate is too small to have an effect.
 */
static unsigned find_rate_end(const double *losses, unsigned first, unsigned quiet, unsigned count)
{
	static const double noise = 1.01; /* tolerance for smoothed losses */
	double level = losses[first];
	unsigned end = quiet;
	for (unsigned i = first; i < quiet; i++)
		level = losses[i] > level ? losses[i] : level;
	while (end < count && losses[end] <= noise * level)
		end++;
	return end;
}

void find_rate_read(const double *losses, unsigned first, unsigned count, unsigned *ret_steepest,
		    unsigned *ret_lowest)
{
	const unsigned quiet = first + (count - first) / 4;
	const unsigned end = find_rate_end(losses, first, quiet, count);
	/*
	 * Losses before `quiet` differ only by noise: ignore them, unless training diverges at
	 * once.
	 */
	const unsigned begin = quiet < end ? quiet : first;
	unsigned steepest = begin, lowest = begin;
	for (unsigned i = quiet; i < end; i++)
		if (losses[i] < losses[lowest])
			lowest = i;
	for (unsigned i = begin; i < lowest; i++)
		if (find_rate_fall(losses, i) > find_rate_fall(losses, steepest))
			steepest = i;
	*ret_steepest = steepest;
	*ret_lowest = lowest;
}
