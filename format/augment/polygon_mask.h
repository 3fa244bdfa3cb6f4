/*
 * The pixels of polygons. A pixel is that of a polygon if its centre is inside by the even-odd
 * rule; a centre on an edge is inside if the polygon is on its right, or below a level edge.
 * Computed in double, each edge from its upper end, so that every machine gives the same pixels,
 * and polygons that share an edge share none. Coordinates may be any numbers: one that is not
 * finite ends a polygon (format/base/polygons.h). Rows are floats without alignment that nobody
 * changes meanwhile. One thread at a time; memory is the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pixels left <= x < right, top <= y < bottom. */
struct pixel_box {
	uint32_t left, top, right, bottom;
};

struct polygon_mask {
	uint32_t width, height;  /* of the picture */
	double scale_x, scale_y; /* pixels of a unit of coordinates */
	uint8_t *inside; /* [height][width], 0 or 1: zeros before and after polygon_mask_clear() */
	uint8_t *starts; /* [height][width + 1], zeros between calls */
	/*
	 * Steps that are left: crossings of an edge and a row of pixels, and pixels of the boxes
	 * round polygons and round objects. 0 once they did not suffice: nothing is drawn then.
	 */
	uint64_t steps;
};

/* Returns the bytes of `inside` and `starts` together, in this order. */
size_t polygon_mask_size(uint32_t width, uint32_t height);
/*
 * Adds the pixels of the polygons of one object, `count` rows, to mask->inside, and sets *ret_box
 * to a box round them, which may be empty. Returns false if mask->steps do not suffice: some of the
 * pixels are then set, within the box.
 */
bool polygon_mask_add(struct polygon_mask *mask, const float *rows, size_t count,
		      struct pixel_box *ret_box);
/* Makes the pixels of a box zeros. */
void polygon_mask_clear(struct polygon_mask *mask, const struct pixel_box *box);
