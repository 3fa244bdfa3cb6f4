/*
 * pipeline_apply() against reference.c: single and composed transforms, images of every shape,
 * repeated samples, errors.
 */
#include "format/augment/grammar/transforms.h"
#include "tests/unit/augment/pipeline_test.h"

TEST(single_transforms)
{
	static const char *const texts[] = {
		"random_resized_crop(24)",
		"random_resized_crop(31x17, scale=0.5:1, ratio=1:1)",
		"random_resized_crop(9, scale=0.9:1, ratio=5:6)", /* mostly uses the fallback crop
								   */
		"random_resized_crop(9, scale=0.9:1, ratio=0.1:0.11)",
		"resize(20)",
		"resize(7x33)",
		"resize(20, interpolation=bicubic)",
		"resize(50x9, interpolation=bicubic)",
		"resize(23, interpolation=bicubic) center_crop(14) hflip(1) vflip(1)",
		"resize(12, interpolation=bicubic) pad(2) channels(3)",
		"random_resized_crop(24, interpolation=bicubic) hflip",
		"pad(3) resize(17x30, interpolation=bicubic)",
		"center_crop(12)",
		"center_crop(11x40)",
		"center_crop(80)",
		"pad(3)",
		"pad(2x5, fill=9:200:31)",
		"random_zoom_out(fill=9:200:31) resize(20x17)",
		"random_zoom_out(side_range=1.5:2, p=1) random_crop(12)",
		"random_crop(10)",
		"random_crop(12x9, padding=4, fill=77)",
		"random_crop(12x9, padding=11x7, fill=reflect)",
		"pad(11x3, fill=reflect)",
		"hflip(1)",
		"vflip(1)",
		"hflip",
		"vflip(0.3)",
		"hflip(alternate) vflip(alternate)",
		"",
	};

	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		for (unsigned j = 0; j < 12; j++) {
			struct pipeline *pipeline = parse(texts[i]);
			uint32_t width = 12 + random_below(&rng, 60),
				 height = 12 + random_below(&rng, 60);

			fake_decoder.margin = j % 3 * 5;
			assert_int_equal(pipeline_fix_size(pipeline, width, height, NULL), 0);
			compare(texts[i], pipeline, width, height, j);
			pipeline_free(pipeline);
		}
	fake_decoder.margin = 0;
}

TEST(composed_transforms)
{
	static const char *const transforms[] = {
		"random_resized_crop(24)",
		"random_resized_crop(19x30, scale=0.3:1)",
		"resize(20)",
		"resize(40x26)",
		"center_crop(14)",
		"center_crop(33x9)",
		"pad(2)",
		"pad(1x3, fill=255)",
		"random_crop(11, padding=8)",
		"hflip",
		"vflip",
		"hflip(1)",
		"vflip(1)",
		"random_crop(30x12, padding=16, fill=1:2:3)",
		"pad(2x5, fill=reflect)",
		"random_crop(9x11, padding=4, fill=reflect)",
		"vflip(alternate)",
		"random_zoom_out(fill=7, side_range=1:2, p=0.7) resize(20x14)",
	};
	unsigned done = 0;

	for (unsigned i = 0; i < 900; i++) {
		char text[512] = "";
		unsigned count = 1 + random_below(&rng, 6);
		uint32_t width = 1 + random_below(&rng, 70), height = 1 + random_below(&rng, 70);
		uint32_t final_width, final_height;

		for (unsigned j = 0; j < count; j++) {
			strcat(text, transforms[random_below(&rng, sizeof(transforms) /
									   sizeof(*transforms))]);
			strcat(text, " ");
		}
		struct pipeline *pipeline = NULL;

		/* Some transforms are invalid after the ones before them. */
		if (pipeline_parse(text, &pipeline, NULL) < 0)
			continue;
		fake_decoder.margin = random_below(&rng, 2) * 3;
		if (pipeline_fix_size(pipeline, width, height, NULL) == 0 &&
		    pipeline_size_after(pipeline, pipeline->transform_count, 0, width, height,
					&final_width, &final_height, NULL) == 0) {
			compare(text, pipeline, width, height, i);
			done++;
		}
		pipeline_free(pipeline);
	}
	fake_decoder.margin = 0;
	assert_true(done > 500);
}

