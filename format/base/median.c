#include "format/base/median.h"

#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median_sort(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare_doubles);
	return count ? (values[(count - 1) / 2] + values[count / 2]) / 2 : 0;
}
