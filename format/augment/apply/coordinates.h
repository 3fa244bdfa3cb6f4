/*
 * Boxes, keypoints and polygons: moves them where the pipeline moves the image to which they
 * belong, step by step as torchvision 0.29 does (transforms.v2.functional: crop_, pad_, resize_,
 * horizontal_flip_, vertical_flip_, affine_ and rotate_ of bounding_boxes and keypoints). Crops,
 * pads and warps clip boxes to the frame; a warped box becomes the smallest box around its corners.
 *
 * Arithmetic is in f32, in torchvision's order and without contraction, so every machine and
 * instruction set gives the same bytes. They equal torchvision's but for the last bits of xywh and
 * cxcywh, which torchvision flips and shifts without a conversion, and of warps. Pure functions;
 * rows are changed in place; any thread.
 *
 * Coordinates come from files and may be anything. A box with a coordinate that is not finite, or
 * that overflows, becomes four zeros; one whose right or lower edge comes before the other becomes
 * empty there. boxes_sanitize() drops both.
 */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/base/schema.h"

/* What the coordinates of a value mean. */
struct coordinates {
	enum schema_role role;     /* SCHEMA_BOXES, SCHEMA_KEYPOINTS or SCHEMA_POLYGONS */
	enum schema_format format; /* SCHEMA_XYXY, XYWH or CXCYWH; SCHEMA_XY or XYV */
	bool normalized;           /* fractions of the frame's width and height */
};

/* Returns the floats of a row; 0 if the functions below cannot move such a value. */
size_t coordinates_row(const struct coordinates *coordinates);
/*
 * Moves `count` rows of a sample of width x height pixels through its geometry. Keypoints are
 * pixels: the flip of x is width - 1 - x. Boxes and polygons are edges between pixels: it is width
 * - x. Visibility stays. A point with a coordinate that is not finite becomes a pair of quiet NaNs.
 */
void coordinates_apply(const struct geometry *geometry, uint32_t width, uint32_t height,
		       const struct coordinates *coordinates, float *rows, size_t count);

/* Clips boxes to a frame of width x height pixels: torchvision's clamp_bounding_boxes(). */
void boxes_clamp(const struct coordinates *coordinates, uint32_t width, uint32_t height,
		 float *boxes, size_t count);
/*
 * Sets keep[i] to 1 if box i stays, else 0: torchvision's sanitize_bounding_boxes(). Sides and
 * area, in pixels, must be at least min_size and min_area, which are not negative, and the box must
 * lie in the frame of width x height pixels. Returns the number of boxes that stay.
 */
size_t boxes_sanitize(const struct coordinates *coordinates, uint32_t width, uint32_t height,
		      float min_size, float min_area, const float *boxes, size_t count,
		      uint8_t *keep);
/*
 * Drops the rows of `row_size` bytes whose keep[i] is 0, and keeps the order of the others: for the
 * boxes and each value of which rows belong to them. Returns the number of rows that stay.
 */
size_t rows_keep(void *rows, size_t row_size, const uint8_t *keep, size_t count);
