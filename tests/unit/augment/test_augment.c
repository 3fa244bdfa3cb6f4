/* Steps that change pixels, in pipelines: what is decided, where effects run among geometry, and into which forms they go. */
#include "augment_isa.h"
#include "draw.h"
#include "fake_decoder.h"
#include "plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WIDTH = 37, HEIGHT = 26 };

static struct transform_scratch *scratches[3];
static struct random_stream rng;
static uint8_t picture[HEIGHT * WIDTH * 3];

static int setup(void **state)
{
	random_init(&rng, 11, 0, 0, RANDOM_AUGMENT);
	for (int isa = 0; isa <= (int)augment_isa_supported(); isa++) {
		setenv("LOADERD_ISA", augment_isa_name((enum augment_isa)isa), 1);
		if (transform_scratch_new(&scratches[isa]) < 0)
			return -1;
	}
	unsetenv("LOADERD_ISA");
	for (size_t i = 0; i < sizeof(picture); i++)
		picture[i] = (uint8_t)random_u32(&rng);
	return 0;
}

static int teardown(void **state)
{
	for (int isa = 0; isa < 3; isa++)
		transform_scratch_free(scratches[isa]);
	return 0;
}

static struct transform *parse(const char *text)
{
	struct transform *transform = NULL;
	struct transform_error error;

