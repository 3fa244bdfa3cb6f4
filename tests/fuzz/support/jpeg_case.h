/*
 * JPEG files for the fuzz targets, made from a few bytes so that nearly all get far into the
 * decoder: the first ones choose size, scale, sampling, restart interval and tables, the rest is
 * the scan, either as bits or as the symbols and values to be coded. At most 64 x 64 pixels. One
 * case is built at a time, in memory of the module's own that ends where the file does, so that the
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
	uint32_t h, v; /* sampling factors of the first component; the others have 1 */
	uint32_t mcus_wide;
	uint32_t restart; /* interval in MCUs */
	bool valid;       /* coded from symbols and not damaged: every decoder must take it */
	bool tame;        /* and no coefficient is larger than photographs have them */
	uint32_t denominator, scaled_width, scaled_height; /* a scale, and the image's size then */
	uint32_t x, y, region_width, region_height;        /* a region inside it, at that scale */
};

/* Every input is a case. Valid until the next call. */
void jpeg_case_build(struct jpeg_case *ret_case, const uint8_t *data, size_t size);

/*
 * An index with entries before the first columns of each row, up to eight, and nothing true in
 * them, for jpeg_baseline_index to take the columns from: files as small as these get none inside
 * rows otherwise. Returns its bytes, at most JPEG_CASE_COLUMNS_MAX; 0: the headers cannot be read,
 * or say another size.
 */
size_t jpeg_case_columns(const struct jpeg_case *this, uint8_t *output);
