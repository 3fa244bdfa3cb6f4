/*
 * Explains what limits a measured point, and which changes would raise the limit.
 *
 * The verdict comes from the daemon's counters alone (limit.h). The effect of changes is estimated
 * on a sample of the dataset (whatif.h) and, for private daemons, by further
 * measurements. Plain values; single-threaded like point_measure().
 */
#pragma once

#include <stdio.h>

#include <jansson.h>

#include "bench/measure/point.h"
#include "bench/report/views.h"
#include "bench/report/whatif.h"

enum { EXPLANATION_CHANGES_MAX = 16 };

/* A change that the user could make. */
struct change {
	char what[64]; /* "an index" */
	char how[64];  /* "packimg index FILE" */
	double images_per_s, gain;
	double bytes;    /* per image; 0 if the change does not affect it */
	int is_measured; /* nonzero if measured with a daemon, zero if estimated */
};

struct explanation {
	struct point point;
	struct measurement measured;
	struct whatif whatif; /* whatif.sampled is 0 if the estimate failed; whatif_error has the
				 reason */
	char whatif_error[FEED_ERROR_MAX];
	double resident; /* fraction of the dataset in the page cache before the measurement */
	/* Rate with the CPUs as the only limit, measured if alone_is_measured, else estimated. */
	double alone_images_per_s;
	int alone_is_measured;
	uint64_t memory_bytes;                          /* available */
	struct change changes[EXPLANATION_CHANGES_MAX]; /* only changes with a gain */
	unsigned change_count;
	unsigned tried; /* number of changes considered */
	struct view_costs views;
};

/*
 * resident: fraction of the dataset in the page cache before the measurement. measured: the result
 * for this point. Returns 0, or a negative errno with a message in error (FEED_ERROR_MAX bytes).
 */
int explanation_make(const struct settings *settings, const struct point *point, double resident,
		     const struct measurement *measured, struct explanation *ret_explanation,
		     char *error);
/* Prints the measured share of each part of a mixture. */
void parts_text(const struct point *point, const struct measurement *measured, FILE *out);
/* Returns a list of {dataset, share}; NULL unless the point is a mixture. */
json_t *parts_json(const struct point *point, const struct measurement *measured);
void explanation_text(const struct explanation *explanation, FILE *out);
json_t *explanation_json(const struct explanation *explanation);
