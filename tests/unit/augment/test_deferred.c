/*
 * Transforms deferred to the client (pipeline_defer()) must give the same pixels as in the daemon.
 * Records of deferred transforms are validated.
 */
#include "format/augment/deferrable.h"
#include "format/augment/deferred.h"
#include "format/augment/grammar/grammar_rules.h"
#include "format/base/system/cpu.h"
#include "tests/unit/augment/pipeline_test.h"

enum { WIDTH = 61, HEIGHT = 47, SAMPLES = 40 };

/* Returns the finished sample, with the deferred transforms run like in the client. */
static uint8_t *apply_deferred(const struct pipeline *pipeline, const struct packimg_sample *sample,
			       uint64_t seed, uint64_t epoch, struct deferred *ret_deferred)
{
	struct pipeline_shape shape;
	uint8_t *delivered = apply_all(pipeline, sample, seed, epoch);
	uint32_t size;
	const struct deferred *left = pipeline_deferred(scratches[0], &size);

	pipeline_shape(pipeline, epoch, &shape);
	assert_in_range(size, deferred_size(0), pipeline_deferred_max(pipeline));
	for (int isa = 1; isa <= (int)cpu_isa_supported(); isa++) {
		uint32_t other;

		assert_memory_equal(pipeline_deferred(scratches[isa], &other), left, size);
	}
	assert_null(deferred_read(left, size, shape.width, shape.height, ret_deferred));
	uint8_t *finished =
		malloc((size_t)ret_deferred->width * ret_deferred->height * shape.channels);

	assert_non_null(finished);
	deferred_apply(ret_deferred, delivered, shape.width, shape.height, shape.channels,
		       finished);
	free(delivered);
	return finished;
}

/*
 * `delivered` is the width of the sample that the daemon delivers, which shows which transforms it
 * deferred.
 */
static void expect_equal(const char *text, uint32_t stored_width, uint32_t delivered,
			 unsigned changes)
{
	struct pipeline *whole = parse(text), *deferring = parse(text);
	struct pipeline_shape shape, rest;
	unsigned seen = 0;

	if (!pipeline_has_size(whole)) {
		assert_int_equal(pipeline_fix_size(whole, stored_width, HEIGHT, NULL), 0);
		assert_int_equal(pipeline_fix_size(deferring, stored_width, HEIGHT, NULL), 0);
	}
	assert_int_equal(pipeline_defer(deferring, NULL), 0);
	pipeline_shape(whole, 0, &shape);
	pipeline_shape(deferring, 0, &rest);
	assert_int_equal(rest.width, delivered);
	assert_int_equal(pipeline_deferred_max(deferring), deferred_size(changes));
	for (uint64_t i = 0; i < SAMPLES; i++) {
		uint8_t *pixels = random_pixels(stored_width, HEIGHT);
		struct packimg_sample sample = make_sample(pixels, stored_width, HEIGHT, i);
		struct deferred deferred;
		uint8_t *expected = apply_all(whole, &sample, 3, i % 3);
		uint8_t *found = apply_deferred(deferring, &sample, 3, i % 3, &deferred);

		assert_int_equal(deferred.width, shape.width);
		assert_int_equal(deferred.height, shape.height);
		seen = deferred.count > seen ? deferred.count : seen;
		if (memcmp(expected, found, shape.sample_size) != 0)
			fail_msg("'%s': sample %d is another where transforms are deferred", text,
				 (int)i);
		free(expected);
		free(found);
		free(pixels);
	}
	assert_int_equal(seen, changes);
	pipeline_free(whole);
	pipeline_free(deferring);
}

