/*
 * Arbitrary bytes as raw and raw+zstd samples of a few sizes. The first two bytes are width and
 * height.
 */
#include "format/packimg.h"
#include "tests/fuzz/fuzz.h"

static struct packimg_decoder *decoder;
static volatile uint8_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_error error;
	struct packimg_pixels pixels;

	if (!decoder && packimg_decoder_new(&decoder) < 0)
		return 0;
	if (size < 3)
		return 0;
	for (uint8_t i = 0; i < 8; i++) {
		struct packimg_sample sample = {
			.data = data + 2,
			.data_size = (uint32_t)(size - 2),
			.width = data[0] + 1u,
			.height = data[1] + 1u,
			.codec = i % 4 == 3 ? PACKIMG_CODEC_RAW : PACKIMG_CODEC_RAW_ZSTD,
			.channels = i % 2 ? 3 : 1,
			.orientation = (uint8_t)(1 + i),
		};
		if (sample.orientation >= 5) {
			sample.width = data[1] + 1u;
			sample.height = data[0] + 1u;
		}
		struct packimg_region region = {sample.width / 3, sample.height / 2,
						1 + sample.width / 4,
						sample.height - sample.height / 2};
		if (packimg_decode(decoder, &sample, &region, 0, 0, &pixels, &error) < 0)
			continue;
		for (uint32_t y = 0; y < pixels.height; y++)
			for (size_t x = 0; x < (size_t)pixels.width * 3; x++)
				sink = pixels.data[y * pixels.stride + x];
	}
	return 0;
}
