/*
 * Makes the seeds of the codec targets and of fuzz_request: make_corpus FOLDER writes
 * FOLDER/codec_jpeg, FOLDER/codec_raster, FOLDER/codec_raw_zstd, FOLDER/jpeg_* and FOLDER/request.
 */
#include "format/packimg.h"
#include "tests/unit/format/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

static void must(int r)
{
	if (r < 0) {
		fprintf(stderr, "make_corpus: %s\n", strerror(-r));
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

/* Makes rasters of each element by each method, with the size before them as the target reads it.
 */
static void make_rasters(const char *root)
{
	static const enum packimg_element elements[] = {PACKIMG_ELEMENT_U8, PACKIMG_ELEMENT_U16,
							PACKIMG_ELEMENT_I16, PACKIMG_ELEMENT_I32,
							PACKIMG_ELEMENT_F32};
	enum { WIDTH = 24, HEIGHT = 20 };
	struct packimg_encoder *encoder;
	char folder[2048], name[64];

	must(packimg_encoder_new(&encoder));
	snprintf(folder, sizeof(folder), "%s/codec_raster", root);
	mkdir(folder, 0777);
	for (unsigned i = 0; i < 5; i++)
		for (int method = PACKIMG_RASTER_RAW; method <= PACKIMG_RASTER_RUNS; method++) {
			uint32_t channels = i < 2 ? 1 : i;
			size_t size, pixel = packimg_element_size(elements[i]) * channels;

			if (method == PACKIMG_RASTER_RUNS && i > 1)
				continue;
			uint8_t *pixels = calloc(WIDTH * HEIGHT, pixel);
			struct packimg_raster raster = {
				pixels,     (ptrdiff_t)pixel, (ptrdiff_t)(WIDTH * pixel),
				WIDTH,      HEIGHT,           channels,
				elements[i]};
			struct packimg_raster_coding coding = {method, 3, i};
			const uint8_t *data;

			for (size_t at = 0; at < WIDTH * HEIGHT; at++)
				pixels[at * pixel] = (uint8_t)(at % WIDTH / 7 + at / WIDTH / 6);
			must(packimg_encode_raster(encoder, &raster, &coding, &data, &size, NULL));
			uint8_t *seed = malloc(2 + size);

			seed[0] = WIDTH - 1;
			seed[1] = HEIGHT - 1;
			memcpy(seed + 2, data, size);
			snprintf(name, sizeof(name), "element%d_method%d", (int)elements[i],
				 method);
			write_file(folder, name, seed, 2 + size);
			free(seed);
			free(pixels);
		}
	packimg_encoder_free(encoder);
}

/*
 * Makes inputs of jpeg_case_build() with every sampling, quantisation and kind of scan. Inputs of
 * jpeg_index start with three changes to the index.
 */
static void make_cases(const char *root)
{
	static const uint8_t changes[] = {3, 10, 40, 1, 2, 60, 3, 7, 200, 7};
	char scans[2048], indices[2048], name[64];
	uint64_t state = 1;

	snprintf(scans, sizeof(scans), "%s/jpeg_scan", root);
	snprintf(indices, sizeof(indices), "%s/jpeg_index", root);
	for (uint32_t kind = 0; kind < 28; kind++) {
		uint8_t seed[sizeof(changes) + 160], *scan = seed + sizeof(changes);

		memcpy(seed, changes, sizeof(changes));
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

/*
 * Makes headers as encoders write them, without the scan, and inputs from which fuzz_jpeg_headers
 * makes headers.
 */
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

		for (size_t i = 0; i < sizeof(seed); i++) /* make few changes */
			seed[i] = (uint8_t)(image_random(&state) % 230);
		seed[0] = (uint8_t)first;
		snprintf(name, sizeof(name), "made%02u", first);
		write_file(folder, name, seed, sizeof(seed));
	}
}

enum kind { JPEGS, INDEXED, PIXELS, KINDS };

/*
 * Makes item i of a dataset. JPEGS: a JPEG whose kind and size depend on i, with an index if it is
 * sequential; INDEXED: a JPEG of one kind and size; PIXELS: raw or compressed pixels. The caller
 * frees the data.
 */
static void make_item(struct packimg_encoder *encoder, struct packimg_decoder *decoder,
		      enum kind kind, unsigned i, struct packimg_item *ret_item, uint8_t **ret_data)
{
	static const struct jpeg_kind kinds[] = {
		{.components = 3, .h = 2, .v = 2, .quality = 50},
		{.components = 3, .h = 2, .v = 2, .quality = 40, .progressive = true},
		{.components = 1, .h = 1, .v = 1, .quality = 50},
		{.components = 4, .h = 2, .v = 2, .quality = 30, .ycck = true},
	};
	struct packimg_item item = {.width = kind == JPEGS ? 20 + 9 * i : 24,
				    .height = kind == JPEGS ? 36 - 4 * i : 20,
				    .channels = 3,
				    .orientation = kind == JPEGS ? 1 + 2 * i : 1};
	if (kind == PIXELS) {
		*ret_data = image_pixels(24, 20, 3, i);
		item.codec = i % 2 ? PACKIMG_CODEC_RAW_ZSTD : PACKIMG_CODEC_RAW;
		item.data = *ret_data;
		item.data_size = 24 * 20 * 3;
		if (i % 2)
			must(packimg_encode_zstd(encoder, *ret_data, item.data_size, 3, &item.data,
						 &item.data_size));
	} else {
		const struct jpeg_kind *jpeg = &kinds[kind == JPEGS ? i : 0];
		bool turned = item.orientation > 4;
		*ret_data = image_jpeg(turned ? item.height : item.width,
				       turned ? item.width : item.height, jpeg, i, &item.data_size);
		struct packimg_jpeg_info info = {.width = turned ? item.height : item.width,
						 .height = turned ? item.width : item.height,
						 .components = (uint8_t)jpeg->components};
		item.codec = PACKIMG_CODEC_JPEG;
		item.channels = (uint8_t)jpeg->components;
		item.data = *ret_data;
		if (kind == INDEXED || i == 2)
			must(packimg_index_jpeg(decoder, item.data, item.data_size, &info,
						&item.side, &item.side_size));
	}
	*ret_item = item;
}

static void add_values(struct packimg_writer *writer, const uint32_t fields[4], unsigned i)
{
	struct packimg_value number = {.present = true, .int64 = i};
	struct packimg_value half = {.present = i != 1, .float64 = i / 2.0};
	struct packimg_value text = {.present = true, .bytes = "{\"n\":1}", .size = 7};
	must(packimg_writer_value(writer, fields[0], &number, NULL));
	must(packimg_writer_value(writer, fields[1], &half, NULL));
	must(packimg_writer_value(writer, fields[2], &text, NULL));
	must(packimg_writer_value(writer, fields[3], &text, NULL));
}

/* Returns the bytes of a file with four samples. */
static uint8_t *make_dataset(const char *root, enum kind kind, size_t *ret_size)
{
	static const char *const names[] = {"id", "score", "blob", "note"}, *const classes[] = {
										    "cat", "dog"};
	static const double mean[] = {120, 110, 100}, std[] = {60, 61, 62};
	struct packimg_writer_options options = {0};
	struct packimg_encoder *encoder;
	struct packimg_decoder *decoder;
	struct packimg_writer *writer;
	struct packimg_error error;
	uint32_t fields[4];
	char path[4096];

	snprintf(path, sizeof(path), "%s/request/made.pimg", root);
	must(packimg_encoder_new(&encoder));
	must(packimg_decoder_new(&decoder));
	must(packimg_writer_new(path, &options, &writer, &error));
	for (unsigned i = 0; i < 4; i++)
		must(packimg_writer_field(writer, names[i], PACKIMG_FIELD_INT64 + i, &fields[i],
					  &error));
	for (unsigned i = 0; i < 4; i++) {
		struct packimg_item item;
		uint8_t *data;
		make_item(encoder, decoder, kind, i, &item, &data);
		item.label = (int32_t)(i % 2);
		item.source = "a.jpg";
		item.source_size = 5;
		must(packimg_writer_add(writer, &item, &error));
		add_values(writer, fields, i);
		free(data);
	}
	must(packimg_writer_classes(writer, classes, 2, &error));
	must(packimg_writer_metadata(writer, "tool", "make_corpus", &error));
	must(packimg_writer_statistics(writer, mean, std));
	must(packimg_writer_finish(writer, &error));
	packimg_writer_free(writer);
	packimg_decoder_free(decoder);
	packimg_encoder_free(encoder);
	uint8_t *bytes = image_file_read(path, ret_size);
	remove(path);
	return bytes;
}

static void write_request(const char *folder, const char *name, const uint8_t *script,
			  size_t script_size, const uint8_t *file, size_t size)
{
	uint8_t *seed = malloc(2 + script_size + size);
	seed[0] = 'R';
	seed[1] = (uint8_t)script_size;
	memcpy(seed + 2, script, script_size);
	memcpy(seed + 2 + script_size, file, size);
	write_file(folder, name, seed, 2 + script_size + size);
	free(seed);
}

/*
 * Makes scripts for fuzz_request.c: each pipeline, with every policy, order and start position in
 * turn, and a change of the file in between.
 */
static void make_requests(const char *root)
{
	enum {
		OPEN,
		WORK,
		TAKE,
		CHANGE,
		DESCRIBE,
		STATUS = 9,
		HANG_UP = 11,
		WANT = 13,
		FORGET,
		PIPELINES = 24
	};
	char folder[2048], name[64];

	snprintf(folder, sizeof(folder), "%s/request", root);
	mkdir(folder, 0777);
	for (uint8_t i = 0; i < PIPELINES; i++) {
		uint8_t how = (uint8_t)((i % 3) << 6 | (i & 7));
		uint8_t script[] = {
			OPEN,
			i,
			how,
			1 + i % 3,
			2 + i % 2,
			i % 3,
			0,
			0,
			i % 5 == 4 ? 0x20 : 0,
			i % 16,
			i % 4 ? 0 : 5,
			WORK,
			3,
			CHANGE,
			1 | (i & 30),
			(uint8_t)(11 * i),
			i % 4,
			i,
			(uint8_t)(9 * i),
			WORK,
			20,
			TAKE,
			3,
			STATUS,
			WORK,
			9,
			i % 2 ? DESCRIBE : HANG_UP,
			TAKE,
			1,
			WORK,
			1,
		};
		enum kind kind = i == 0 ? PIXELS : i % KINDS;
		size_t size;
		uint8_t *file = make_dataset(root, kind, &size);
		snprintf(name, sizeof(name), "pipeline%02u", i);
		write_request(folder, name, script, sizeof(script), file, size);
		free(file);
	}
	/* A wanted feed, with duplicates, an extreme epoch, Forget, and a sample that is not there.
	 */
	static const uint8_t wanted[] = {
		OPEN, 1,      0,    4,    3,      0,    0,    0,    0,    1,    0x40, WANT, 0x33,
		0,    WANT,   0x12, 0xfd, WORK,   9,    TAKE, 2,    WANT, 0x44, 1,    WANT, 3,
		2,    FORGET, WORK, 9,    STATUS, TAKE, 4,    WANT, 4,    2,    WORK, 9,    TAKE,
		8,    WANT,   0x82, 0,    0,      0xfc, WORK, 1,    TAKE, 1,
	};
	size_t size;
	uint8_t *file = make_dataset(root, 1, &size);
	write_request(folder, "wanted", wanted, sizeof(wanted), file, size);
	free(file);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: make_corpus FOLDER\n");
		return 2;
	}
	make_jpegs(argv[1]);
	make_frames(argv[1]);
	make_rasters(argv[1]);
	make_cases(argv[1]);
	make_headers(argv[1]);
	make_requests(argv[1]);
	return 0;
}
