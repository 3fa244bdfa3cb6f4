/* transform_apply against naive.c, over a decoder that returns every kind of rectangle (fake_decoder.h). */
#include "augment_isa.h"
#include "fake_decoder.h"
#include "naive.h"
#include "plan.h"
#include "random.h"
#include "store.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
	CANARY = 64,	/* bytes, and a line */
	EXTRA_MAX = 24, /* pixels that planes may need beyond */
};

static struct random_stream rng;
static struct transform_scratch *scratches[AUGMENT_ISA_COUNT];
static size_t misalignment; /* of the next outputs, to a line */

static struct transform *parse(const char *text)
{
	struct transform *transform = NULL;
	struct transform_error error;

	if (transform_parse(text, &transform, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return transform;
}

static int setup(void **state)
{
	random_init(&rng, 5, 0, 0, RANDOM_AUGMENT);
	for (int isa = 0; isa <= (int)augment_isa_supported(); isa++) {
		setenv("LOADERD_ISA", augment_isa_name((enum augment_isa)isa), 1);
		if (transform_scratch_new(&scratches[isa]) < 0)
			return -1;
	}
	unsetenv("LOADERD_ISA");
	return 0;
}

static int teardown(void **state)
{
	for (int isa = 0; isa < AUGMENT_ISA_COUNT; isa++)
		transform_scratch_free(scratches[isa]);
	return 0;
}

static struct packimg_sample make_sample(uint8_t *pixels, uint32_t width, uint32_t height,
					 uint64_t index)
{
	return (struct packimg_sample){.index = index,
				       .data = pixels,
				       .data_size = width * height * 3,
				       .width = width,
				       .height = height,
				       .codec = PACKIMG_CODEC_RAW,
				       .channels = 3,
				       .orientation = 1};
}

static uint8_t *random_pixels(uint32_t width, uint32_t height)
{
	uint8_t *pixels = malloc((size_t)width * height * 3);

	assert_non_null(pixels);
	for (size_t i = 0; i < (size_t)width * height * 3; i++)
		pixels[i] = (uint8_t)random_u32(&rng);
	return pixels;
}

/* What was said ahead is what was asked for since, in so many calls, or, where planes were thought of, a little more; for two of a kind. */
static void expect_ahead(unsigned calls)
{
	const struct packimg_region *said = &fake_decoder.ahead.region,
				    *asked = &fake_decoder.region;

	assert_int_equal(fake_decoder.ahead_count, 2 * calls);
	if (calls == 0)
		return;
	assert_int_equal(fake_decoder.ahead.size_hint_width == 0, fake_decoder.hint_width == 0);
	assert_in_range(asked->x - said->x, 0, EXTRA_MAX);
	assert_in_range(asked->y - said->y, 0, EXTRA_MAX);
	assert_in_range(said->x + said->width - asked->x - asked->width, 0, EXTRA_MAX);
	assert_in_range(said->y + said->height - asked->y - asked->height, 0, EXTRA_MAX);
}

/* Applies with one set and gives the sample, between canaries that were checked. */
static uint8_t *apply(const struct transform *transform, int isa,
		      const struct packimg_sample *sample, uint64_t seed, uint64_t epoch)
{
	struct transform_shape shape;
	struct packimg_error error;
	struct transform_times times = {0};
	struct packimg_sample next[] = {*sample, *sample, *sample};

	next[1].codec = next[2].codec = PACKIMG_CODEC_JPEG; /* of others nothing is said ahead */
	transform_shape(transform, epoch, &shape);
	size_t size = (shape.sample_size + 3 * CANARY) / CANARY * CANARY;
	uint8_t *block = aligned_alloc(CANARY, size), *output = block + CANARY + misalignment;

	assert_non_null(block);
	memset(block, 0xc3, size);
	assert_int_equal(transform_ahead(transform, scratches[isa], next, 2, seed, epoch), 1);
	assert_int_equal(fake_decoder.ahead_count, 0); /* one alone gains nothing */
	assert_int_equal(transform_ahead(transform, scratches[isa], next, 3, seed, epoch), 2);
	unsigned calls = fake_decoder.calls;
	int r = transform_apply(transform, scratches[isa], sample, seed, epoch, output, &times,
				&error);

	if (r < 0)
		fail_msg("transform_apply: %d, %s", r, error.text);
	expect_ahead(fake_decoder.calls - calls);
	for (uint8_t *byte = block; byte < block + size; byte++)
		if ((byte < output || byte >= output + shape.sample_size) && *byte != 0xc3)
			fail_msg("transform_apply wrote outside the sample");
	memmove(block, output, shape.sample_size);
	return block;
}

/* The same bytes from every set, after whatever came before. */
static uint8_t *apply_all(const struct transform *transform, const struct packimg_sample *sample,
			  uint64_t seed, uint64_t epoch)
{
	struct transform_shape shape;
	uint8_t *first = apply(transform, 0, sample, seed, epoch);

	transform_shape(transform, epoch, &shape);
	for (int isa = 1; isa <= (int)augment_isa_supported(); isa++) {
		uint8_t *other = apply(transform, isa, sample, seed, epoch);

		if (memcmp(first, other, shape.sample_size) != 0)
			fail_msg("%s differs from c", augment_isa_name((enum augment_isa)isa));
		free(other);
	}
	return first;
}

/* Step by step and folded: equal where pixels are only moved, within a rounding for each resize. */
static void compare(const char *text, const struct transform *transform, uint32_t width,
		    uint32_t height, uint64_t epoch)
{
	uint64_t seed = random_u32(&rng), index = random_u32(&rng);
	uint8_t *pixels = random_pixels(width, height);
	struct packimg_sample sample = make_sample(pixels, width, height, index);
	struct transform_shape shape;
	struct naive expected;
	uint64_t sum = 0;

	assert_int_equal(naive_run(transform, pixels, width, height, seed, epoch, index, &expected),
			 0);
	transform_shape(transform, epoch, &shape);
	assert_int_equal(shape.width, expected.width);
	assert_int_equal(shape.height, expected.height);
	uint8_t *got = apply_all(transform, &sample, seed, epoch);

	for (size_t i = 0; i < shape.sample_size; i++) {
		int difference = abs(got[i] - expected.pixels[i]);

		if (difference > (int)expected.resizes)
			fail_msg("'%s' on %ux%u: byte %zu is %u, step by step it is %u", text,
				 width, height, i, got[i], expected.pixels[i]);
		sum += (uint64_t)difference;
	}
	/* On noise; 6 bits between the passes make 0.02 of it, weights of 14 bits up to 0.08 for filters of 900 taps. */
	if ((double)sum > 0.1 * expected.resizes * (double)shape.sample_size + 3)
		fail_msg("'%s' on %ux%u: mean difference %g", text, width, height,
			 (double)sum / (double)shape.sample_size);
	free(got);
	free(expected.pixels);
	free(pixels);
}

static void single_steps(void **state)
{
	static const char *const texts[] = {
		"random_resized_crop(24)",
		"random_resized_crop(31x17, scale=0.5:1, ratio=1:1)",
		"random_resized_crop(9, scale=0.9:1, ratio=5:6)", /* mostly the fallback */
		"random_resized_crop(9, scale=0.9:1, ratio=0.1:0.11)",
		"resize(20)",
		"resize(7x33)",
		"center_crop(12)",
		"center_crop(11x40)",
		"center_crop(80)",
		"pad(3)",
		"pad(2x5, fill=9:200:31)",
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
			struct transform *transform = parse(texts[i]);
			uint32_t width = 12 + random_below(&rng, 60),
				 height = 12 + random_below(&rng, 60);

			fake_decoder.margin = j % 3 * 5;
			assert_int_equal(transform_fix_size(transform, width, height, NULL), 0);
			compare(texts[i], transform, width, height, j);
			transform_free(transform);
		}
	fake_decoder.margin = 0;
}

static void composed_steps(void **state)
{
	static const char *const steps[] = {
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
	};
	unsigned done = 0;

	for (unsigned i = 0; i < 900; i++) {
		char text[512] = "";
		unsigned count = 1 + random_below(&rng, 6);
		uint32_t width = 1 + random_below(&rng, 70), height = 1 + random_below(&rng, 70);
		uint32_t final_width, final_height;

		for (unsigned j = 0; j < count; j++) {
			strcat(text, steps[random_below(&rng, sizeof(steps) / sizeof(*steps))]);
			strcat(text, " ");
		}
		struct transform *transform = NULL;

		/* Some do not fit into what comes before them. */
		if (transform_parse(text, &transform, NULL) < 0)
			continue;
		fake_decoder.margin = random_below(&rng, 2) * 3;
		if (transform_fix_size(transform, width, height, NULL) == 0 &&
		    steps_size(transform, 0, width, height, &final_width, &final_height, NULL) ==
			    0) {
			compare(text, transform, width, height, i);
			done++;
		}
		transform_free(transform);
	}
	fake_decoder.margin = 0;
	assert_true(done > 500);
}

/* Common pipelines are one stage: one rectangle, one resize. */
static void geometry_is_folded(void **state)
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
		/* what is reflected is whole; nothing is where it does not show */
		{"random_crop(32, padding=4, fill=reflect) hflip", 2},
		{"pad(4, fill=reflect) center_crop(64x48) resize(20) pad(2)", 2},
		{"pad(4, fill=reflect) pad(1)", 3},
	};
	struct plan plan;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct transform *transform = parse(cases[i].text);

