/*
 * plot: a report as a picture, written as SVG: images/s over one quantity that was swept, one line
 * for each combination of the others, with a bar from the slowest to the fastest round at every
 * point.
 */
#pragma once

#include <stdio.h>

#include "bench/report/report.h"

/* 0, or a negative errno. The report is not empty. */
int plot_write(const struct report *report, FILE *out);
