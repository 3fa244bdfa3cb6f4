/*
 * random_iou_crop: draws the crop of SSD (Liu et al., "SSD: Single Shot MultiBox Detector", ECCV
 * 2016) as torchvision 0.29's RandomIoUCrop.make_params() does, with the same numbers in the same
 * order. Arithmetic is in f32, in its order and without contraction. Pure functions; any thread.
 *
 * torchvision draws options until a window suits one of them, or an option of 1 or more leaves the
 * sample as it is: for ever if neither can be. Here the sample is left as it is after
 * IOU_CROP_ROUNDS_MAX options or IOU_CROP_TESTS_MAX comparisons with a box, and if it has no boxes.
 */
#pragma once

#include "format/augment/grammar/transforms.h"
#include "format/base/random.h"

enum { IOU_CROP_ROUNDS_MAX = 100, IOU_CROP_TESTS_MAX = 1 << 22 };

/* Pixels of the picture. */
struct iou_window {
	uint32_t x, y, width, height;
};

/*
 * Draws a window of a picture of width x height pixels. corners: left, top, right and bottom of
 * each of `count` boxes, in pixels. Returns false if the sample is left as it is.
 */
bool iou_crop_draw(const struct transform *transform, uint32_t width, uint32_t height,
		   const float *corners, size_t count, struct random_stream *random,
		   struct iou_window *ret_window);
/* Returns true if the centre of a box is inside the window. The crop empties other boxes. */
bool iou_window_shows_centre(const struct iou_window *window, const float corners[4]);
