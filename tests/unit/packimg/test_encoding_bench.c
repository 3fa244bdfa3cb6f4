/* Encoding variants of a dataset's images, and measurements of runs over them. */
#include "tools/packimg/estimate/encoding_bench.h"

#include "format/augment/pipeline.h"
#include "tests/test.h"

enum { WIDTH = 64, HEIGHT = 32 };

static _Alignas(64) uint8_t grey[WIDTH * HEIGHT + 64];
static struct packimg_encoder *encoder;
static struct packimg_sample stored[2]; /* a rotated JPEG, and a grey raw image */

static int set_up(void **state)
{
	const uint8_t *data;
	size_t size;

	for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++)
		grey[i] = (uint8_t)(i * 7 >> 3);
	assert_int_equal(packimg_encoder_new(&encoder), 0);
	assert_int_equal(packimg_encode_jpeg(encoder, grey, WIDTH, WIDTH, HEIGHT, 1, 90, false,
					     &data, &size),
			 0);
	stored[0] = (struct packimg_sample){.index = 5,
					    .data = data,
					    .data_size = (uint32_t)size,
					    .width = HEIGHT,
					    .height = WIDTH,
					    .codec = PACKIMG_CODEC_JPEG,
					    .channels = 1,
					    .orientation = 6};
	stored[1] = (struct packimg_sample){.index = 9,
					    .data = grey,
					    .data_size = WIDTH * HEIGHT,
					    .width = WIDTH,
					    .height = HEIGHT,
					    .codec = PACKIMG_CODEC_RAW,
					    .channels = 1,
					    .orientation = 1};
	return 0;
}

static int tear_down(void **state)
{
	packimg_encoder_free(encoder);
	return 0;
}

TEST(variants)
{
	const struct encoding_input images[] = {{.stored = &stored[0]}, {.stored = &stored[1]}};
	struct encoding_variant variants[] = {
		{.kind = ENCODING_STORED},
		{.kind = ENCODING_VERBATIM},
		{.kind = ENCODING_UNINDEXED},
		{.kind = ENCODING_JPEG, .short_side = 16, .quality = 90},
		{.kind = ENCODING_RAW}};
	enum { COUNT = sizeof(variants) / sizeof(*variants) };
	const struct claim_options claim = {.batch_size = 2, .workers = 1, .alone = true};
	struct encoding_run runs[COUNT];
	struct pipeline *pipeline;
	struct pipeline_error fault;
	struct packimg_error error;

	assert_int_equal(pipeline_parse("random_resized_crop(8)", &pipeline, &fault), 0);
	for (int i = 0; i < COUNT; i++) {
		const struct encoding_variant *variant = &variants[i];
		uint32_t scale = variant->short_side ? 2 : 1;

		assert_int_equal(encoding_variant_encode(&variants[i], images, 2, 1, NULL, &error),
				 0);
		assert_int_equal(variant->images, 2);
		for (int j = 0; j < 2; j++) {
			assert_int_equal(variant->samples[j].index, stored[j].index);
			assert_int_equal(variant->samples[j].width, stored[j].width / scale);
			assert_int_equal(variant->samples[j].height, stored[j].height / scale);
			assert_int_equal(variant->samples[j].channels, 1);
		}
		assert_int_equal(variant->samples[0].orientation,
				 variant->kind <= ENCODING_UNINDEXED ? 6 : 1);
		assert_int_equal(variant->index_bytes > 0, variant->kind == ENCODING_VERBATIM ||
								   variant->kind == ENCODING_JPEG);
		runs[i] = (struct encoding_run){variant->samples, variant->images, pipeline};
	}
	assert_int_equal(variants[4].bytes, 2 * WIDTH * HEIGHT);
	assert_int_equal(encoding_bench_measure(runs, COUNT, &claim, 0, NULL, &error), 0);
	for (int i = 0; i < COUNT; i++) {
		assert_true(runs[i].image_s > 0);
		encoding_variant_deinit(&variants[i]);
	}
	pipeline_free(pipeline);
}

TEST_MAIN(set_up, tear_down)
