/* Any bytes as a JPEG sample: probed, then decoded whole, in part and scaled, in all orientations. */
#include "fuzz.h"
#include "packimg.h"

#include <string.h>

enum { PIXELS_MAX = 1 << 20 };

static struct packimg_decoder *decoder;
static volatile uint8_t sink;

/* Reads every returned pixel, for the sanitizer to see. */
static void use_pixels(const struct packimg_pixels *pixels)
{
	uint8_t sum = 0;

	for (uint32_t y = 0; y < pixels->height; y++)
		for (size_t x = 0; x < (size_t)pixels->width * 3; x++)
			sum = (uint8_t)(sum + pixels->data[y * pixels->stride + x]);
	sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_jpeg_info info = {.width = 8, .height = 8, .components = 3};
	struct packimg_error error;
	struct packimg_pixels pixels;
	uint32_t draw = (uint32_t)size * 2654435761u;

	if (!decoder && packimg_decoder_new(&decoder) < 0)
		return 0;
	packimg_jpeg_probe(data, size, &info, &error);
	if (size == 0 || (uint64_t)info.width * info.height > PIXELS_MAX)
		return 0;
	for (int i = 0; i < 4; i++, draw = draw * 1664525 + 1013904223) {
		uint8_t orientation = i == 0 ? 1 : (uint8_t)(1 + (draw >> 8) % 8);
		struct packimg_sample sample = {
			.data = data,
			.data_size = (uint32_t)size,
			.width = orientation < 5 ? info.width : info.height,
			.height = orientation < 5 ? info.height : info.width,
			.codec = PACKIMG_CODEC_JPEG,
			.channels = info.components,
			.orientation = orientation,
		};
		struct packimg_region region = {0, 0, sample.width, sample.height};
		if (i > 1) {
			region.x = (draw >> 4) % sample.width;
			region.y = (draw >> 12) % sample.height;
			region.width = 1 + (draw >> 20) % (sample.width - region.x);
			region.height = 1 + (draw >> 16) % (sample.height - region.y);
		}
		uint32_t hint = i % 2 ? 1 + (draw >> 24) % 32 : 0;
		if (packimg_decode(decoder, &sample, &region, hint, hint, &pixels, &error) == 0)
			use_pixels(&pixels);
	}
	return 0;
}
