/*
 * How pipeline_apply() plans geometry: transforms are folded into few resizes, flips alternate, and
 * only the needed region is decoded, also at half scale.
 */
#include "format/augment/apply/geometry.h"
#include "tests/unit/augment/pipeline_test.h"
#include "tests/unit/augment/reference.h"

/* Common pipelines need one stage: one rectangle, one resize. */
TEST(geometry_is_folded)
{
	static const struct {
		const char *text;
		unsigned stages;
	} cases[] = {
		{"random_resized_crop(24) hflip", 1},
		{"hflip random_resized_crop(24) vflip", 1},
		{"resize(40) center_crop(32)", 1},
		{"resize(40) hflip random_crop(32)", 1},
		{"random_crop(32, padding=4) hflip", 1},
		{"pad(4) hflip random_crop(32) vflip", 1},
		{"center_crop(40) resize(20)", 1},
		{"resize(30x20) pad(4) center_crop(20)", 1},
		{"resize(20) resize(30)", 2},
		{"pad(2) resize(20)", 2},
		{"pad(2, fill=1) pad(2, fill=2)", 2},
		{"pad(2, fill=1) random_crop(8) pad(2, fill=1)", 1},
		/*
		 * reflection needs the whole picture, but a reflecting pad that is cropped away is
		 * dropped
		 */
		{"random_crop(32, padding=4, fill=reflect) hflip", 2},
		{"pad(4, fill=reflect) center_crop(64x48) resize(20) pad(2)", 2},
		{"pad(4, fill=reflect) pad(1)", 3},
	};
	struct geometry geometry;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pipeline *pipeline = parse(cases[i].text);

		assert_int_equal(geometry_make(pipeline, 64, 48, 1, 2, 3, NULL, &geometry, NULL),
				 0);
		if (geometry.stage_count != cases[i].stages)
			fail_msg("'%s' takes %u stages", cases[i].text, geometry.stage_count);
		pipeline_free(pipeline);
	}
}

/* Makes the geometry of the image with this name; "" means no name. */
static void make_named(const char *text, const char *name, struct geometry *geometry)
{
	struct pipeline *pipeline = parse(text);
	const struct geometry_subject subject = {.value = pipeline_value_bit(pipeline, name)};

	assert_int_equal(geometry_make(pipeline, 64, 48, 1, 2, 3, &subject, geometry, NULL), 0);
	pipeline_free(pipeline);
}

/*
 * A step with a name does not affect other images. Its draws depend neither on other steps nor on
 * other names.
 */
TEST(named_steps_change_only_their_image)
{
	static const char plain[] = "random_crop(32) hflip random_erasing(p=1)";
	static const char named[] =
		"b: color_jitter(0.9) random_crop(32) a: color_jitter(0.4) hflip "
		"random_erasing(p=1) a, b: random_adjust_sharpness(0.3, p=1)";
	struct geometry without, with, other;

	make_named(plain, "", &without);
	make_named(named, "", &with);
	assert_int_equal(with.stage_count, 1);
	assert_memory_equal(with.steps, without.steps, without.step_count * sizeof(*with.steps));
	assert_int_equal(with.step_count, without.step_count);
	assert_int_equal(with.effects.count, 1);
	assert_memory_equal(&with.effects.effects[0].erase, &without.effects.effects[0].erase,
			    sizeof(struct erase));
	/* the named image has the same draws in the steps without a name */
	make_named(named, "a", &with);
	assert_memory_equal(with.steps, without.steps, without.step_count * sizeof(*with.steps));
	assert_int_equal(with.effects.count, 3);
	assert_int_equal(with.effects.effects[2].kind, EFFECT_SHARPNESS);
	assert_memory_equal(&with.effects.effects[1].erase, &without.effects.effects[0].erase,
			    sizeof(struct erase));
	make_named("a: color_jitter(0.4)", "a", &other);
	assert_true(other.effects.effects[0].factor == with.effects.effects[0].factor);
	make_named("c: color_jitter(0.4)", "c", &other);
	assert_true(other.effects.effects[0].factor != with.effects.effects[0].factor);
	make_named("color_jitter(0.4)", "", &other);
	assert_true(other.effects.effects[0].factor != with.effects.effects[0].factor);
}

