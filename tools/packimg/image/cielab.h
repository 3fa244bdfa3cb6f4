/*
 * Converts CIELAB (D50) to 8-bit sRGB like Little CMS, and therefore like Pillow, by interpolating
 * between grid points. Most colours equal Pillow's, and none differs by more than 1. At the borders
 * of sRGB the result is not the nearest colour, and white becomes 254, 255, 254. Read-only after
 * init.
 */
#pragma once

#include <stdint.h>

enum { CIELAB_GRID = 33 };

struct cielab {
	uint16_t rgb[CIELAB_GRID][CIELAB_GRID][CIELAB_GRID][3]; /* indexed by L*, a*, b* */
};

void cielab_init(struct cielab *cielab);
/* lab: L* as 0 .. 255; a* and b* with an offset, so that byte 0 is -128. */
void cielab_rgb(const struct cielab *cielab, const uint8_t lab[3], uint8_t rgb[3]);
