/*
 * What the views of a pipeline cost: measures the pipeline with each view alone, at private
 * daemons.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "bench/measure/point.h"
#include "format/augment/pipeline.h"

struct view_cost {
	char text[64]; /* "global(2)" */
	double cpu_us; /* of the daemon's threads, per sample, with this view alone */
};

struct view_costs {
	unsigned count; /* 0 unless the pipeline has several views */
	struct view_cost views[PIPELINE_VIEWS_MAX];
};

bool pipeline_text_has_views(const char *pipeline);
/* Returns 0, or a negative errno with a message in error (FEED_ERROR_MAX bytes). */
int view_costs_measure(const struct settings *settings, const struct point *point,
		       struct view_costs *ret_costs, char *error);
/* together_us: with all views. Prints nothing without costs. */
void view_costs_text(const struct view_costs *costs, double together_us, FILE *out);
/* Returns a list of {view, cpu_us}. */
json_t *view_costs_json(const struct view_costs *costs);
