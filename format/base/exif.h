/*
 * Reads the orientation of an image from EXIF data (an embedded TIFF file, EXIF 2.32, 4.5.2) or
 * from XMP, which counts only if EXIF has no such tag. Interprets both like Pillow. Pure functions;
 * the bytes may change during the call.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Returns 1 .. 8 (1 is upright), or 0 if there is no orientation tag. Data may begin with
 * "Exif\0\0". Accepts a number of any type; text, bytes and invalid numbers mean upright. The last
 * of several tags counts, and the first of several values.
 */
uint8_t exif_orientation(const uint8_t *data, size_t size);
/*
 * Same for an XMP packet: uses the first digit of tiff:Orientation, as an attribute or an element.
 */
uint8_t xmp_orientation(const uint8_t *text, size_t size);
/* Combines both: the EXIF orientation if not 0, else the XMP orientation, else 1. */
uint8_t orientation_of(uint8_t exif, uint8_t xmp);