TEST(pixels)
{
	/* flips and colour transforms after a crop */
	expect_equal("random_resized_crop(24) hflip", WIDTH, 24, 0);
	expect_equal("random_resized_crop(24x20) hflip vflip(alternate) channels(4)", WIDTH, 24, 0);
	expect_equal("random_resized_crop(24) hflip color_jitter(0.4, 0.4, 0.4, 0.1)", WIDTH, 24,
		     4);
	expect_equal("resize(24x24) color_jitter(5, 9, 30, 0.5) random_grayscale(0.5)", WIDTH, 24,
		     5);
	expect_equal("resize(24x24) color_jitter(0:0, 0:0, 0:0) random_invert(1)", WIDTH, 24, 4);
	expect_equal("resize(24x24) random_invert random_solarize(100.5) random_posterize(3) "
		     "random_grayscale(0.2)",
		     WIDTH, 24, 4);
	expect_equal("resize(24x24) random_erasing(1) cutout(9, value=10:20:30) color_jitter(0.5)",
		     WIDTH, 24, 3);
	expect_equal("resize(24x24) hflip random_erasing(0.8, value=random) color_jitter(0, 0.5)",
		     WIDTH, 24, 2);
	expect_equal("resize(1x1) hflip random_erasing color_jitter(0, 0.5)", WIDTH, 1, 2);
	/* crops are deferred if the picture's size is known */
	expect_equal("resize(40x32) random_crop(24)", WIDTH, 40, 0);
	expect_equal("resize(32x32) random_crop(32, padding=4) hflip cutout(8)", WIDTH, 32, 1);
	expect_equal("resize(32x32) random_crop(32, padding=4x9, fill=1:2:3) vflip", WIDTH, 32, 0);
	expect_equal("resize(32x30) random_crop(64x84, padding=31x29, fill=reflect) hflip vflip",
		     WIDTH, 32, 0);
	expect_equal("resize(2x1) random_crop(3x1, padding=1x0, fill=reflect)", WIDTH, 2, 0);
	expect_equal("hflip", WIDTH, WIDTH, 0);
	expect_equal("color_jitter(0.3)", WIDTH, WIDTH, 1);
	expect_equal("", WIDTH, WIDTH, 0);
}

/* Crops of samples decoded at a smaller scale: the scale must be the same for every crop. */
TEST(scaled)
{
	fake_decoder.halve = true;
	for (unsigned size = 10; size < 17; size++) {
		char text[64];

		snprintf(text, sizeof(text), "resize(%ux%u) random_crop(7x5) hflip", size,
			 size * HEIGHT / WIDTH);
		expect_equal(text, WIDTH, size, 0);
	}
	expect_equal("random_resized_crop(9) random_crop(9, padding=4)", WIDTH, 9, 0);
	fake_decoder.halve = false;
}

TEST(not_deferred)
{
	/*
	 * transforms that are not deferred: a crop of pictures of unknown size, geometry before
	 * other transforms, effects that depend on neighbouring pixels
	 */
	expect_equal("resize(40) random_crop(24) hflip", WIDTH, 24, 0);
	expect_equal("random_crop(24) hflip color_jitter(0.3)", WIDTH, 24, 1);
	expect_equal("resize(32x32) hflip random_crop(24)", WIDTH, 32, 0);
	expect_equal("resize(32x32) color_jitter(0.3) hflip random_grayscale", WIDTH, 32, 1);
	expect_equal("resize(32x32) random_crop(24) gaussian_blur(3) random_grayscale", WIDTH, 24,
		     1);
	expect_equal("resize(32x32) color_jitter(0.3) random_equalize", WIDTH, 32, 0);
	expect_equal("resize(32x32) hflip rand_augment", WIDTH, 32, 0);
	/* defers as many of the last transforms as fit into the record */
	expect_equal(
		"resize(32x32) random_grayscale random_invert color_jitter(0.1, 0.1, 0.1, 0.1) "
		"cutout(3) cutout(4) random_erasing(1)",
		WIDTH, 32, 8);
	expect_equal("resize(32x32) hflip color_jitter(0.1, 0.1) color_jitter(0.1, 0.1, 0.1, 0.1) "
		     "color_jitter(0.1, 0.1, 0.1, 0.1)",
		     WIDTH, 32, 8);
}

/*
 * Each transform alone, with its required arguments, is deferred if and only if its row is marked
 * DEFERS.
 */