		assert_int_equal(plan_make(transform, 64, 48, 1, 2, 3, &plan, NULL), 0);
		if (plan.stage_count != cases[i].stages)
			fail_msg("'%s' takes %u stages", cases[i].text, plan.stage_count);
		transform_free(transform);
	}
}

/* Half of the samples are mirrored in epoch 0, which ones depends on the seed; in each epoch the others are. */
static void flips_alternate(void **state)
{
	enum { SAMPLES = 1000 };
	struct transform *transform = parse("hflip(alternate) vflip(alternate)");
	unsigned flipped = 0, alike = 0, again = 0;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		struct plan first, plan;

		assert_int_equal(plan_make(transform, 8, 8, 1, 0, sample, &first, NULL), 0);
		for (uint64_t epoch = 1; epoch < 5; epoch++) {
			assert_int_equal(plan_make(transform, 8, 8, 1, epoch, sample, &plan, NULL),
					 0);
			assert_int_equal(plan.stages[0].x.reverse,
					 first.stages[0].x.reverse ^ (epoch & 1));
			assert_int_equal(plan.stages[0].y.reverse,
					 first.stages[0].y.reverse ^ (epoch & 1));
		}
		assert_int_equal(plan_make(transform, 8, 8, 2, 0, sample, &plan, NULL), 0);
		flipped += first.stages[0].x.reverse;
		alike += first.stages[0].x.reverse == first.stages[0].y.reverse;
		again += first.stages[0].x.reverse == plan.stages[0].x.reverse;
	}
	/* six standard deviations of 1000 coins are 95 */
	assert_in_range(flipped, SAMPLES / 2 - 95, SAMPLES / 2 + 95);
	assert_in_range(alike, SAMPLES / 2 - 95, SAMPLES / 2 + 95);
	assert_in_range(again, SAMPLES / 2 - 95, SAMPLES / 2 + 95);
	transform_free(transform);
}

