/*
 * report: what loaderbench found, as a table for a person, as JSON, and as a plot.
 *
 * Rows are owned by the caller and belong together: the same settings, one row per point, medians
 * over the rounds.
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
	double resident;                 /* share of the dataset in the page cache before, */
	struct explanation *explanation; /* for this; NULL: not asked for */
	int error; /* 0, or the negative errno of a point that could not be measured */
	char text[FEED_ERROR_MAX];
};

struct report {
	const struct settings *settings;
	const char *pipeline; /* before {size} was replaced */
	const struct row *rows;
	size_t count;
};

/* Median and spread of the rounds of one point. */
void report_summarise(const struct measurement *rounds, unsigned count, struct row *row);
/*
 * Columns that are the same in every row stand in the heading instead. Where no point could be
 * measured, says why on standard error.
 */
void report_table(const struct report *report, FILE *out);
/* 0, or a negative errno. */
int report_json(const struct report *report, FILE *out);
