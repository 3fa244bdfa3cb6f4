/*
 * explain: what limits a point that was measured, in words and numbers, and what would change that.
 *
 * The verdict comes from the daemon's counters alone (limit.h); what changes would bring, from
 * trials of a sample of the dataset (trials.h) and, for private daemons, from further measurements.
 * Plain values; one thread, as point_measure().
 */
#pragma once

#include <stdio.h>

#include <jansson.h>

#include "bench/measure/point.h"
#include "bench/report/trials.h"

enum { EXPLANATION_CHANGES_MAX = 16 };

/* Something that the user could do. */
struct change {
	char what[64]; /* "an index" */
	char how[64];  /* "packimg index FILE" */
	double images_per_s, gain;
	double bytes;    /* per image; 0: as it is */
	int is_measured; /* by running the daemon that way; otherwise from trials */
};

struct explanation {
	struct point point;
	struct measurement measured;
	struct trials trials; /* none sampled: they could not be made, for this reason */
	char trials_error[FEED_ERROR_MAX];
	double resident; /* share of the dataset in the page cache before the measurement */
	/* The rate where the CPUs are the only limit; is_measured says how it is known. */
	double alone_images_per_s;
	int alone_is_measured;
	uint64_t memory_bytes;                          /* available */
	struct change changes[EXPLANATION_CHANGES_MAX]; /* those that gain something */
	unsigned change_count;
	unsigned tried; /* changes that were looked at */
};

/*
 * resident: of the dataset before the measurement. measured: the point's own. 0 or a negative errno
 * with a sentence in error (FEED_ERROR_MAX bytes).
 */
int explanation_make(const struct settings *settings, const struct point *point, double resident,
		     const struct measurement *measured, struct explanation *ret_explanation,
		     char *error);
void explanation_text(const struct explanation *explanation, FILE *out);
json_t *explanation_json(const struct explanation *explanation);