/* Only what the sample depends on is asked of the decoder. */
static void regions_are_tight(void **state)
{
	uint8_t *pixels = random_pixels(100, 80);
	struct packimg_sample sample = make_sample(pixels, 100, 80, 1);
	struct transform *transform = parse("center_crop(30x20)");

	free(apply_all(transform, &sample, 1, 0));
	assert_int_equal(fake_decoder.region.x, 35);
	assert_int_equal(fake_decoder.region.y, 30);
	assert_int_equal(fake_decoder.region.width, 30);
	assert_int_equal(fake_decoder.region.height, 20);
	assert_int_equal(fake_decoder.hint_width, 0);
	transform_free(transform);
	/* 100x80 to 50x40, the middle 20x20: source columns 30..70 and one more step on either side. */
	transform = parse("resize(40) center_crop(20)");
	free(apply_all(transform, &sample, 1, 0));
	assert_int_equal(fake_decoder.region.x, 29);
	assert_int_equal(fake_decoder.region.width, 42);
	assert_int_equal(fake_decoder.region.y, 19);
	assert_int_equal(fake_decoder.region.height, 42);
	assert_int_equal(fake_decoder.hint_width, 21);
	transform_free(transform);
	/* A crop's edge is an edge: nothing beyond it is read, whatever the filter's support. */
	transform = parse("center_crop(40) resize(10)");
	free(apply_all(transform, &sample, 1, 0));
	assert_int_equal(fake_decoder.region.x, 30);
	assert_int_equal(fake_decoder.region.width, 40);
	assert_int_equal(fake_decoder.hint_width, 10);
	transform_free(transform);
	/* Nothing of the image shows: nothing is decoded. */
	fake_decoder.calls = 0;
	transform = parse("pad(200, fill=5) random_crop(150) center_crop(2)");
	for (uint64_t seed = 0; seed < 64; seed++) {
		uint8_t *got = apply_all(transform, &sample, seed, 0);

		free(got);
	}
	assert_true(fake_decoder.calls < 64 * 3);
	transform_free(transform);
	free(pixels);
}

