/* Makes the seeds of the codec targets: make_corpus FOLDER writes FOLDER/codec_jpeg, FOLDER/codec_raw_zstd and FOLDER/jpeg_*. */
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

/* Cases for jpeg_case_build() of every sampling, quantisation and kind of scan; behind three changes to the index for that target. */
static void make_cases(const char *root)
{
	static const uint8_t changes[] = {3, 10, 40, 1, 2, 60, 3, 7, 200, 7};
	char scans[2048], indices[2048], name[64];
	uint64_t state = 1;

	snprintf(scans, sizeof(scans), "%s/jpeg_scan", root);
	snprintf(indices, sizeof(indices), "%s/jpeg_index", root);
	for (uint32_t kind = 0; kind < 28; kind++) {
		uint8_t seed[sizeof changes + 160], *scan = seed + sizeof changes;

		memcpy(seed, changes, sizeof changes);
		for (size_t i = 0; i < 160; i++)
			scan[i] = (uint8_t)image_random(&state);
		scan[0] = (uint8_t)kind;
		scan[1] = (uint8_t)(kind % 3 == 2 ? kind : kind % 4);
		snprintf(name, sizeof(name), "%02u", kind);
		write_file(scans, name, scan, 160);
		scan[1] = (uint8_t)(kind % 4);
		write_file(indices, name, seed, sizeof(seed));
	}
}

/* Headers as encoders write them, without the scan; and the beginnings of what the target makes headers of. */
static void make_headers(const char *root)
{
	char folder[2048], name[64];
	uint64_t state = 2;

	snprintf(folder, sizeof(folder), "%s/jpeg_headers", root);
	for (int v = 1; v <= 2; v++) {
		struct jpeg_kind kind = {
			.components = 3, .h = 2, .v = v, .optimise = true, .orientation = v};
		size_t size, end = 0;
		uint8_t *data = image_jpeg(16, 16, &kind, 1, &size);

		while (data[end] != 0xff || data[end + 1] != 0xda)
			end++;
		snprintf(name, sizeof(name), "42%d.jpg", v == 1 ? 2 : 0);
		write_file(folder, name, data, end + 14);
		free(data);
	}
	for (uint32_t first = 0; first < 32; first++) {
		uint8_t seed[400];

		for (size_t i = 0; i < sizeof(seed); i++) /* few changes */
			seed[i] = (uint8_t)(image_random(&state) % 230);
		seed[0] = (uint8_t)first;
		snprintf(name, sizeof(name), "made%02u", first);
		write_file(folder, name, seed, sizeof(seed));
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: make_corpus FOLDER\n");
		return 2;
	}
	make_jpegs(argv[1]);
	make_frames(argv[1]);
	make_cases(argv[1]);
	make_headers(argv[1]);
	return 0;
}
