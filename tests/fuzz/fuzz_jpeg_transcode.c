/*
 * Arbitrary bytes as a JPEG to transcode. If the file decodes, the result must decode to the same
 * pixels, and must be baseline.
 */
#include "format/packimg.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/support/jpeg_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS_MAX = 1 << 18 };

static struct packimg_transcoder *transcoder;
static struct packimg_decoder *decoders[2];

static void die(const char *what)
{
	fprintf(stderr, "transcoded JPEG: %s\n", what);
	abort();
}

static int decode(struct packimg_decoder *decoder, const uint8_t *data, size_t size,
		  const struct packimg_jpeg_info *info, struct packimg_pixels *ret_pixels)
{
	struct packimg_sample sample = {
		.data = data,
		.data_size = (uint32_t)size,
		.width = info->width,
		.height = info->height,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = info->components,
		.orientation = 1,
	};
	struct packimg_region region = {.width = info->width, .height = info->height};

	return packimg_decode(decoder, &sample, &region, 0, 0, ret_pixels, NULL);
}

static int setup(void)
{
	return packimg_transcoder_new(&transcoder) ?: packimg_decoder_new(&decoders[0]) ?:
						      packimg_decoder_new(&decoders[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_jpeg_info info, made_info;
	struct packimg_pixels before, after;
	const uint8_t *made;
	size_t made_size;

	if (!transcoder && setup() < 0)
		return 0;
	if (packimg_jpeg_probe(data, size, &info, NULL) < 0 ||
	    (uint64_t)info.width * info.height > PIXELS_MAX)
		return 0;
	if (packimg_transcode_jpeg(transcoder, data, size, &made, &made_size, NULL) < 0)
		return 0;
	if (packimg_jpeg_probe(made, made_size, &made_info, NULL) < 0)
		die("has no headers");
	if (made_info.progressive || made_info.arithmetic || made_info.several_scans ||
	    made_info.restart_interval || made_info.width != info.width ||
	    made_info.height != info.height || made_info.components != info.components)
		die("is of another kind or size");
	/* coefficients out of range overflow differently in the two decoders */
	if (!jpeg_reference_in_range(made, made_size))
		return 0;
	/* transcoding drops an Adobe marker after the first scan, which affects decoding of CMYK */
	if (info.components == 4 || decode(decoders[0], data, size, &info, &before) < 0)
		return 0;
	if (decode(decoders[1], made, made_size, &made_info, &after) < 0)
		die("does not decode");
	for (uint32_t y = 0; y < info.height; y++)
		if (memcmp(before.data + y * before.stride, after.data + y * after.stride,
			   (size_t)info.width * 3) != 0)
			die("has other pixels");
	return 0;
}
