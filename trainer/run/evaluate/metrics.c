#include "trainer/run/evaluate/metrics.h"

#include <stdio.h>

const struct metrics metrics_of_classes = {2, {{"top1", "top-1", true}, {"top5", "top-5", true}}};

void metric_text(const struct metric *metric, double value, char *ret_text)
{
	if (metric->percent)
		snprintf(ret_text, METRIC_TEXT, "%.2f %%", 100 * value);
	else
		snprintf(ret_text, METRIC_TEXT, "%.4g", value);
}

void metrics_text(const struct metrics *metrics, const double *values, bool exact, char *ret_text)
{
	size_t length = 0;
	for (unsigned i = 0; i < metrics->count; i++) {
		const struct metric *metric = &metrics->metric[i];
		char value[METRIC_TEXT];
		if (exact)
			snprintf(value, sizeof(value), "%.6g", values[i]);
		else
			metric_text(metric, values[i], value);
		length += (size_t)snprintf(ret_text + length, METRICS_TEXT - length, "%s%s %s",
					   !i      ? ""
					   : exact ? ", "
						   : "  ",
					   metric->name, value);
	}
}
