/*
 * Arbitrary bytes as a JPEG sample: probes it, then decodes the whole image, a region, and at
 * smaller scales, in every orientation, with its index (if it can have one) and with a damaged
 * index. Decoding by rows must give the same pixels.
 */
#include "format/packimg.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/jpeg_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum { PIXELS_MAX = 1 << 20 };

static struct packimg_decoder *decoder, *rows_decoder;
static volatile uint8_t sink;

/* Reads every returned pixel, so that a sanitizer checks it. */
static void use_pixels(const struct packimg_pixels *pixels)
{
	uint8_t sum = 0;

	for (uint32_t y = 0; y < pixels->height; y++)
		for (size_t x = 0; x < (size_t)pixels->width * 3; x++)
			sum = (uint8_t)(sum + pixels->data[y * pixels->stride + x]);
	sink = sum;
}

/*
 * Decodes again, `step` rows at a time, and compares with the result of packimg_decode(). An error
 * after wrong rows is allowed only if an index is wrong. The scales may differ only if
 * libjpeg-turbo decoded, because packimg_decode() may choose another one. Pixels may differ only if
 * coefficients are out of range and libjpeg-turbo took over.
 */
static void compare_rows(const struct packimg_sample *sample, const struct packimg_region *region,
			 uint32_t hint, const struct packimg_pixels *whole, uint32_t step)
{
	struct packimg_pixels rows;
	struct packimg_error error;
	uint32_t ready = 0;
	int r = packimg_decode_begin(rows_decoder, sample, region, hint, hint, &rows, &error);

	bool same = r == 0 && !sample->side && rows.width == whole->width &&
		    rows.height == whole->height && rows.x == whole->x && rows.y == whole->y;
	if (r == 0 && !same && hint == 0 && !sample->side)
		abort();
	for (uint32_t y = 0; r == 0 && y < rows.height; y++) {
		if (y >= ready) {
			uint32_t end = y + step < rows.height ? y + step : rows.height;

			r = packimg_decode_rows(rows_decoder, end, &ready, &error);
			if (r == 0 && ready < end)
				abort();
		}
		if (r == 0 && same &&
		    memcmp(rows.data + (rows.ring ? y % rows.ring : y) * rows.stride,
			   whole->data + y * whole->stride, 3 * (size_t)rows.width) != 0 &&
		    jpeg_reference_in_range(sample->data, sample->data_size))
			abort();
	}
	if (r < 0 && !sample->side) {
		fprintf(stderr, "by rows: %s\n", error.text);
		abort();
	}
}

enum { SIDE_MAX = 1 << 16 };

/*
 * Makes an index for the file, valid or with a few changed bytes. Returns its size; 0 if the file
 * cannot have one.
 */
static uint32_t make_side(const uint8_t *data, size_t size, const struct packimg_jpeg_info *info,
			  uint32_t draw, uint8_t side[SIDE_MAX])
{
	const uint8_t *index;
	size_t index_size;

	if (packimg_index_jpeg(decoder, data, size, info, &index, &index_size) < 0 ||
	    index_size > SIDE_MAX)
		return 0;
	memcpy(side, index, index_size);
	for (uint32_t i = 0; i < draw % 4; i++, draw = draw * 1664525 + 1013904223)
		side[8 + (draw >> 8) % (index_size - 8)] ^= (uint8_t)(1 << (draw >> 5) % 8);
	return (uint32_t)index_size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_jpeg_info info = {.width = 8, .height = 8, .components = 3};
	static uint8_t side[SIDE_MAX];
	struct packimg_error error;
	struct packimg_pixels pixels;
	uint32_t draw = (uint32_t)size * 2654435761u;

	if (!decoder &&
	    (packimg_decoder_new(&decoder) < 0 || packimg_decoder_new(&rows_decoder) < 0))
		return 0;
	packimg_jpeg_probe(data, size, &info, &error);
	if (size == 0 || (uint64_t)info.width * info.height > PIXELS_MAX)
		return 0;
	for (int i = 0; i < 6; i++, draw = draw * 1664525 + 1013904223) {
		uint8_t orientation = i == 0 ? 1 : (uint8_t)(1 + (draw >> 8) % 8);
		uint32_t side_size = i < 3 ? 0 : make_side(data, size, &info, draw >> 6, side);
		struct packimg_sample sample = {
			.data = data,
			.data_size = (uint32_t)size,
			.side = side_size ? side : NULL,
			.side_size = side_size,
			.side_xxh3 = XXH3_64bits(side, side_size),
			.width = orientation < 5 ? info.width : info.height,
			.height = orientation < 5 ? info.height : info.width,
			.codec = PACKIMG_CODEC_JPEG,
			.channels = info.components,
			.orientation = orientation,
		};
		struct packimg_region region = {0, 0, sample.width, sample.height};
		if (i % 3 != 0) {
			region.x = (draw >> 4) % sample.width;
			region.y = (draw >> 12) % sample.height;
			region.width = 1 + (draw >> 20) % (sample.width - region.x);
			region.height = 1 + (draw >> 16) % (sample.height - region.y);
		}
		uint32_t hint = i % 2 ? 1 + (draw >> 24) % 32 : 0;
		if (packimg_decode(decoder, &sample, &region, hint, hint, &pixels, &error) == 0) {
			use_pixels(&pixels);
			compare_rows(&sample, &region, hint, &pixels, 1 + (draw >> 8) % 7);
		}
	}
	return 0;
}
