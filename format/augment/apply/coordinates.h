/*
 * Boxes, keypoints and polygons: moves them where the pipeline moves the image to which they
 * belong, step by step as torchvision 0.29 does (transforms.v2.functional: crop_, pad_, resize_,
 * horizontal_flip_, vertical_flip_, affine_ and rotate_ of bounding_boxes and keypoints). Crops,
 * pads and warps clip boxes to the frame; a warped box becomes the smallest box around its corners.
 * random_iou_crop makes boxes whose centre it does not show four zeros, as RandomIoUCrop does.
 *
 * rotated_box.h has what differs for rotated boxes, among it their arithmetic.
 *
 * Arithmetic is in f32, in torchvision's order and without contraction, so every machine and
 * instruction set gives the same bytes. They equal torchvision's except for the last bits of warps,
 * and of xywh and cxcywh, which torchvision flips and shifts without a conversion. Pure functions;
 * rows are changed in place; any thread.
 *
 * Coordinates come from files and may be anything. A box with a coordinate that is not finite, or
 * that overflows, becomes four zeros; one whose right or lower edge comes before the other becomes
 * empty there, and so does a rotated box with a negative side. sanitize_boxes drops both. It is
 * torchvision's sanitize_bounding_boxes(), and clamp_boxes is clamp_bounding_boxes(). frame.h has
 * the type of a value.
 */
#pragma once

#include "format/augment/apply/geometry.h"
#include "format/augment/frame.h"

/*
 * Moves `count` rows of a sample of width x height pixels through its geometry. Keypoints are
 * pixels: the flip of x is width - 1 - x. Boxes and polygons are edges between pixels: it is width
 * - x. Visibility stays. A point with a coordinate that is not finite becomes a pair of quiet NaNs;
 * such rows end polygons, so a vertex that overflows becomes the largest number instead. Points are
 * not clipped.
 * Sets keep[i] to 0 if a step drops box i, else to 1; keep may be NULL.
 */
void coordinates_apply(const struct geometry *geometry, uint32_t width, uint32_t height,
		       const struct coordinates *coordinates, float *rows, size_t count,
		       uint8_t *keep);

/*
 * Moves the left, upper, right and lower side of a box, which is not rotated, to the limits if they
 * are outside of them; a limit may be infinite. The frame has width x height pixels.
 */
void coordinates_limit_box(const struct coordinates *coordinates, float width, float height,
			   const float limits[4], float *row);

/*
 * Moves boxes of a sample of width x height pixels, which are not rotated, through the steps so
 * far, and writes left, top, right and bottom of those that no step drops to boxes->corners.
 * Returns their number.
 */
size_t coordinates_corners(const struct geometry *geometry, uint32_t width, uint32_t height,
			   const struct frame_boxes *boxes);
