/*
 * Draws a report as SVG: images/s over one swept quantity, one line per combination of the others,
 * with a bar from the slowest to the fastest round at every point.
 */
#pragma once

#include <stdio.h>

#include "bench/report/report.h"

/* Returns 0 or a negative errno. The report must not be empty. */
int plot_write(const struct report *report, FILE *out);