/* On a ramp a half-scale decode gives what the full one does, if every coordinate is right. */
static void scaled_decodes_fit(void **state)
{
	uint32_t width = 403, height = 301;
	uint8_t *pixels = random_pixels(width, height);
	struct transform *transform = parse("random_resized_crop(37x29, scale=0.2:1) hflip");
	struct transform_shape shape;
	unsigned halved = 0;

	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++) {
			uint8_t *pixel = pixels + ((size_t)y * width + x) * 3;

			pixel[0] = (uint8_t)(x / 2);
			pixel[1] = (uint8_t)(y * 3 / 4);
			pixel[2] = (uint8_t)((x + y) / 4);
		}
	transform_shape(transform, 0, &shape);
	for (uint64_t index = 0; index < 40; index++) {
		struct packimg_sample sample = make_sample(pixels, width, height, index);
		struct naive expected;

		fake_decoder.halve = true;
		fake_decoder.margin = (uint32_t)index % 3;
		uint8_t *got = apply_all(transform, &sample, 1, 0);

		halved += fake_decoder.halved;
		assert_int_equal(
			naive_run(transform, pixels, width, height, 1, 0, index, &expected), 0);
		for (size_t i = 0; i < shape.sample_size; i++)
			if (abs(got[i] - expected.pixels[i]) > 2)
				fail_msg("sample %u, byte %zu: %u, at full scale %u",
					 (unsigned)index, i, got[i], expected.pixels[i]);
		/* What the decoder returns beyond the region must not change a bit. */
		fake_decoder.margin += 7;
		uint8_t *again = apply_all(transform, &sample, 1, 0);

		assert_memory_equal(got, again, shape.sample_size);
		free(again);
		free(got);
		free(expected.pixels);
	}
	assert_true(halved > 20);
	fake_decoder.halve = false;
	fake_decoder.margin = 0;
	transform_free(transform);
	free(pixels);
}

