/*
 * draw: renders one image of the shapes set, an RGB picture of a textured figure on a cluttered
 * background.
 *
 * An image depends only on its arguments. The caller owns the pixels. There is no other state, so
 * any number of threads may draw once figure_init() has run.
 */
#pragma once

#include <stdint.h>

#include "tools/shapes/figure.h"

enum {
	DRAW_SIDE_MIN = 16,
	DRAW_SIDE_MAX = 1024,
};

/* Fills pixels[side][side][3] in RGB order. */
void draw_image(uint64_t key, enum figure figure, unsigned side, uint8_t *pixels);
