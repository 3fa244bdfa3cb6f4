/*
 * Reads TIFF pixels that libtiff's own conversion to RGB does not support: grey and RGB with an
 * unusual number of bits per sample, or several samples that are not bytes; and those that it
 * converts differently from Pillow: CIELAB and CMYK.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <tiffio.h>

struct image_info;

/* True if the image needs this reader. Its samples are unsigned integers. */
bool tiff_samples_are_ours(TIFF *file);

/*
 * Fills width x height x 3 bytes. A strip or tile, over all planes, takes at most memory_max bytes.
 * Returns 0, -EBADMSG if the file does not hold all samples (the library gave the reason, or they
 * are too few), -E2BIG or -ENOMEM.
 */
int tiff_samples_read(TIFF *file, const struct image_info *info, uint64_t memory_max, uint8_t *rgb);