/* Named steps are not deferred: clients do not know the names. */
TEST(steps_that_name_images_are_not_deferred)
{
	struct pipeline *pipeline = parse("resize(40x40) random_crop(32) a: random_erasing");

	assert_int_equal(pipeline_defer(pipeline, NULL), 0);
	assert_int_equal(pipeline->delivered_transforms, 3);
	pipeline_free(pipeline);
	pipeline = parse("resize(40x40) random_crop(32) random_erasing");
	assert_int_equal(pipeline_defer(pipeline, NULL), 0);
	assert_int_equal(pipeline->delivered_transforms, 1);
	pipeline_free(pipeline);
}

/*
 * Epoch 0 mirrors half of the samples, selected by the seed. Each later epoch mirrors those that
 * the epoch before it did not.
 */
TEST(flips_alternate)
{
	enum { SAMPLES = 1000 };
	struct pipeline *pipeline = parse("hflip(alternate) vflip(alternate)");
	unsigned flipped = 0, alike = 0, again = 0;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		struct geometry first, geometry;

		assert_int_equal(geometry_make(pipeline, 8, 8, 1, 0, sample, NULL, &first, NULL),
				 0);
		for (uint64_t epoch = 1; epoch < 5; epoch++) {
			assert_int_equal(geometry_make(pipeline, 8, 8, 1, epoch, sample, NULL,
						       &geometry, NULL),
					 0);
			assert_int_equal(geometry.stages[0].x.reverse,
					 first.stages[0].x.reverse ^ (epoch & 1));
			assert_int_equal(geometry.stages[0].y.reverse,
					 first.stages[0].y.reverse ^ (epoch & 1));
		}
		assert_int_equal(geometry_make(pipeline, 8, 8, 2, 0, sample, NULL, &geometry, NULL),
				 0);
		flipped += first.stages[0].x.reverse;
		alike += first.stages[0].x.reverse == first.stages[0].y.reverse;
		again += first.stages[0].x.reverse == geometry.stages[0].x.reverse;
	}
	/* 95 is six standard deviations of 1000 coin flips */
	assert_in_range(flipped, SAMPLES / 2 - 95, SAMPLES / 2 + 95);
	assert_in_range(alike, SAMPLES / 2 - 95, SAMPLES / 2 + 95);
	assert_in_range(again, SAMPLES / 2 - 95, SAMPLES / 2 + 95);
	pipeline_free(pipeline);
}

/* A picture that random_zoom_out would make too large is refused, with the remedy. */
TEST(zoomed_pictures_are_limited)
{
	struct pipeline *pipeline = parse("random_zoom_out(side_range=50:50, p=1) resize(20)");
	struct pipeline_error error;
	struct geometry geometry;

	assert_int_equal(geometry_make(pipeline, 300, 20, 1, 2, 3, NULL, &geometry, &error), 0);
	assert_int_equal(geometry.stages[0].x.count, 15000);
	assert_int_equal(geometry.stages[0].y.count, 1000);
	assert_int_equal(geometry_make(pipeline, 20, 1400, 1, 2, 3, NULL, &geometry, &error),
			 -EINVAL);
	assert_string_equal(
		error.text,
		"at byte 0: random_zoom_out makes a side of more than 65535 pixels of 20 x 1400: "
		"put a resize before it, or give it a smaller side_range");
	assert_int_equal(geometry_make(pipeline, 1400, 20, 1, 2, 3, NULL, &geometry, &error),
			 -EINVAL);
	assert_non_null(strstr(error.text, "65535 pixels of 1400 x 20: put"));
	pipeline_free(pipeline);
}

