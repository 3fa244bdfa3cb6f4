/*
 * How a picture was held, as its file says: in EXIF data (a TIFF file of its own,
 * EXIF 2.32, 4.5.2), or in XMP, which counts where EXIF has no such tag. Readings are Pillow's.
 * Pure functions; the bytes may be changing while they are read.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * 1 .. 8 (1: upright); 0: there is no such tag. Data may begin with "Exif\0\0". A number of any
 * type counts; text and bytes, and numbers that are no orientation, mean upright. Of several tags
 * the last counts, of several values the first.
 */
uint8_t exif_orientation(const uint8_t *data, size_t size);
/* The same of an XMP packet: the first digit in tiff:Orientation, as an attribute or an element. */
uint8_t xmp_orientation(const uint8_t *text, size_t size);
/* The one that counts: EXIF's, else XMP's, else 1. */
uint8_t orientation_of(uint8_t exif, uint8_t xmp);
