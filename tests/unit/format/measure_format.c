/*
 * Measures libpackimg without the tools around it; not a test.
 *   measure_format write FOLDER FILE.pimg     packs the JPEG files below FOLDER unchanged
 *   measure_format decode FILE.pimg [COUNT]   prints random-resized crops per second of CPU time
 *                                             for samples in memory, decoded by libjpeg-turbo
 *                                             (whole images; cropping and skipping) and by
 *                                             packimg_decode()
 */
#include "format/packimg.h"
#include "tests/unit/format/images.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

static struct packimg_error error;
static volatile uint8_t sink;

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int r)
{
	if (r < 0) {
		fprintf(stderr, "measure_format: %s (%d)\n", error.text, r);
		exit(1);
	}
}

static struct packimg_writer *writer;

static int add_file(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	static uint8_t *data;
	static size_t data_max;
	struct packimg_jpeg_info info;
	size_t size = (size_t)status->st_size;

	if (type != FTW_F)
		return 0;
	if (size > data_max) {
		data = realloc(data, size);
		data_max = size;
	}
	FILE *file = fopen(path, "rb");
	if (!file || fread(data, 1, size, file) != size)
		return -1;
	fclose(file);
	if (packimg_jpeg_probe(data, size, &info, &error) < 0)
		return 0;
	struct packimg_item item = {
		.data = data,
		.data_size = size,
		.width = info.orientation < 5 ? info.width : info.height,
		.height = info.orientation < 5 ? info.height : info.width,
		.label = PACKIMG_LABEL_NONE,
		.codec = PACKIMG_CODEC_JPEG,
		.channels = info.components,
		.orientation = info.orientation,
		.source = path,
		.source_size = strlen(path),
	};
	must(packimg_writer_add(writer, &item, &error));
	return 0;
}

static void measure_write(const char *folder, const char *path)
{
	double start = now(CLOCK_MONOTONIC);

	must(packimg_writer_new(path, NULL, &writer, &error));
	if (nftw(folder, add_file, 32, FTW_PHYS) < 0)
		perror(folder);
	double added = now(CLOCK_MONOTONIC);
	must(packimg_writer_finish(writer, &error));
	double end = now(CLOCK_MONOTONIC);
	double mib = (double)packimg_writer_bytes(writer) / (1 << 20);
	printf("%.1f MiB: added in %.3f s, finished in %.3f s, %.0f MiB/s\n", mib, added - start,
	       end - added, mib / (end - start));
	packimg_writer_free(writer);
}

/* torchvision's RandomResizedCrop: area 0.08 to 1, ratio 3/4 to 4/3, ten attempts. */
static struct packimg_region random_crop(const struct packimg_sample *sample, uint64_t *state)
{
	for (int i = 0; i < 10; i++) {
		double u = (double)(image_random(state) >> 11) * 0x1p-53,
		       v = (double)(image_random(state) >> 11) * 0x1p-53;
		double area = (double)sample->width * sample->height * (0.08 + 0.92 * u);
		double ratio = exp(log(0.75) + v * (log(4.0 / 3) - log(0.75)));
		uint32_t width = (uint32_t)lround(sqrt(area * ratio)),
			 height = (uint32_t)lround(sqrt(area / ratio));
		if (width == 0 || height == 0 || width > sample->width || height > sample->height)
			continue;
		return (struct packimg_region){
			(uint32_t)(image_random(state) % (sample->width - width + 1)),
			(uint32_t)(image_random(state) % (sample->height - height + 1)),
			width,
			height,
		};
	}
	return (struct packimg_region){0, 0, sample->width, sample->height};
}

static struct jpeg_decompress_struct plain;
static struct jpeg_error_mgr plain_errors;
static uint8_t *plain_pixels;

/*
 * Decodes the whole image; with `crop`, only the columns and rows that the library would return,
 * without special handling of the edges.
 */
static void decode_plain(const struct packimg_sample *sample, const struct packimg_region *region,
			 bool crop)
{
	jpeg_mem_src(&plain, sample->data, sample->data_size);
	jpeg_read_header(&plain, TRUE);
	plain.out_color_space = JCS_RGB;
	jpeg_start_decompress(&plain);
	uint32_t end = plain.output_height;
	if (crop) {
		JDIMENSION x = region->x, width = region->width;
		jpeg_crop_scanline(&plain, &x, &width);
		jpeg_skip_scanlines(&plain, region->y);
		end = region->y + region->height;
	}
	size_t stride = (size_t)plain.output_width * 3;
	while (plain.output_scanline < end) {
		JSAMPROW row = plain_pixels + plain.output_scanline * stride;
		jpeg_read_scanlines(&plain, &row, 1);
	}
	sink = plain_pixels[stride];
	jpeg_abort_decompress(&plain);
}

static void measure_decode(const char *path, unsigned long count)
{
	static const char *const names[] = {
		"libjpeg-turbo, whole image", "libjpeg-turbo, crop and skip",
		"packimg_decode, full scale", "packimg_decode, hint 224"};
	struct packimg *dataset;
	struct packimg_decoder *decoder;
	double best[4] = {0};

	must(packimg_open(path, &dataset, &error));
	must(packimg_decoder_new(&decoder));
	plain.err = jpeg_std_error(&plain_errors);
	jpeg_create_decompress(&plain);
	plain_pixels = malloc(400u << 20);
	/* rounds are interleaved; the first one is a warm-up, and the best of the others counts */
	for (int round = 0; round < 4; round++)
		for (int method = 0; method < 4; method++) {
			uint64_t state = 1, done = 0;
			double start = now(CLOCK_THREAD_CPUTIME_ID);
			for (unsigned long i = 0; i < count; i++) {
				struct packimg_sample sample;
				struct packimg_pixels pixels;
				must(packimg_sample(dataset, i % packimg_count(dataset), &sample));
				struct packimg_region region = random_crop(&sample, &state);
				if (sample.channels == 4 || sample.orientation != 1 ||
				    (uint64_t)sample.width * sample.height > 100 << 20)
					continue;
				uint32_t hint = method == 3 ? 224 : 0;
				if (method < 2)
					decode_plain(&sample, &region, method == 1);
				else
					must(packimg_decode(decoder, &sample, &region, hint, hint,
							    &pixels, &error));
				done++;
			}
			double rate = (double)done / (now(CLOCK_THREAD_CPUTIME_ID) - start);
			if (rate > best[method])
				best[method] = rate;
		}
	for (int method = 0; method < 4; method++)
		printf("%-30s %7.0f crops/s\n", names[method], best[method]);
	packimg_decoder_free(decoder);
	packimg_close(dataset);
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "write") == 0) {
		measure_write(argv[2], argv[3]);
		return 0;
	}
	if (argc >= 3 && strcmp(argv[1], "decode") == 0) {
		measure_decode(argv[2], argc > 3 ? strtoul(argv[3], NULL, 10) : 1000);
		return 0;
	}
	fprintf(stderr,
		"usage: measure_format write FOLDER FILE.pimg | decode FILE.pimg [COUNT]\n");
	return 2;
}