/* The decoder is asked only for the pixels that the sample depends on. */
TEST(regions_are_tight)
{
	uint8_t *pixels = random_pixels(100, 80);
	struct packimg_sample sample = make_sample(pixels, 100, 80, 1);
	struct pipeline *pipeline = parse("center_crop(30x20)");

	free(apply_all(pipeline, &sample, 1, 0));
	assert_int_equal(fake_decoder.region.x, 35);
	assert_int_equal(fake_decoder.region.y, 30);
	assert_int_equal(fake_decoder.region.width, 30);
	assert_int_equal(fake_decoder.region.height, 20);
	assert_int_equal(fake_decoder.hint_width, 0);
	pipeline_free(pipeline);
	/*
	 * The image is resized to 50x40 and its middle 20x20 is cropped. This needs source columns
	 * 30..70, plus one column on either side for the filter.
	 */
	pipeline = parse("resize(40) center_crop(20)");
	free(apply_all(pipeline, &sample, 1, 0));
	assert_int_equal(fake_decoder.region.x, 29);
	assert_int_equal(fake_decoder.region.width, 42);
	assert_int_equal(fake_decoder.region.y, 19);
	assert_int_equal(fake_decoder.region.height, 42);
	assert_int_equal(fake_decoder.hint_width, 21);
	pipeline_free(pipeline);
	/* The resize filter reads nothing outside a preceding crop. */
	pipeline = parse("center_crop(40) resize(10)");
	free(apply_all(pipeline, &sample, 1, 0));
	assert_int_equal(fake_decoder.region.x, 30);
	assert_int_equal(fake_decoder.region.width, 40);
	assert_int_equal(fake_decoder.hint_width, 10);
	pipeline_free(pipeline);
	/* If no pixel of the image is visible, nothing is decoded. */
	fake_decoder.calls = 0;
	pipeline = parse("pad(200, fill=5) random_crop(150) center_crop(2)");
	for (uint64_t seed = 0; seed < 64; seed++) {
		uint8_t *got = apply_all(pipeline, &sample, seed, 0);

		free(got);
	}
	assert_true(fake_decoder.calls < 64 * 3);
	pipeline_free(pipeline);
	free(pixels);
}

/*
 * On a ramp, half-scale and full-scale decodes give equal results only if all coordinates are
 * right.
 */
TEST(scaled_decodes_fit)
{
	uint32_t width = 403, height = 301;
	uint8_t *pixels = random_pixels(width, height);
	struct pipeline *pipeline = parse("random_resized_crop(37x29, scale=0.2:1) hflip");
	struct pipeline_shape shape;
	unsigned halved = 0;

	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++) {
			uint8_t *pixel = pixels + ((size_t)y * width + x) * 3;

			pixel[0] = (uint8_t)(x / 2);
			pixel[1] = (uint8_t)(y * 3 / 4);
			pixel[2] = (uint8_t)((x + y) / 4);
		}
	pipeline_shape(pipeline, 0, &shape);
	for (uint64_t index = 0; index < 40; index++) {
		struct packimg_sample sample = make_sample(pixels, width, height, index);
		struct reference expected;

		fake_decoder.halve = true;
		fake_decoder.margin = (uint32_t)index % 3;
		uint8_t *got = apply_all(pipeline, &sample, 1, 0);

		halved += fake_decoder.halved;
		assert_int_equal(
			reference_run(pipeline, pixels, width, height, 1, 0, index, &expected), 0);
		for (size_t i = 0; i < shape.sample_size; i++)
			if (abs(got[i] - expected.pixels[i]) > 2)
				fail_msg("sample %u, byte %zu: %u, at full scale %u",
					 (unsigned)index, i, got[i], expected.pixels[i]);
		/* Pixels that the decoder returns beyond the region must not affect the result. */
		fake_decoder.margin += 7;
		uint8_t *again = apply_all(pipeline, &sample, 1, 0);

		assert_memory_equal(got, again, shape.sample_size);
		free(again);
		free(got);
		free(expected.pixels);
	}
	assert_true(halved > 20);
	fake_decoder.halve = false;
	fake_decoder.margin = 0;
	pipeline_free(pipeline);
	free(pixels);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
