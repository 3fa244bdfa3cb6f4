/*
 * JPEG files for the fuzz targets, built from a few bytes so that nearly all of them get far into
 * the decoder. The first bytes of the input select size, scale, sampling, restart interval and
 * tables. The rest is the scan, either as raw bits or as symbols and values to encode. Images have
 * at most 64 x 64 pixels. Only one case exists at a time, in static memory. The file ends where
 * that memory ends, so that the sanitizer detects overreads.
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
	uint32_t h, v; /* sampling factors of the first component; all other factors are 1 */
	uint32_t mcus_wide;
	uint32_t restart; /* in MCUs, 0 if none */
	bool valid;   /* coded from symbols and undamaged, so that every decoder must accept it */
	bool typical; /* valid, and no coefficient is larger than in photographs */
	uint32_t denominator, scaled_width,
		scaled_height;                      /* scale, and the image size at that scale */
	uint32_t x, y, region_width, region_height; /* region to decode, at that scale */
};

/* Builds a case from any input. Valid until the next call. */
void jpeg_case_build(struct jpeg_case *ret_case, const uint8_t *data, size_t size);

/*
 * Makes an index for jpeg_baseline_index() with up to eight entries of arbitrary contents before
 * the first columns of each row. Without it, files this small get no entries within rows. Returns
 * the size in bytes, at most JPEG_CASE_COLUMNS_MAX, or 0 if the headers cannot be read or give
 * another size.
 */
size_t jpeg_case_columns(const struct jpeg_case *this, uint8_t *output);
