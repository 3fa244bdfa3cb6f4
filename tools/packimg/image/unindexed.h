/*
 * Why a JPEG has no index, in words, with what can be done about it; and the count of each reason
 * over many. Conversions, `packimg index` and their reports share it. Plain values.
 */
#pragma once

#include "format/packimg.h"

#include <jansson.h>

enum unindexed {
	UNINDEXED_NOT, /* it has one */
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

/* The reason that a JPEG's headers give; UNINDEXED_OTHER when they look like any other's. */
enum unindexed unindexed_reason(const struct packimg_jpeg_info *info);
/* Could packimg_transcode_jpeg() make one of this reason fit for an index? */
bool unindexed_can_transcode(enum unindexed reason);
/* "  no index  5 JPEGs" and a line for each reason; nothing when there are none. */
void unindexed_print(const struct unindexed_counts *counts);
/* {"progressive": 5, ...}: reasons that occur. */
json_t *unindexed_json(const struct unindexed_counts *counts);
