/*
 * Reasons why a JPEG has no index, as text with remedies, and counts of each reason. Shared by
 * conversions, `packimg index` and their reports. Plain values.
 */
#pragma once

#include "format/packimg.h"

#include <jansson.h>

enum unindexed {
	UNINDEXED_NOT, /* the JPEG has an index */
	UNINDEXED_PROGRESSIVE,
	UNINDEXED_ARITHMETIC,
	UNINDEXED_SCANS,
	UNINDEXED_RESTART,
	UNINDEXED_CMYK,
	UNINDEXED_PRECISION,
	UNINDEXED_OTHER,
	UNINDEXED_DAMAGED,
	UNINDEXED_COUNT,
};

struct unindexed_counts {
	uint64_t counts[UNINDEXED_COUNT];
};

/* Returns the reason that a JPEG's headers show; UNINDEXED_OTHER if they show none. */
enum unindexed unindexed_reason(const struct packimg_jpeg_info *info);
/* Returns true if packimg_transcode_jpeg() makes JPEGs with this reason indexable. */
bool unindexed_can_transcode(enum unindexed reason);
/* Prints "  no index  5 JPEGs" and a line for each reason; nothing if there are none. */
void unindexed_print(const struct unindexed_counts *counts);
/* Returns {"progressive": 5, ...}, with the reasons that occur. */
json_t *unindexed_json(const struct unindexed_counts *counts);
