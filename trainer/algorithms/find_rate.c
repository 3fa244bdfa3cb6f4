#include "trainer/algorithms/find_rate.h"

static double find_rate_fall(const double *losses, unsigned i)
{
	return losses[i - 1] - losses[i + 1];
}

void find_rate_read(const double *losses, unsigned first, unsigned count, unsigned *ret_steepest,
		    unsigned *ret_least)
{
	unsigned steepest = first, least = first;
	for (unsigned i = first; i < count; i++)
		if (losses[i] < losses[least])
			least = i;
	for (unsigned i = first; i < least; i++)
		if (find_rate_fall(losses, i) > find_rate_fall(losses, steepest))
			steepest = i;
	*ret_steepest = steepest;
	*ret_least = least;
}
