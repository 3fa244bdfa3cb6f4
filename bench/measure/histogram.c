#include "bench/measure/histogram.h"

#include <math.h>
#include <stddef.h>

void histogram_add(struct histogram *histogram, uint64_t ns)
{
	double position = ns > 1 ? log2((double)ns) * HISTOGRAM_STEPS : 0;
	size_t step = position < HISTOGRAM_OCTAVES * HISTOGRAM_STEPS - 1
			      ? (size_t)position
			      : HISTOGRAM_OCTAVES * HISTOGRAM_STEPS - 1;

	histogram->counts[step]++;
	histogram->total++;
}

void histogram_merge(struct histogram *histogram, const struct histogram *other)
{
	for (size_t i = 0; i < HISTOGRAM_OCTAVES * HISTOGRAM_STEPS; i++)
		histogram->counts[i] += other->counts[i];
	histogram->total += other->total;
}

double histogram_quantile(const struct histogram *histogram, double quantile)
{
	uint64_t below = 0;

	if (!histogram->total)
		return 0;
	for (size_t i = 0; i < HISTOGRAM_OCTAVES * HISTOGRAM_STEPS; i++) {
		below += histogram->counts[i];
		if ((double)below >= quantile * (double)histogram->total)
			return exp2((double)(i + 1) / HISTOGRAM_STEPS);
	}
	return exp2(HISTOGRAM_OCTAVES);
}
