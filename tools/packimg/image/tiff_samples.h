/*
 * Reads TIFF pixels that libtiff's own conversion to RGB does not support: grey and RGB with bit
 * depths other than 8 and 16 (except 1, 2 and 4-bit grey with one sample per pixel). Also reads
 * those that libtiff converts differently from Pillow: CIELAB and CMYK.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <tiffio.h>

struct image_info;

/* Returns true if the image needs this reader. Its samples are unsigned integers. */
bool tiff_samples_are_ours(TIFF *file);

/*
 * Fills width x height x 3 bytes. A strip or tile, with all of its planes, takes at most memory_max
 * bytes. Returns 0, -EBADMSG if the file lacks samples (for a reason given by libtiff, or because
 * there are too few), -E2BIG or -ENOMEM.
 */
int tiff_samples_read(TIFF *file, const struct image_info *info, uint64_t memory_max, uint8_t *rgb);