static double from_f16(uint16_t half)
{
	int exponent = half >> 10 & 31;
	double fraction = half & 0x3ff;
	double value = exponent == 0	? ldexp(fraction, -24)
		       : exponent == 31 ? INFINITY
					: ldexp(1024 + fraction, exponent - 25);

	return half & 0x8000 ? -value : value;
}

static double from_bf16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

/* The value lies between the midpoints to both neighbours; on a midpoint the even one is taken. */
static void check_nearest(double value, uint16_t half, double (*decode)(uint16_t))
{
	double chosen = decode(half), error = fabs(chosen - value);

	for (int side = -1; side <= 1; side += 2) {
		uint16_t magnitude = half & 0x7fff;

		if (magnitude == 0 && side < 0)
			continue;
		double neighbour = decode((uint16_t)((half & 0x8000) | (magnitude + side)));

		if (isinf(neighbour))
			continue;
		double other = fabs(neighbour - value);

		if (other < error || (other == error && (half & 1)))
			fail_msg("%.17g became %.17g, but %.17g is nearer (or even)", value, chosen,
				 neighbour);
	}
}

static void narrow_floats_are_nearest(void **state)
{
	/* Every half, the midpoint after it, and a little to either side of that. */
	for (uint32_t half = 0; half < 0x7bff; half++) {
		double low = from_f16((uint16_t)half),
		       middle = (low + from_f16((uint16_t)(half + 1))) / 2;
		double values[] = {low, middle, nextafterf((float)middle, 0),
				   nextafterf((float)middle, 1e9f)};

		for (int i = 0; i < 4; i++) {
			check_nearest(values[i], store_f16((float)values[i]), from_f16);
			check_nearest(-values[i], store_f16((float)-values[i]), from_f16);
		}
	}
	assert_int_equal(store_f16(65519.996f), 0x7bff);
	assert_int_equal(store_f16(65520.0f), 0x7c00);
	assert_int_equal(store_f16(-1e9f), 0xfc00);
	for (int i = 0; i < 200000; i++) {
		float value = ldexpf(random_float(&rng) * 2 - 1, (int)random_below(&rng, 60) - 30);
		uint32_t bits;

		if (i % 2) { /* an exact midpoint */
			memcpy(&bits, &value, sizeof(bits));
			bits = (bits & 0xffff0000) | 0x8000;
			memcpy(&value, &bits, sizeof(value));
		}
		check_nearest((double)value, store_bf16(value), from_bf16);
	}
}

/* An element of a finished sample as a number. */
static double element_at(const struct transform_shape *shape, const uint8_t *sample, uint32_t x,
			 uint32_t y, uint32_t c)
{
	size_t at = shape->layout == TRANSFORM_NHWC
			    ? ((size_t)y * shape->width + x) * shape->channels + c
			    : ((size_t)c * shape->height + y) * shape->width + x;
	uint16_t half;
	float value;

	switch (shape->element) {
	case TRANSFORM_U8:
		return sample[at];
	case TRANSFORM_F32:
		memcpy(&value, sample + 4 * at, sizeof(value));
		return (double)value;
	default:
		memcpy(&half, sample + 2 * at, sizeof(half));
		return shape->element == TRANSFORM_F16 ? from_f16(half) : from_bf16(half);
	}
}

