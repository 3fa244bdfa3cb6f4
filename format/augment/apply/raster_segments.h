/*
 * The steps of a geometry as segments, for masks and rasters: consecutive steps that only move
 * columns and rows, described by one table for each axis, and the step that needs a picture: a warp
 * or a computed resize. A segment has only the pixels that the next ones show. Memory of one
 * thread.
 */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/augment/kernels/block.h"
#include "format/augment/resize/resize_float.h"

/* Table entry for a pixel outside the source. */
enum { RASTER_OUTSIDE = -1 };

struct raster_segment {
	/* The part that is in memory of the picture before the segment. */
	struct packimg_region source;
	/* The part that the tables show of the picture after the moves. */
	struct packimg_region moved;
	int32_t *columns, *rows; /* pixels of `source`, or RASTER_OUTSIDE: [width], [height] */
	bool inside;             /* no column is RASTER_OUTSIDE */
	/* The step that ends it; NULL of the last segment. A resize has axes, from `moved`. */
	const struct geometry_step *stop;
	struct float_axis x, y;
};

struct raster_segments {
	struct raster_segment *segments;
	unsigned count;
	struct block memory;
};

void raster_segments_deinit(struct raster_segments *segments);
/*
 * Makes the segments of an upright raster of width x height pixels. The source of the first is
 * empty, of width 0, if the steps show none of it; then only what the first segment makes of that
 * counts, and earlier steps are left out. Returns 0, -ENOMEM, or -E2BIG if a computed resize has to
 * make more than pixels_max pixels, or a side above RESIZE_SIDE_MAX. The geometry has to outlive
 * them.
 */
int raster_segments_make(struct raster_segments *segments, const struct geometry *geometry,
			 uint32_t width, uint32_t height, enum pipeline_filter filter,
			 size_t pixels_max);