/* Extremely tall and wide images, with both kinds of resize. */
TEST(extreme_shapes)
{
	static const uint32_t sizes[][2] = {{4000, 1}, {1, 4000}, {3000, 2}, {1, 1}, {2, 700}};
	static const char *const texts[] = {"resize(3) center_crop(5)", "random_resized_crop(16)",
					    "resize(9x7)", "center_crop(6) hflip(1)"};

	for (unsigned i = 0; i < 5; i++)
		for (unsigned j = 0; j < 4; j++) {
			struct pipeline *pipeline = parse(texts[j]);

			assert_int_equal(
				pipeline_fix_size(pipeline, sizes[i][0], sizes[i][1], NULL), 0);
			compare(texts[j], pipeline, sizes[i][0], sizes[i][1], 0);
			pipeline_free(pipeline);
		}
}

/* A sample's bytes depend only on seed, epoch and index, not on earlier calls. */
TEST(samples_are_repeatable)
{
	struct pipeline *pipeline = parse("random_resized_crop(24@0;28@3) hflip");
	uint8_t *pixels = random_pixels(64, 48);
	struct packimg_sample sample = make_sample(pixels, 64, 48, 9),
			      other = make_sample(pixels, 64, 48, 10);
	uint8_t *first = apply_all(pipeline, &sample, 1, 0);
	uint8_t *others[] = {apply_all(pipeline, &sample, 2, 0), apply_all(pipeline, &sample, 1, 1),
			     apply_all(pipeline, &other, 1, 0)};
	uint8_t *again = apply_all(pipeline, &sample, 1, 0);
	struct pipeline_shape shape;

	pipeline_shape(pipeline, 0, &shape);
	assert_memory_equal(first, again, shape.sample_size);
	for (int i = 0; i < 3; i++) {
		assert_memory_not_equal(first, others[i], shape.sample_size);
		free(others[i]);
	}
	compare("progressive", pipeline, 64, 48, 2);
	compare("progressive", pipeline, 64, 48, 3);
	free(first);
	free(again);
	free(pixels);
	pipeline_free(pipeline);
}

static void expect_failure(const struct pipeline *pipeline, const struct packimg_sample *sample,
			   int result, const char *words)
{
	struct packimg_error error = {""};
	uint8_t output[64 * 64 * 3];

	assert_int_equal(pipeline_apply(pipeline, scratches[0], sample, 1, 0, output, NULL, &error),
			 result);
	if (!strstr(error.text, words))
		fail_msg("\"%s\" does not say \"%s\"", error.text, words);
	assert_int_equal(pipeline_apply(pipeline, scratches[0], sample, 1, 0, output, NULL, NULL),
			 result);
}

TEST(failures_are_explained)
{
	uint8_t *pixels = random_pixels(20, 10);
	struct packimg_sample sample = make_sample(pixels, 20, 10, 77);
	struct pipeline *pipeline = parse("random_crop(16)");
	const double mean[3] = {1, 2, 3};

	expect_failure(pipeline, &sample, -EINVAL,
		       "sample 77: at byte 0: random_crop(16x16) does not fit");
	pipeline_free(pipeline);
	pipeline = parse("hflip");
	expect_failure(pipeline, &sample, -EINVAL, "does not set a size");
	assert_int_equal(pipeline_fix_size(pipeline, 10, 20, NULL), 0);
	expect_failure(pipeline, &sample, -EINVAL,
		       "is 20 x 10 pixels, but this pipeline was fixed to 10 x 20");
	pipeline_free(pipeline);
	pipeline = parse("resize(8) hflip");
	assert_int_equal(pipeline_fix_size(pipeline, 10, 20, NULL), 0);
	expect_failure(pipeline, &sample, -EINVAL,
		       "resize(8) makes the shorter side 8 and keeps the ratio, as torchvision's "
		       "Resize(8); put center_crop(8) after it, or resize(8x8)");
	pipeline_free(pipeline);
	pipeline = parse("resize(8x8) to(f32) normalize(dataset)");
	expect_failure(pipeline, &sample, -EINVAL, "has not been given the dataset's statistics");
	assert_int_equal(pipeline_fix_statistics(pipeline, mean, mean, NULL), 0);
	free(apply_all(pipeline, &sample, 1, 0));
	fake_decoder.fail = -EBADMSG;
	expect_failure(pipeline, &sample, -EBADMSG, "");
	fake_decoder.fail = 0;
	pipeline_free(pipeline);
	free(pixels);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