static void check_form(const char *geometry, const char *type, const char *layout,
		       const char *channels, bool normalize, uint32_t width, uint32_t height)
{
	char text[256];
	bool bytes = strcmp(type, "u8") == 0;
	/* Of a value of at most 3: 4 units of single precision, half a unit of the narrow types. */
	double tolerance = bytes		      ? 0
			   : strcmp(type, "f32") == 0 ? 1e-6
			   : strcmp(type, "f16") == 0 ? 1.01e-3
						      : 8e-3;
	static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
	uint8_t *pixels = random_pixels(width, height);
	struct packimg_sample sample = make_sample(pixels, width, height, random_u32(&rng));
	struct transform_shape shape, plain_shape;
	struct transform *plain = parse(geometry);

	snprintf(text, sizeof(text), "%s to(%s) layout(%s) channels(%s) %s", geometry, type, layout,
		 channels, normalize ? "normalize(imagenet)" : "");
	struct transform *transform = parse(text);

	assert_int_equal(transform_fix_size(transform, width, height, NULL), 0);
	assert_int_equal(transform_fix_size(plain, width, height, NULL), 0);
	transform_shape(transform, 0, &shape);
	transform_shape(plain, 0, &plain_shape);
	uint8_t *got = apply_all(transform, &sample, 1, 0),
		*expected = apply_all(plain, &sample, 1, 0);

	for (uint32_t y = 0; y < shape.height; y++)
		for (uint32_t x = 0; x < shape.width; x++)
			for (uint32_t c = 0; c < shape.channels; c++) {
				double value =
					c < 3 ? element_at(&plain_shape, expected, x, y, c) : 0;

				if (!bytes && c < 3)
					value = normalize ? (value / 255 - mean[c]) / std[c]
							  : value / 255;
				double have = element_at(&shape, got, x, y, c);

				if (!(fabs(have - value) <= tolerance))
					fail_msg("'%s': x %u, y %u, channel %u is %.9g, not %.9g",
						 text, x, y, c, have, value);
			}
	free(got);
	free(expected);
	free(pixels);
	transform_free(plain);
	transform_free(transform);
}

static void forms_hold_the_same_picture(void **state)
{
	static const char *const types[] = {"u8", "f16", "bf16", "f32"};
	static const char *const geometries[] = {"random_resized_crop(%u) hflip",
						 "random_crop(%u, padding=3) vflip",
						 "resize(%u) pad(2, fill=4:5:6)", "hflip(1)",
						 "pad(1) random_crop(%u, 1, fill=reflect) hflip"};

	for (uint32_t size = 1; size < 70; size += size < 40 ? 1 : 7)
		for (unsigned form = 0; form < 32; form++) {
			char geometry[128];

			if (form / 16 && types[form % 4][0] == 'u')
				continue;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
			snprintf(geometry, sizeof(geometry), geometries[(size + form) % 5], size);
#pragma GCC diagnostic pop
			check_form(geometry, types[form % 4], form / 4 % 2 ? "nchw" : "nhwc",
				   form / 8 % 2 ? "4" : "3", form / 16, size, size + form % 3);
		}
}

/* Samples large enough to go past the cache, at every alignment. */
static void large_samples(void **state)
{
	static const char *const geometries[] = {"random_resized_crop(160) hflip",
						 "random_resized_crop(161x150)",
						 "hflip(1)",
						 "vflip(1)",
						 "",
						 "pad(8x0, fill=9)",
						 "random_crop(160x150, padding=7, fill=reflect)",
						 "center_crop(160x150)"};

	for (unsigned i = 0; i < sizeof(geometries) / sizeof(geometries[0]); i++)
		for (misalignment = 0; misalignment < 64;
		     misalignment += 1 + misalignment % 7 * 3) {
			struct transform *transform = parse(geometries[i]);

			assert_int_equal(transform_fix_size(transform, 160, 150, NULL), 0);
			compare(geometries[i], transform, 160, 150, 0);
			transform_free(transform);
			check_form(geometries[i], "f16", misalignment % 2 ? "nchw" : "nhwc",
				   misalignment % 3 ? "3" : "4", true, 160, 150);
		}
	misalignment = 0;
}

