/*
 * Reads the orientation of an image from EXIF data (an embedded TIFF file, EXIF 2.32, 4.5.2), or
 * from XMP if EXIF has no orientation tag. Interprets both like Pillow. Pure functions; the bytes
 * may change during the call.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Returns 1 .. 8 (1 is upright), or 0 if there is no orientation tag. Data may begin with
 * "Exif\0\0". Accepts a number of any type; a tag with text, bytes or an invalid number means
 * upright. The last of several tags counts, and the first of several values.
 */
uint8_t exif_orientation(const uint8_t *data, size_t size);
/*
 * Like exif_orientation(), for an XMP packet. Uses the first digit of the attribute or element
 * tiff:Orientation.
 */
uint8_t xmp_orientation(const uint8_t *text, size_t size);
/* Returns the EXIF orientation if not 0, else the XMP orientation if not 0, else 1. */
uint8_t orientation_of(uint8_t exif, uint8_t xmp);
