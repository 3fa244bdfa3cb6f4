/* Makes the seeds of the codec targets: make_corpus FOLDER writes FOLDER/codec_jpeg and FOLDER/codec_raw_zstd. */
#include "images.h"
#include "packimg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_file(const char *folder, const char *name, const uint8_t *data, size_t size)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *file = fopen(path, "wb");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

static void make_jpegs(const char *root)
{
	static const struct {
		const char *name;
		struct jpeg_kind kind;
	} seeds[] = {
		{"444.jpg", {.components = 3, .h = 1, .v = 1}},
		{"420.jpg", {.components = 3, .h = 2, .v = 2}},
		{"422.jpg", {.components = 3, .h = 2, .v = 1}},
		{"440.jpg", {.components = 3, .h = 1, .v = 2}},
		{"411.jpg", {.components = 3, .h = 4, .v = 1}},
		{"grey.jpg", {.components = 1, .h = 1, .v = 1}},
		{"cmyk.jpg", {.components = 4, .h = 1, .v = 1}},
		{"ycck.jpg", {.components = 4, .h = 2, .v = 2, .ycck = true}},
		{"rgb.jpg", {.components = 3, .h = 1, .v = 1, .rgb = true}},
		{"progressive.jpg", {.components = 3, .h = 2, .v = 2, .progressive = true}},
		{"arithmetic.jpg", {.components = 3, .h = 2, .v = 2, .arithmetic = true}},
		{"restart.jpg", {.components = 3, .h = 2, .v = 2, .restart_rows = 1}},
		{"separate.jpg", {.components = 3, .h = 2, .v = 2, .separate = true}},
		{"exif.jpg", {.components = 3, .h = 2, .v = 2, .orientation = 6}},
		{"exif_big.jpg",
		 {.components = 3, .h = 2, .v = 2, .orientation = 8, .exif_big = true}},
	};
	char folder[2048];

	snprintf(folder, sizeof(folder), "%s/codec_jpeg", root);
	for (size_t i = 0; i < sizeof(seeds) / sizeof(*seeds); i++) {
		struct jpeg_kind kind = seeds[i].kind;
		size_t size;
		kind.quality = 50;
		kind.optimise = !kind.arithmetic;
		uint8_t *data = image_jpeg(37, 29, &kind, i, &size);
		write_file(folder, seeds[i].name, data, size);
		free(data);
	}
}

static void make_frames(const char *root)
{
	struct packimg_encoder *encoder;
	char folder[2048], name[64];

	if (packimg_encoder_new(&encoder) < 0)
		exit(1);
	snprintf(folder, sizeof(folder), "%s/codec_raw_zstd", root);
	for (uint32_t channels = 1; channels <= 3; channels += 2)
		for (int level = 1; level <= 19; level += 9) {
			const uint8_t *data;
			uint8_t *pixels = image_pixels(20, 15, channels, channels),
				seed[2048] = {19, 14};
			size_t size;
			if (packimg_encode_zstd(encoder, pixels, 300 * channels, level, &data,
						&size) < 0)
				exit(1);
			memcpy(seed + 2, data, size);
			snprintf(name, sizeof(name), "%uchannels_level%d", channels, level);
			write_file(folder, name, seed, size + 2);
			free(pixels);
		}
	uint8_t raw[2 + 6 * 5 * 3] = {5, 4, 1, 2, 3};
	write_file(folder, "raw", raw, sizeof(raw));
	packimg_encoder_free(encoder);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: make_corpus FOLDER\n");
		return 2;
	}
	make_jpegs(argv[1]);
	make_frames(argv[1]);
	return 0;
}
