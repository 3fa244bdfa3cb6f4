/*
 * Decodes a dataset's samples with libpackimg, as loaderd does: `decoded FILE FOLDER` writes the
 * pixels of sample N to FOLDER/N.ppm, or the error to FOLDER/N.txt. Decoding the whole image and
 * decoding row by row must give the same pixels.
 */
#include "format/packimg.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what, const char *why)
{
	fprintf(stderr, "decoded: %s: %s\n", what, why);
	exit(2);
}

static FILE *create(const char *folder, uint64_t index, const char *ending)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%" PRIu64 ".%s", folder, index, ending);
	FILE *file = fopen(path, "wb");
	if (!file)
		die(path, strerror(errno));
	return file;
}

/*
 * Decodes the whole image with one call into rows without padding. Returns NULL and sets error on
 * failure.
 */
static uint8_t *decode_whole(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			     struct packimg_error *error)
{
	struct packimg_region all = {.width = sample->width, .height = sample->height};
	size_t row = 3 * (size_t)sample->width;
	struct packimg_pixels pixels;

	if (packimg_decode(decoder, sample, &all, 0, 0, &pixels, error) < 0)
		return NULL;
	uint8_t *rgb = malloc(row * sample->height);
	if (!rgb)
		die("memory", strerror(ENOMEM));
	for (uint32_t y = 0; y < sample->height; y++)
		memcpy(rgb + y * row,
		       pixels.data + (y + (size_t)pixels.y) * pixels.stride + 3 * (size_t)pixels.x,
		       row);
	return rgb;
}

/*
 * Decodes row by row and compares with `whole`. Returns 1 if the pixels are equal, 0 if they
 * differ, a negative value on failure.
 */
static int decode_by_rows(struct packimg_decoder *decoder, const struct packimg_sample *sample,
			  const uint8_t *rgb, struct packimg_error *error)
{
	struct packimg_region all = {.width = sample->width, .height = sample->height};
	size_t row = 3 * (size_t)sample->width;
	struct packimg_pixels pixels;
	uint32_t ready = 0;
	int same = 1;

	int r = packimg_decode_begin(decoder, sample, &all, 0, 0, &pixels, error);
	if (r < 0)
		return r;
	for (uint32_t y = 0; y < sample->height; y++) {
		uint32_t line = y + (uint32_t)pixels.y;

		if (line >= ready && pixels.ring) {
			r = packimg_decode_rows(decoder, line + 1, &ready, error);
			if (r < 0)
				return r;
		}
		if (pixels.ring)
			line %= pixels.ring;
		same &= memcmp(rgb + y * row,
			       pixels.data + line * pixels.stride + 3 * (size_t)pixels.x, row) == 0;
	}
	return same;
}

static int dump(struct packimg_decoder *decoder, const struct packimg_sample *sample,
		const char *folder)
{
	struct packimg_error error = {{0}}, other = {{0}};
	uint8_t *rgb = decode_whole(decoder, sample, &error);
	FILE *file = create(folder, sample->index, rgb ? "ppm" : "txt");
	int bad = 0;

	if (!rgb) {
		fprintf(file, "%s\n", error.text);
	} else {
		int same = decode_by_rows(decoder, sample, rgb, &other);

		fprintf(file, "P6 %u %u 255\n", sample->width, sample->height);
		fwrite(rgb, 3 * (size_t)sample->width, sample->height, file);
		bad = same != 1;
		if (bad)
			fprintf(stderr, "decoded: sample %" PRIu64 ", row by row: %s\n",
				sample->index, same < 0 ? other.text : "other pixels");
	}
	free(rgb);
	if (fclose(file) != 0)
		die(folder, strerror(errno));
	return bad;
}

int main(int argc, char **argv)
{
	struct packimg *dataset;
	struct packimg_decoder *decoder;
	struct packimg_error error;
	int bad = 0;

	if (argc != 3)
		die("usage", "decoded FILE FOLDER");
	if (packimg_open(argv[1], &dataset, &error) < 0)
		die(argv[1], error.text);
	if (packimg_decoder_new(&decoder) < 0)
		die("memory", strerror(ENOMEM));
	for (uint64_t i = 0; i < packimg_count(dataset); i++) {
		struct packimg_sample sample;

		if (packimg_sample(dataset, i, &sample) < 0)
			die(argv[1], error.text);
		bad |= dump(decoder, &sample, argv[2]);
	}
	packimg_decoder_free(decoder);
	packimg_close(dataset);
	return bad;
}
