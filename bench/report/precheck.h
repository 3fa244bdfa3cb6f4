/*
 * Checks points before any of them is measured, so that a long sweep does not fail at its last
 * point: invalid pipelines, batches larger than the dataset.
 */
#pragma once

#include <stddef.h>

#include "bench/report/report.h"

/*
 * Returns -EINVAL with a message if a pipeline is invalid, or if no point can be measured.
 * Otherwise returns the number of points that cannot be measured, with the first one's message in
 * error; each failure is also recorded in its row like a failed measurement. Does not report a
 * dataset that cannot be opened, which the measurement does, and leaves the check of a pipeline to
 * the daemon if settings name a socket.
 */
int precheck_points(const struct settings *settings, struct row *rows, size_t count,
		    char error[FEED_ERROR_MAX]);
