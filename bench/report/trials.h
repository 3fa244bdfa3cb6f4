/*
 * trials: other ways to store a dataset, and the pipeline without one of its steps, tried on a
 * sample of the images as trial.h does it: in memory and in this process, so that the daemon that
 * is measured beside it keeps its counters.
 *
 * Results are plain values. One thread; the dataset is opened and closed within the call.
 */
#pragma once

#include <stdint.h>

#include "loaderd/augment/claim.h"

enum config {
	CONFIG_STORED, /* as the dataset holds it */
	CONFIG_INDEX,  /* with an index beside each JPEG that can have one */
	/* JPEGs that can have none turned into baseline ones without loss, all with an index */
	CONFIG_RECODE,
	CONFIG_QUALITY, /* JPEGs encoded again at the same size, with an index */
	CONFIG_SMALLER, /* likewise, with a shorter side */
	CONFIG_RAW,     /* the same as pixels */
	CONFIG_COUNT
};

enum {
	TRIAL_IMAGES = 200, /* in the sample */
	TRIAL_STEPS_MAX = 12,
	TRIAL_STEP_TEXT = 48,
	TRIAL_JPEG_QUALITY = 90,
};

struct trial {
	/* images of the sample that it stores otherwise than the dataset; 0: not measured */
	unsigned changed;
	double image_us; /* CPU time per image */
	double bytes;    /* per image, index included */
};

/* The pipeline with something left out that the size of its output does not depend on. */
struct trial_step {
	char text[TRIAL_STEP_TEXT]; /* what is left out, cut */
	double image_us;
};

struct trials {
	uint64_t images, bytes; /* of the dataset, all files */
	unsigned sampled;
	/*
	 * Of the sampled: JPEGs, those without an index, and of these the ones that can have none.
	 */
	unsigned jpegs, unindexed, unindexable;
	double side;         /* mean of the shorter sides, pixels */
	unsigned short_side; /* of CONFIG_SMALLER and CONFIG_RAW */
	struct trial configs[CONFIG_COUNT];
	struct trial_step steps[TRIAL_STEPS_MAX];
	unsigned step_count;
};

/* Share of a dataset's bytes that are in the page cache; 0 when it cannot be opened. */
double trials_resident(const char *dataset);
/*
 * terms: of the daemon whose costs are asked for. 0 or a negative errno with a sentence in error
 * (FEED_ERROR_MAX bytes).
 */
int trials_measure(const char *dataset, const char *pipeline, const struct claim_terms *terms,
		   struct trials *ret_trials, char *error);
