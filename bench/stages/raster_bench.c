/*
 * Cost of masks and of rasters of measurements: the size of each coding of synthetic ones, and the
 * CPU time of decoding the bands that a random-resized crop needs, and of resampling them: masks by
 * the nearest pixel to 512 x 512, measurements bilinearly to 224 x 224, of which one row shows a
 * crop. On one core with warm caches.
 */
#include "format/augment/apply/raster_resampler.h"
#include "format/base/median.h"
#include "format/base/random.h"
#include "format/base/system/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, CROPS = 200, SIDE = 512, OBJECTS = 20, SEED = 1 };

#define NEAREST  "random_resized_crop(512) hflip"
#define COMPUTED "random_resized_crop(224) hflip"

static const struct kind {
	const char *name;
	uint32_t width, height;
	enum packimg_element element;
	unsigned classes; /* number of values; 0: measurements with noise */
	uint32_t channels;
	const char *pipeline;
} kinds[] = {
	{"semantic, 8 bits", 683, 512, PACKIMG_ELEMENT_U8, 19, 1, NEAREST},
	{"semantic, 8 bits", 2048, 1024, PACKIMG_ELEMENT_U8, 19, 1, NEAREST},
	{"instances, 16 bits", 683, 512, PACKIMG_ELEMENT_U16, 30000, 1, NEAREST},
	{"binary, 8 bits", 683, 512, PACKIMG_ELEMENT_U8, 2, 1, NEAREST},
	{"measured, 16 bits", 512, 512, PACKIMG_ELEMENT_U16, 0, 1, COMPUTED},
	{"tile, 16 bits x 3", 512, 512, PACKIMG_ELEMENT_U16, 0, 3, COMPUTED},
	{"tile, 16 bits x 13", 256, 256, PACKIMG_ELEMENT_U16, 0, 13, COMPUTED},
	{"resized, cropped", 512, 512, PACKIMG_ELEMENT_U16, 0, 1, "resize(448) random_crop(224)"},
};

static const struct coding {
	const char *name;
	struct packimg_raster_coding coding;
} codings[] = {
	{"zstd 3", {PACKIMG_RASTER_ZSTD, 3, 5}},
	{"zstd 19", {PACKIMG_RASTER_ZSTD, 19, 5}},
	{"runs", {PACKIMG_RASTER_RUNS, 3, 5}},
};

static _Noreturn void fail(const char *text)
{
	fprintf(stderr, "raster_bench: %s\n", text);
	exit(1);
}

/* Paints wavy regions and elliptic objects in front of them. The caller frees the mask. */
static uint16_t *paint(const struct kind *kind)
{
	uint16_t *mask = malloc((size_t)kind->width * kind->height * sizeof(*mask));
	struct random_stream random;

	if (!mask)
		fail("out of memory");
	random_init(&random, SEED, 0, 0, RANDOM_AUGMENT);
	for (uint32_t y = 0; y < kind->height; y++)
		for (uint32_t x = 0; x < kind->width; x++) {
			double u = (double)x / kind->width, v = (double)y / kind->height;
			double wave = v + 0.06 * sin(9 * u) + 0.02 * sin(40 * u + 3 * v);

			mask[(size_t)y * kind->width + x] =
				kind->classes
					? (uint16_t)((unsigned)(fmax(wave, 0) * 6) % kind->classes)
					: (uint16_t)(1000 + 1000 * wave +
						     random_below(&random, 30));
		}
	for (unsigned i = 0; i < OBJECTS && kind->classes; i++) {
		double x = random_below(&random, kind->width),
		       y = random_below(&random, kind->height);
		double w = 5 + random_below(&random, kind->width / 6);
		double h = 5 + random_below(&random, kind->height / 5);
		uint16_t value = (uint16_t)(random_u32(&random) % kind->classes);

		for (uint32_t v = 0; v < kind->height; v++)
			for (uint32_t u = 0; u < kind->width; u++)
				if (pow((u - x) / w, 2) + pow((v - y) / h, 2) <
				    1 + 0.1 * sin(0.3 * u) + 0.1 * sin(0.4 * v))
					mask[(size_t)v * kind->width + u] = value;
	}
	return mask;
}

struct times {
	double decode, show; /* microseconds per crop */
};

