/*
 * JPEG files for the fuzz targets, built from a few bytes so that nearly all of them get far into
 * the decoder. The first bytes select size, scale, sampling, restart interval and tables; the rest
 * is the scan, either as raw bits or as symbols and values to encode. At most 64 x 64 pixels. One
 * case exists at a time, in static memory placed so that its end is the end of the file and the
 * sanitizer sees reads beyond it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JPEG_CASE_SIDE_MAX = 64, JPEG_CASE_COLUMNS_MAX = 256 };

struct jpeg_case {
	uint8_t *file;
	size_t size;
	uint32_t width, height, components;
	uint32_t h, v; /* sampling factors of the first component, the others have 1 */
	uint32_t mcus_wide;
	uint32_t restart; /* in MCUs, 0 if none */
	bool valid;       /* coded from symbols and undamaged: every decoder must accept it */
	bool tame;        /* valid, and no coefficient is larger than in photographs */
	uint32_t denominator, scaled_width, scaled_height; /* scale, and image size at it */
	uint32_t x, y, region_width, region_height;        /* region of the image, at that scale */
};

/* Builds a case; every input gives one. Valid until the next call. */
void jpeg_case_build(struct jpeg_case *ret_case, const uint8_t *data, size_t size);

/*
 * Makes an index for jpeg_baseline_index() that contains entries before the first columns of each
 * row, up to eight, with arbitrary contents. Files this small otherwise get no entries within rows.
 * Returns its size in bytes, at most JPEG_CASE_COLUMNS_MAX, or 0 if the headers cannot be read or
 * give another size.
 */
size_t jpeg_case_columns(const struct jpeg_case *this, uint8_t *output);
