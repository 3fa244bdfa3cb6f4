/*
 * CIELAB of D50 as 8-bit sRGB. As Little CMS does it, and Pillow through it: colours between those
 * of a grid are interpolated, so that most equal Pillow's and none differs by more than 1. At the
 * borders of sRGB that is not the nearest colour, and white is 254, 255, 254. Constant once it is
 * made.
 */
#pragma once

#include <stdint.h>

enum { CIELAB_GRID = 33 };

struct cielab {
	uint16_t rgb[CIELAB_GRID][CIELAB_GRID][CIELAB_GRID][3]; /* by L*, a*, b* */
};

void cielab_init(struct cielab *cielab);
/* lab: L* from 0 to 255, a* and b* from -128, which is 0, to 127. */
void cielab_rgb(const struct cielab *cielab, const uint8_t lab[3], uint8_t rgb[3]);
