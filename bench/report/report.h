/*
 * Output of loaderbench's results as a table, as JSON, and as a plot.
 *
 * The caller owns the rows. All rows of a report share its settings; each is one point, with
 * medians over the rounds.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "bench/measure/point.h"
#include "bench/report/explain.h"

struct row {
	struct point point;
	struct measurement median;
	double images_per_s_min, images_per_s_max; /* over the rounds */
	double spread;                             /* (max - min) / median of images_per_s */
	unsigned rounds;
	double resident; /* fraction of the dataset in the page cache before the measurement */
	struct explanation *explanation; /* NULL unless requested */
	int error;                       /* 0, or the negative errno of a failed measurement */
	char text[FEED_ERROR_MAX];
};

struct report {
	const struct settings *settings;
	const char *pipeline; /* before the substitution of {size} */
	const struct row *rows;
	size_t count;
};

/* Computes median and spread over the rounds of one point. */
void report_summarise(const struct measurement *rounds, unsigned count, struct row *row);
/*
 * Prints the table. Columns with the same value in every row move to the heading. Reports on
 * standard error why a point could not be measured.
 */
void report_table(const struct report *report, FILE *out);
/* Returns 0 or a negative errno. */
int report_json(const struct report *report, FILE *out);
