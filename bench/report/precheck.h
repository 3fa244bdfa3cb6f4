/*
 * precheck: what can be said of points before any of them is measured, so that an hour's sweep does
 * not end at its last line: pipelines that cannot be read, batches larger than the dataset.
 */
#pragma once

#include <stddef.h>

#include "bench/report/report.h"

/*
 * -EINVAL with a sentence where a pipeline cannot be read, or no point can be measured. Else how
 * many points cannot, the first one's sentence, and each one's in its row, as of a measurement that
 * failed. A dataset that cannot be opened is left to the measurement, and what a daemon at a socket
 * makes of a pipeline to that daemon.
 */
int precheck_points(const struct settings *settings, struct row *rows, size_t count,
		    char error[FEED_ERROR_MAX]);
