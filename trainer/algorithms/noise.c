#include "trainer/algorithms/noise.h"

#include <math.h>

#define NOISE_MEMORY 0.95 /* decay per step of the moving averages */

void noise_add(struct noise *noise, const struct noise_norms *norms)
{
	double small = norms->small, big = norms->big;
	double squared_norm =
		(big * norms->big_squared - small * norms->small_squared) / (big - small);
	double trace = (norms->small_squared - norms->big_squared) / (1 / small - 1 / big);
	noise->squared_norm =
		NOISE_MEMORY * noise->squared_norm + (1 - NOISE_MEMORY) * squared_norm;
	noise->trace = NOISE_MEMORY * noise->trace + (1 - NOISE_MEMORY) * trace;
	noise->weight = NOISE_MEMORY * noise->weight + (1 - NOISE_MEMORY);
}

/* The weights of both averages are equal and cancel. */
double noise_scale(const struct noise *noise)
{
	if (!(noise->weight > 0))
		return NAN;
	if (!(noise->squared_norm > 0))
		return INFINITY;
	return fmax(noise->trace, 0) / noise->squared_norm;
}