/* Decodes and resamples CROPS crops of a sample. */
static struct times run(struct packimg_decoder *decoder, struct raster_resampler *resampler,
			const struct pipeline *pipeline, const struct packimg_sample *sample,
			enum pipeline_filter filter, uint8_t *output)
{
	static struct geometry geometry;
	struct times times = {0};
	const uint16_t fill = 0;

	for (uint64_t i = 0; i < CROPS; i++) {
		struct packimg_raster raster;
		struct packimg_region region;
		struct packimg_error error;

		if (geometry_make(pipeline, sample->width, sample->height, SEED, 0, i, NULL,
				  &geometry, NULL) < 0 ||
		    raster_resampler_begin(resampler, &geometry, sample->width, sample->height,
					   filter, &region) < 0)
			fail("no crop");
		double begin = clock_s(CLOCK_THREAD_CPUTIME_ID);

		if (packimg_decode_raster(decoder, sample, &region, &raster, &error) < 0)
			fail(error.text);
		double decoded = clock_s(CLOCK_THREAD_CPUTIME_ID);

		if (raster_resampler_run(resampler, &raster, &fill, output) < 0)
			fail("out of memory");
		times.decode += decoded - begin;
		times.show += clock_s(CLOCK_THREAD_CPUTIME_ID) - decoded;
	}
	times.decode *= 1e6 / CROPS;
	times.show *= 1e6 / CROPS;
	return times;
}

static void measure(const struct kind *kind, const struct coding *coding)
{
	size_t element = packimg_element_size(kind->element), pixel = element * kind->channels;
	size_t elements = (size_t)kind->width * kind->height * kind->channels, size;
	double decode[ROUNDS], show[ROUNDS];
	struct packimg_encoder *encoder;
	struct packimg_decoder *decoder;
	struct pipeline_error error;
	struct pipeline *pipeline;
	uint8_t *output = malloc((size_t)SIDE * SIDE * pixel), *bytes = malloc(elements * element);
	uint16_t *mask = paint(kind);
	struct raster_resampler resampler;
	struct packimg_sample sample = {.width = kind->width,
					.height = kind->height,
					.codec = PACKIMG_CODEC_RASTER,
					.channels = (uint8_t)kind->channels,
					.orientation = 1};

	if (!output || !bytes || packimg_encoder_new(&encoder) < 0 ||
	    packimg_decoder_new(&decoder) < 0)
		fail("out of memory");
	if (pipeline_parse(kind->pipeline, &pipeline, &error) < 0)
		fail(error.text);
	for (size_t i = 0; i < elements; i++)
		memcpy(bytes + i * element, &mask[i / kind->channels], element);
	const struct packimg_raster raster = {.data = bytes,
					      .step_x = (ptrdiff_t)pixel,
					      .step_y = (ptrdiff_t)(kind->width * pixel),
					      .width = kind->width,
					      .height = kind->height,
					      .channels = kind->channels,
					      .element = kind->element};

	if (packimg_encode_raster(encoder, &raster, &coding->coding, &sample.data, &size, NULL) < 0)
		fail("no encoding");
	sample.data_size = (uint32_t)size;
	raster_resampler_init(&resampler, cpu_isa_chosen());
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct times times =
			run(decoder, &resampler, pipeline, &sample,
			    kind->classes ? PIPELINE_NEAREST : PIPELINE_BILINEAR, output);

		decode[i] = times.decode;
		show[i] = times.show;
	}
	printf("%-20s %4ux%-4u  %-8s %7.1f KB  decode %6.1f us  show %6.1f us\n", kind->name,
	       kind->width, kind->height, coding->name, (double)size / 1e3,
	       median_sort(decode, ROUNDS), median_sort(show, ROUNDS));
	raster_resampler_deinit(&resampler);
	packimg_decoder_free(decoder);
	packimg_encoder_free(encoder);
	pipeline_free(pipeline);
	free(mask);
	free(bytes);
	free(output);
}

int main(void)
{
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		for (size_t c = 0; c < sizeof(codings) / sizeof(*codings); c++)
			if (kinds[k].channels == 1 ||
			    codings[c].coding.method != PACKIMG_RASTER_RUNS)
				measure(&kinds[k], &codings[c]);
	return 0;
}
