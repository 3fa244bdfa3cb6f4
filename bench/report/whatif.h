/*
 * Estimates the cost of other ways to store a dataset, and of the pipeline without one of its
 * transforms, on a sample of the images as encoding_bench.h does: in memory and in this process, so
 * that the counters of the daemon under test stay unaffected.
 *
 * Results are plain values. Single-threaded; the dataset is opened and closed within the call.
 */
#pragma once

#include <stdint.h>

#include "format/augment/claim.h"
#include "tools/packimg/estimate/encoding_bench.h"

enum config {
	CONFIG_STORED, /* as stored in the dataset */
	CONFIG_INDEX,  /* with an index for each JPEG that supports one */
	/* JPEGs that cannot be indexed are losslessly transcoded to baseline; all have an index */
	CONFIG_RECODE,
	CONFIG_QUALITY, /* JPEGs re-encoded at the same size, with an index */
	CONFIG_SMALLER, /* JPEGs re-encoded with a reduced shorter side, with an index */
	CONFIG_RAW,     /* raw pixels, with a reduced shorter side */
	CONFIG_COUNT
};

enum {
	WHATIF_IMAGES = 200, /* size of the sample */
	WHATIF_TRANSFORMS_MAX = 12,
	WHATIF_TRANSFORM_TEXT = 48,
	WHATIF_JPEG_QUALITY = 90,
};

struct whatif_config {
	/* images of the sample that are stored differently from the dataset; 0 if not measured */
	unsigned changed;
	double image_us; /* CPU time per image */
	double bytes;    /* per image, index included */
};

/* The pipeline without one transform that does not affect the output size. */
struct whatif_transform {
	char text[WHATIF_TRANSFORM_TEXT]; /* the omitted transform, truncated */
	double image_us;
};

struct whatif {
	uint64_t images, bytes; /* sums over the dataset's files */
	unsigned sampled;
	/* Within the sample: JPEGs; JPEGs without an index; JPEGs that cannot be indexed. */
	unsigned jpegs, unindexed, unindexable;
	double side;         /* mean of the shorter sides in pixels */
	unsigned short_side; /* shorter side for CONFIG_SMALLER and CONFIG_RAW */
	struct whatif_config configs[CONFIG_COUNT];
	struct whatif_transform transforms[WHATIF_TRANSFORMS_MAX];
	unsigned transform_count;
};

/* Returns the encoding of a config, without samples: it has the name and the options of packimg. */
struct encoding_variant whatif_variant(const struct whatif *whatif, enum config config);
/* Fraction of a dataset's bytes in the page cache; 0 if it cannot be opened. */
double whatif_resident(const char *dataset);
/*
 * claim: how the threads of the daemon under test claim samples. Returns 0, or a negative errno
 * with a message in error (FEED_ERROR_MAX bytes).
 */
int whatif_measure(const char *dataset, const char *pipeline, const struct claim_options *claim,
		   struct whatif *ret_whatif, char *error);
