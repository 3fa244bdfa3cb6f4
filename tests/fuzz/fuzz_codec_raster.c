/*
 * Arbitrary bytes as a raster. The first two bytes are width - 1 and height - 1; the number of
 * channels is the one in the raster's head. Decoding a region must give the same pixels as decoding
 * the whole.
 */
#include "format/packimg.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY_MAX = 64 << 20 };

static struct packimg_decoder *decoder;

/* Copies the pixels of a raster, row by row. The caller frees them. */
static uint8_t *copy_pixels(const struct packimg_raster *raster)
{
	size_t pixel = packimg_element_size(raster->element) * raster->channels;
	uint8_t *pixels = malloc(raster->width * raster->height * pixel), *at = pixels;

	if (!pixels)
		abort();
	for (uint32_t y = 0; y < raster->height; y++)
		for (uint32_t x = 0; x < raster->width; x++, at += pixel)
			memcpy(at,
			       raster->data + (ptrdiff_t)x * raster->step_x +
				       (ptrdiff_t)y * raster->step_y,
			       pixel);
	return pixels;
}

/* Checks that bands that are kept have the pixels of the whole, NULL if it is damaged. */
static void compare_bands(const struct packimg_sample *sample, const struct packimg_region *region,
			  const uint8_t *pixels)
{
	struct packimg_region all = {0, 0, sample->width, sample->height};
	struct packimg_raster part, whole;

	int first = packimg_decode_raster_bands(decoder, sample, region, true, &part, NULL);
	int r = packimg_decode_raster_bands(decoder, sample, &all, false, &whole, NULL);
	if ((r == 0) != (pixels != NULL) || (pixels && first < 0))
		abort();
	if (!pixels)
		return;
	size_t pixel = packimg_element_size(whole.element) * whole.channels;
	uint8_t *mine = copy_pixels(&whole);

	if (memcmp(mine, pixels, pixel * whole.width * whole.height) != 0)
		abort();
	free(mine);
}

static void compare_region(const struct packimg_sample *sample)
{
	struct packimg_region all = {0, 0, sample->width, sample->height};
	struct packimg_region region = {sample->width / 3, sample->height / 2,
					1 + sample->width / 4, sample->height - sample->height / 2};
	struct packimg_raster whole, part;
	struct packimg_error error;

	int r = packimg_decode_raster(decoder, sample, &all, &whole, &error);
	uint8_t *pixels = r == 0 ? copy_pixels(&whole) : NULL;

	if (packimg_decode_raster(decoder, sample, &region, &part, &error) == 0) {
		size_t pixel = packimg_element_size(part.element) * part.channels;
		size_t stride = part.width * pixel;
		uint8_t *mine = copy_pixels(&part);

		for (uint32_t y = 0; y < part.height && pixels; y++)
			if (memcmp(mine + y * stride,
				   pixels + ((region.y + y) * sample->width + region.x) * pixel,
				   stride) != 0)
				abort();
		free(mine);
	} else if (r == 0) {
		abort();
	}
	compare_bands(sample, &region, pixels);
	free(pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_pixels pixels;

	if (!decoder) {
		if (packimg_decoder_new(&decoder) < 0)
			return 0;
		packimg_decoder_limit(decoder, MEMORY_MAX);
	}
	if (size < 2)
		return 0;
	struct packimg_sample sample = {
		.data = data + 2,
		.data_size = (uint32_t)(size - 2),
		.width = data[0] + 1u,
		.height = data[1] + 1u,
		.codec = PACKIMG_CODEC_RASTER,
		.channels = size > 4 ? data[4] : 1,
		.orientation = 1,
	};
	struct packimg_region region = {0, 0, sample.width, 1};

	compare_region(&sample);
	packimg_decode(decoder, &sample, &region, 0, 0, &pixels, NULL);
	sample.orientation = 6;
	sample.width = data[1] + 1u;
	sample.height = data[0] + 1u;
	compare_region(&sample);
	return 0;
}
