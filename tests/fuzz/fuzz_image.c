/*
 * Arbitrary bytes as a source image: reads the headers, then the pixels, for every format that
 * packimg reads. An accepted image must yield all of its pixels, and the same ones when it is read
 * again. The seeds are files of tests/integration/image_corpus (image_corpus.py --keep).
 */
#include "tests/fuzz/fuzz.h"
#include "tools/packimg/image/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum { PIXELS_MAX = 1 << 16 };

static struct image_reader reader;
static bool ready;

static void die(const char *what)
{
	fprintf(stderr, "fuzz_image: %s\n", what);
	abort();
}

/*
 * Returns a checksum of all pixels, so that a sanitizer sees each of them read; 0 if decoding
 * failed.
 */
static uint64_t read_pixels(const uint8_t *data, size_t size, const struct image_info *info)
{
	struct packimg_error error;
	struct resize_picture pixels;
	uint64_t sum = 1;

	if (image_read(&reader, data, size, info, NULL, 0, 0, &pixels, &error))
		return 0;
	bool sideways = info->orientation >= 5;
	if (pixels.width != (sideways ? info->height : info->width) ||
	    pixels.height != (sideways ? info->width : info->height))
		die("the image has another size than its headers said");
	for (uint32_t y = 0; y < pixels.height; y++)
		sum = XXH3_64bits_withSeed(pixels.data + y * pixels.stride,
					   (size_t)pixels.width * pixels.channels, sum);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packimg_error error;
	struct image_info info;

	if (!ready && image_reader_init(&reader))
		return 0;
	ready = true;
	uint8_t *padded = calloc(1, size + IMAGE_PADDING);
	if (!padded)
		return 0;
	memcpy(padded, data, size);
	if (!image_probe(padded, size, &info, &error) &&
	    (uint64_t)info.width * info.height <= PIXELS_MAX) {
		uint64_t sum = read_pixels(padded, size, &info);

		/* fill the buffer with a pattern to detect pixels that the reader does not write */
		if (sum) {
			memset(reader.pixels.data, 0x5a, reader.pixels.capacity);
			if (read_pixels(padded, size, &info) != sum)
				die("the same bytes gave other pixels");
		}
	}
	free(padded);
	return 0;
}
