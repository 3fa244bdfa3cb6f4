/*
 * EXIF orientation: where an upright pixel lies in the stored image, and turning pixels upright.
 * Pure functions.
 */
#pragma once

#include "format/packimg.h"

/* Does the orientation exchange width and height? */
bool orient_swaps(uint8_t orientation);
/* Maps an upright region to the stored image of width x height pixels (stored). */
void orient_region(uint8_t orientation, uint32_t width, uint32_t height,
		   const struct packimg_region *region, struct packimg_region *ret_region);
/*
 * Turns stored RGB pixels upright: target has room for width x height pixels without padding
 * between rows, exchanged where the orientation says so. Fills all of ret_pixels, the place of the
 * region included.
 */
void orient_pixels(uint8_t orientation, const struct packimg_pixels *stored, uint8_t *target,
		   struct packimg_pixels *ret_pixels);
