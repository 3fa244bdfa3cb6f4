/*
 * draw: one image of the shapes set, an RGB picture of a textured figure on a cluttered background.
 *
 * Everything about an image follows from its key; equal keys give equal pixels. The caller owns the
 * pixels; there is no other state, so images may be drawn on any number of threads once
 * figure_init() has run.
 */
#pragma once

#include <stdint.h>

#include "tools/shapes/figure.h"

enum {
	DRAW_SIDE_MIN = 16,
	DRAW_SIDE_MAX = 1024,
};

/* Fills pixels[side][side][3], R G B. */
void draw_image(uint64_t key, enum figure figure, unsigned side, uint8_t *pixels);