/* Bytes depend on seed, epoch and index; all else is history. */
static void samples_are_repeatable(void **state)
{
	struct transform *transform = parse("random_resized_crop(24@0;28@3) hflip");
	uint8_t *pixels = random_pixels(64, 48);
	struct packimg_sample sample = make_sample(pixels, 64, 48, 9),
			      other = make_sample(pixels, 64, 48, 10);
	uint8_t *first = apply_all(transform, &sample, 1, 0);
	uint8_t *others[] = {apply_all(transform, &sample, 2, 0),
			     apply_all(transform, &sample, 1, 1),
			     apply_all(transform, &other, 1, 0)};
	uint8_t *again = apply_all(transform, &sample, 1, 0);
	struct transform_shape shape;

	transform_shape(transform, 0, &shape);
	assert_memory_equal(first, again, shape.sample_size);
	for (int i = 0; i < 3; i++) {
		assert_memory_not_equal(first, others[i], shape.sample_size);
		free(others[i]);
	}
	compare("progressive", transform, 64, 48, 2);
	compare("progressive", transform, 64, 48, 3);
	free(first);
	free(again);
	free(pixels);
	transform_free(transform);
}

static void expect_failure(const struct transform *transform, const struct packimg_sample *sample,
			   int result, const char *words)
{
	struct packimg_error error = {""};
	uint8_t output[64 * 64 * 3];

	assert_int_equal(
		transform_apply(transform, scratches[0], sample, 1, 0, output, NULL, &error),
		result);
	if (!strstr(error.text, words))
		fail_msg("\"%s\" does not say \"%s\"", error.text, words);
	assert_int_equal(transform_apply(transform, scratches[0], sample, 1, 0, output, NULL, NULL),
			 result);
}

static void failures_are_explained(void **state)
{
	uint8_t *pixels = random_pixels(20, 10);
	struct packimg_sample sample = make_sample(pixels, 20, 10, 77);
	struct transform *transform = parse("random_crop(16)");
	const double mean[3] = {1, 2, 3};

	expect_failure(transform, &sample, -EINVAL,
		       "sample 77: at byte 0: random_crop(16x16) does not fit");
	transform_free(transform);
	transform = parse("hflip");
	expect_failure(transform, &sample, -EINVAL, "does not set a size");
	assert_int_equal(transform_fix_size(transform, 10, 20, NULL), 0);
	expect_failure(transform, &sample, -EINVAL,
		       "is 20 x 10 pixels, but this pipeline was fixed to 10 x 20");
	transform_free(transform);
	transform = parse("resize(8x8) to(f32) normalize(dataset)");
	expect_failure(transform, &sample, -EINVAL, "has not been given the dataset's statistics");
	assert_int_equal(transform_fix_statistics(transform, mean, mean, NULL), 0);
	free(apply_all(transform, &sample, 1, 0));
	fake_decoder.fail = -EBADMSG;
	expect_failure(transform, &sample, -EBADMSG, "");
	fake_decoder.fail = 0;
	transform_free(transform);
	free(pixels);
}

/* Extremely long and flat images through resizes of either kind. */
static void extreme_shapes(void **state)
{
	static const uint32_t sizes[][2] = {{4000, 1}, {1, 4000}, {3000, 2}, {1, 1}, {2, 700}};
	static const char *const texts[] = {"resize(3) center_crop(5)", "random_resized_crop(16)",
					    "resize(9x7)", "center_crop(6) hflip(1)"};

	for (unsigned i = 0; i < 5; i++)
		for (unsigned j = 0; j < 4; j++) {
			struct transform *transform = parse(texts[j]);

			assert_int_equal(
				transform_fix_size(transform, sizes[i][0], sizes[i][1], NULL), 0);
			compare(texts[j], transform, sizes[i][0], sizes[i][1], 0);
			transform_free(transform);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(single_steps),
		cmocka_unit_test(composed_steps),
		cmocka_unit_test(geometry_is_folded),
		cmocka_unit_test(flips_alternate),
		cmocka_unit_test(regions_are_tight),
		cmocka_unit_test(scaled_decodes_fit),
		cmocka_unit_test(narrow_floats_are_nearest),
		cmocka_unit_test(forms_hold_the_same_picture),
		cmocka_unit_test(large_samples),
		cmocka_unit_test(samples_are_repeatable),
		cmocka_unit_test(failures_are_explained),
		cmocka_unit_test(extreme_shapes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
