/*
 * A generated JPEG with its pixels as libjpeg-turbo decodes it and the index that ours makes of it:
 * what the tests of our own decoder compare. The caller drops what it made.
 */
#pragma once

#include "format/codec/jpeg/jpeg_baseline.h"
#include "format/packimg.h"
#include "tests/unit/format/images.h"

struct picture {
	uint8_t *jpeg;
	size_t jpeg_size;
	uint8_t *pixels; /* libjpeg-turbo's: RGB, whole image, at the denominator asked for */
	uint32_t width, height, components; /* of the file */
	uint32_t denominator, scaled_width, scaled_height;
	uint8_t *index; /* NULL: none */
	size_t index_size;
};

struct picture picture_make(uint32_t width, uint32_t height, const struct jpeg_kind *kind,
			    uint64_t seed);
void picture_drop(struct picture *picture);
/* Decodes it anew at another scale, which picture_decode then works at, too. */
void picture_scale(struct picture *picture, uint32_t denominator);
/* Makes the index and keeps it in the picture. */
int picture_index(struct jpeg_baseline *decoder, struct picture *picture);
int picture_decode(struct jpeg_baseline *decoder, const struct picture *picture, bool indexed,
		   uint32_t x, uint32_t y, uint32_t width, uint32_t height,
		   const uint8_t **ret_pixels);

/*
 * A region to compare, at the picture's scale: of n = 0 the whole image; then a row, a column, a
 * corner, and anything else.
 */
struct packimg_region picture_region(const struct picture *picture, unsigned n, uint64_t *state);
/*
 * Fails the test where our own decoder's pixels are others, with an index and without, also among
 * others that are decoded ahead.
 */
void picture_check_own(struct jpeg_baseline *own, const char *what, const struct picture *picture,
		       const struct packimg_region *region);
/* The same at full scale, as an application calls it, without an index, whoever decodes then. */
void picture_check(struct packimg_decoder *decoder, const char *what, const struct picture *picture,
		   const struct packimg_region *region);