TEST(only_deferrable_transforms_are_deferred)
{
	static const char *const values[] = {
		[VALUE_SIZE] = "8",  [VALUE_EXTENT] = "3",  [VALUE_NUMBER] = "2",
		[VALUE_WHOLE] = "2", [VALUE_SPREAD] = "10",
	};

	for (const struct rule *rule = grammar_rules; rule->kind < TRANSFORM_PIXELS_COUNT; rule++) {
		const struct parameter *first = rule->parameters;
		char text[128], name[64];

		/* not for whole pictures of single samples: test_mosaic.c, test_patch_resize.c */
		if (rule->kind == TRANSFORM_MOSAIC || rule->kind == TRANSFORM_PATCH_RESIZE)
			continue;
		snprintf(text, sizeof(text), "resize(16x16) %s(%s)", rule->name,
			 first->required ? values[first->type] : "");
		snprintf(name, sizeof(name), "%s, ", rule->name);
		struct pipeline *pipeline = parse(text);
		bool marked = strstr(DEFERRABLE_TRANSFORMS, name);

		/* Batches differ in size. */
		bool refused = rule->kind == TRANSFORM_BUCKET_RESIZE;

		assert_int_equal(pipeline_defer(pipeline, NULL), refused ? -EINVAL : 0);
		if ((pipeline->delivered_transforms < pipeline->transform_count) != marked)
			fail_msg("%s is %sdeferred", text, marked ? "not " : "");
		pipeline_free(pipeline);
	}
}

TEST(refused)
{
	static const char *const texts[] = {"resize(8x8) normalize(imagenet) to(f16)",
					    "resize(8x8) to(f32)", "resize(8x8) layout(nchw)"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct pipeline *pipeline = parse(texts[i]);
		struct pipeline_error error;

		assert_int_equal(pipeline_defer(pipeline, &error), -EINVAL);
		assert_non_null(strstr(error.text, "leave normalize, to and layout out"));
		pipeline_free(pipeline);
	}
}

TEST(sizes_by_epoch)
{
	struct pipeline *pipeline = parse("resize(24x24@0;32x32@2) random_crop(16@0;20@1) hflip");
	uint8_t *pixels = random_pixels(WIDTH, HEIGHT);
	struct packimg_sample sample = make_sample(pixels, WIDTH, HEIGHT, 1);

	assert_int_equal(pipeline_defer(pipeline, NULL), 0);
	for (uint64_t epoch = 0; epoch < 4; epoch++) {
		struct pipeline_shape shape;
		struct deferred deferred;

		pipeline_shape(pipeline, epoch, &shape);
		assert_int_equal(shape.width, epoch < 2 ? 24 : 32);
		free(apply_deferred(pipeline, &sample, 1, epoch, &deferred));
		assert_int_equal(deferred.width, epoch < 1 ? 16 : 20);
	}
	assert_int_equal(pipeline_sample_size_max(pipeline), 32 * 32 * 3);
	free(pixels);
	pipeline_free(pipeline);
}

/*
 * Arbitrary bytes in the record: if they parse, the transforms can be applied; sanitizers check for
 * memory errors.
 */
TEST(damaged)
{
	static const uint32_t extremes[] = {0,          1,          2,          7,
					    8,          9,          4096,       0x7fffffff,
					    0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
					    ~0u,        0x46800000, 0x46800001, 0x10001};
	const uint32_t width = 5, height = 3;
	uint8_t picture[5 * 3 * 3] = {0};
	unsigned taken = 0;

	for (int i = 0; i < 200000; i++) {
		struct deferred deferred = {
			.width = 4, .height = 3, .count = random_below(&rng, 4)};
		struct deferred read;
		uint32_t words[sizeof(deferred) / 4];

		for (uint32_t k = 0; k < deferred.count; k++)
			deferred.changes[k] = (struct deferred_change){
				.kind = 1 + random_below(&rng, DEFERRED_KINDS), .factor = 0.5f};
		memcpy(words, &deferred, sizeof(words));
		for (uint32_t n = random_below(&rng, 4); n > 0; n--)
			words[random_below(&rng, 8 + 8 * deferred.count)] =
				extremes[random_below(&rng, sizeof(extremes) / sizeof(*extremes))];
		if (deferred_read(words, random_below(&rng, sizeof(words) + 1), width, height,
				  &read))
			continue;
		uint8_t *finished = malloc((size_t)read.width * read.height * 3);

		assert_non_null(finished);
		deferred_apply(&read, picture, width, height, 3, finished);
		free(finished);
		taken++;
	}
	assert_in_range(taken, 5000, 150000);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