	if (transform_parse(text, &transform, &error) < 0 ||
	    transform_fix_size(transform, WIDTH, HEIGHT, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return transform;
}

/* The finished sample, the same from every set and the second time. */
static uint8_t *apply(const struct transform *transform, uint64_t index,
		      struct transform_shape *ret_shape)
{
	struct packimg_sample sample = {.index = index,
					.data = picture,
					.data_size = sizeof(picture),
					.width = WIDTH,
					.height = HEIGHT,
					.codec = PACKIMG_CODEC_RAW,
					.channels = 3,
					.orientation = 1};
	struct packimg_error error;
	uint8_t *first = NULL;

	transform_shape(transform, 0, ret_shape);
	for (int isa = 0; isa <= (int)augment_isa_supported(); isa++)
		for (int again = 0; again < 2; again++) {
			uint8_t *output = malloc(ret_shape->sample_size);

			assert_non_null(output);
			if (transform_apply(transform, scratches[isa], &sample, 3, 0, output, NULL,
					    &error) < 0)
				fail_msg("%s", error.text);
			if (first)
				assert_memory_equal(output, first, ret_shape->sample_size);
			if (first)
				free(output);
			else
				first = output;
		}
	return first;
}

/* Two pipelines give the same for the same samples. */
static void expect_same(const char *text, const char *other_text)
{
	struct transform *transform = parse(text), *other_transform = parse(other_text);

	for (uint64_t index = 0; index < 8; index++) {
		struct transform_shape shape, other_shape;
		uint8_t *output = apply(transform, index, &shape);
		uint8_t *other = apply(other_transform, index, &other_shape);

		assert_int_equal(shape.width, other_shape.width);
		assert_int_equal(shape.height, other_shape.height);
		if (memcmp(output, other, shape.sample_size) != 0)
			fail_msg("'%s' and '%s' differ on sample %d", text, other_text, (int)index);
		free(output);
		free(other);
	}
	transform_free(transform);
	transform_free(other_transform);
}

static void order_is_kept(void **state)
{
	expect_same("random_invert(1)  random_invert(1)", "");
	expect_same("random_invert(1) resize(20x11) random_invert(1) random_invert(p=1)",
		    "random_invert(1) resize(20x11)");
	expect_same("random_invert(1) pad(3, fill=255) random_invert(1)", "pad(3, fill=0)");
	expect_same("pad(2, fill=9:8:7) random_invert(1) pad(2)",
		    "random_invert(1) pad(2, fill=246:247:248) pad(2)");
	/* A flip may change places with what acts on single pixels. */
	expect_same("random_invert(1) hflip(1)", "hflip(1) random_invert(1)");
	expect_same("resize(33x30) random_posterize(3, 1) vflip(1) center_crop(11)",
		    "resize(33x30) vflip(1) center_crop(11) random_posterize(bits=3, p=1)");
	expect_same("random_grayscale(p=1) hflip(1)",
		    "hflip(1) random_grayscale(1)");
}

static void without_chance_nothing_happens(void **state)
{
	expect_same("resize(24) color_jitter(0.4, 0.4, 0.4, 0.1, p=0) random_grayscale(0) "
		    "random_invert(0) "
		    "random_solarize(9, 0) random_posterize(1, 0) random_autocontrast(0) "
		    "random_equalize(0)",
		    "resize(24)");
	expect_same("color_jitter()", "");
	expect_same("random_posterize(8, 1)", "");
}

/* Every form of a finished sample holds the picture that bytes hold. */
static void forms_are_filled(void **state)
{
	static const char *const steps = "random_solarize(100, 1) random_equalize(1)";
	static const char *const sizes[] = {"", "resize(96x64)", "resize(300x200)"};

	for (unsigned i = 0; i < 3; i++) {
		struct transform_shape shape, other;
		char text[200];

		snprintf(text, sizeof(text), "%s %s", sizes[i], steps);
		struct transform *transform = parse(text);
		uint8_t *bytes = apply(transform, 1, &shape);
		size_t count = (size_t)shape.width * shape.height;

		transform_free(transform);
		for (int form = 0; form < 4; form++) {
			bool planar = form & 1;
			uint32_t channels = form & 2 ? 4 : 3;

			snprintf(text, sizeof(text), "%s %s to(f32) layout(%s) channels(%u)",
				 sizes[i], steps, planar ? "nchw" : "nhwc", channels);
			transform = parse(text);
			float *floats = (float *)(void *)apply(transform, 1, &other);

			for (size_t p = 0; p < count; p++)
				for (uint32_t c = 0; c < channels; c++) {
					float value = planar ? floats[c * count + p]
							     : floats[p * channels + c];
					float byte = c < 3 ? bytes[3 * p + c] : 0;

					assert_true(fabsf(value - byte / 255) < 1e-6f);
				}
			free(floats);
			transform_free(transform);
		}
		free(bytes);
	}
}

/* Draws the effects of a text's only step for many samples. */
static void draw(const char *text, uint64_t sample, struct effect_list *list)
{
	static struct transform *transform;
	static char known[256];
	struct random_stream random;

	if (strcmp(text, known) != 0) {
		transform_free(transform);
		transform = parse(text);
		snprintf(known, sizeof(known), "%s", text);
	}
	random_init(&random, 5, 0, sample, RANDOM_AUGMENT);
	list->count = 0;
	draw_effects(&transform->steps[0], WIDTH, HEIGHT, &random, list);
	assert_true(list->count <= draw_effects_max(&transform->steps[0]));
}

/*
 * Are counts what a uniform choice gives? Seeds are fixed, so this is decided once; the bound is five standard deviations of the
 * statistic above its mean.
 */
static void expect_uniform(const unsigned *counts, unsigned size)
{
	double total = 0, statistic = 0;

	for (unsigned i = 0; i < size; i++)
		total += counts[i];
	for (unsigned i = 0; i < size; i++)
		statistic +=
			(counts[i] - total / size) * (counts[i] - total / size) / (total / size);
	if (statistic > size - 1 + 5 * sqrt(2.0 * (size - 1)))
		fail_msg("chi-square is %g for %u classes", statistic, size);
}

static void jitter_is_uniform(void **state)
{
	enum { SAMPLES = 12000, BINS = 20 };
	static const double limits[4][2] = {{0.6, 1.4}, {0.5, 0.9}, {0, 3}, {-0.1, 0.1}};
	unsigned order[256] = {0}, bins[4][BINS] = {0}, orders[24], order_count = 0;
	struct effect_list list;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		unsigned code = 0;

		draw("color_jitter(0.4, contrast=0.5:0.9, saturation=2, hue=0.1)", sample, &list);
		assert_int_equal(list.count, 4);
		for (unsigned i = 0; i < 4; i++) {
			unsigned which = (unsigned)list.effects[i].kind - EFFECT_BRIGHTNESS;
			double at = (list.effects[i].factor - limits[which][0]) /
				    (limits[which][1] - limits[which][0]);

			assert_true(at >= 0 && at < 1);
			bins[which][(unsigned)(at * BINS)]++;
			code = code << 2 | which;
		}
		order[code]++;
	}
	for (unsigned code = 0; code < 256; code++)
		if (order[code]) {
			assert_true(order_count < 24);
			orders[order_count++] = order[code];
		}
	assert_int_equal(order_count, 24);
	expect_uniform(orders, 24);
	for (int i = 0; i < 4; i++)
		expect_uniform(bins[i], BINS);
	draw("color_jitter(hue=0.5)", 0, &list);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.effects[0].kind, EFFECT_HUE);
}

static void probability_is_met(void **state)
{
	static const struct {
		const char *text;
		double probability;
	} cases[] = {
		{"random_grayscale", 0.1},
		{"random_grayscale(0.2)", 0.2},
		{"random_invert", 0.5},
		{"random_solarize(128)", 0.5},
		{"random_solarize(128, 0.3)", 0.3},
		{"random_posterize(4, p=0.9)", 0.9},
		{"random_autocontrast", 0.5},
		{"random_equalize(0.75)", 0.75},
		{"color_jitter(0.4, p=0.8)", 0.8},
	};
	enum { SAMPLES = 4000 };
	struct effect_list list;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double p = cases[i].probability;
		unsigned acted = 0;

		for (uint64_t sample = 0; sample < SAMPLES; sample++) {
			draw(cases[i].text, sample, &list);
			acted += list.count > 0;
		}
		if (fabs(acted - p * SAMPLES) > 4 * sqrt(p * (1 - p) * SAMPLES))
			fail_msg("'%s' acted on %u of %d", cases[i].text, acted, SAMPLES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_is_kept),
		cmocka_unit_test(without_chance_nothing_happens),
		cmocka_unit_test(forms_are_filled),
		cmocka_unit_test(jitter_is_uniform),
		cmocka_unit_test(probability_is_met),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
