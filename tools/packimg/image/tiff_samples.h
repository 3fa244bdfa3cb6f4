/*
 * The pixels of TIFFs that libtiff's own conversion to RGB leaves out, grey and RGB whose samples
 * have an odd number of bits, or are not bytes where there are several of them; and of those that
 * it converts in another way than Pillow: CIELAB and CMYK.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <tiffio.h>

struct image_info;

/* Are the samples of the file's image read here? They are unsigned integers. */
bool tiff_samples_are_ours(TIFF *file);

/*
 * Fills width x height x 3 bytes. A strip or tile, of all planes, takes at most memory_max bytes.
 * 0, -EBADMSG when the file does not hold all samples (the library has said why, or they are too
 * few), -E2BIG or -ENOMEM.
 */
int tiff_samples_read(TIFF *file, const struct image_info *info, uint64_t memory_max, uint8_t *rgb);
