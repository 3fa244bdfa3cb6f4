/*
 * Fixture for tests of our baseline JPEG decoder: a generated JPEG, its pixels as decoded by
 * libjpeg-turbo, and optionally the index that our decoder makes for it. picture_drop() frees it.
 */
#pragma once

#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/packimg.h"
#include "tests/unit/format/images.h"

struct picture {
	uint8_t *jpeg;
	size_t jpeg_size;
	uint8_t *pixels; /* whole image decoded by libjpeg-turbo: RGB, at 1/denominator */
	uint32_t width, height, components; /* size of the JPEG file */
	uint32_t denominator, scaled_width, scaled_height;
	uint8_t *index; /* NULL if there is no index */
	size_t index_size;
};

struct picture picture_make(uint32_t width, uint32_t height, const struct jpeg_kind *kind,
			    uint64_t seed);
void picture_drop(struct picture *picture);
/* Decodes the reference again at another scale, which picture_decode() then uses too. */
void picture_scale(struct picture *picture, uint32_t denominator);
/* Makes the index and stores it in the picture. */
int picture_index(struct jpeg_baseline *decoder, struct picture *picture);
int picture_decode(struct jpeg_baseline *decoder, const struct picture *picture, bool indexed,
		   uint32_t x, uint32_t y, uint32_t width, uint32_t height,
		   const uint8_t **ret_pixels);

/*
 * Returns region n for comparisons, at the picture's scale: 0 is the whole image, followed by a
 * row, a column and a corner; larger n give random regions.
 */
struct packimg_region picture_region(const struct picture *picture, unsigned n, uint64_t *state);
/*
 * Fails the test unless our decoder's pixels equal the reference: without an index, with other
 * regions decoded ahead, and with the index if there is one.
 */
void picture_check_own(struct jpeg_baseline *own, const char *what, const struct picture *picture,
		       const struct packimg_region *region);
/*
 * Compares packimg_decode(), whichever decoder it uses, with the reference, at full scale and
 * without an index.
 */
void picture_check(struct packimg_decoder *decoder, const char *what, const struct picture *picture,
		   const struct packimg_region *region);
