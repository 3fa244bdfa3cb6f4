/*
 * Rotated boxes (cxcywhr): moves them through one step of the pipeline, as the functions of
 * torchvision 0.29 for BoundingBoxFormat.CXCYWHR do (transforms.v2.functional: crop_, pad_,
 * resize_, horizontal_flip_, vertical_flip_, affine_, rotate_ and clamp_bounding_boxes, the latter
 * in its mode "soft"). format/SPEC.md, "Schema", states the direction of the angle.
 *
 * A resize by different factors and a shear make a parallelogram of a box. torchvision replaces it
 * by a rectangle with the same longer diagonal or one near it, and so does this. Clamping moves the
 * edges that lie outside of the frame as far as an edge of the rectangle meets the frame, at the
 * same angle: corners may still lie outside.
 *
 * Arithmetic is in f64, in torchvision's order and without contraction, with portable sines: every
 * machine gives the same bytes, near torchvision's for boxes in f64. Clamping subtracts intercepts
 * of steep edges, which leaves few digits of f32. Pure functions; any thread. Any finite numbers
 * will do; a result may be infinite or not a number.
 */
#pragma once

#include "format/augment/apply/geometry.h"

#include <stdbool.h>

struct rotated_box {
	double x, y;          /* centre, in pixels */
	double width, height; /* not negative */
	double degrees;
};

/* Clamp steps included; sanitize steps change nothing. */
void rotated_box_step(const struct geometry *geometry, const struct geometry_step *step,
		      struct rotated_box *box);
/*
 * What a sanitize step keeps: sides, area and the corners' places are within its bounds.
 * torchvision 0.29 takes the difference of other coordinates for a side and drops boxes of 90
 * degrees; this does not.
 */
bool rotated_box_is_sane(const struct geometry_step *step, const struct rotated_box *box);
