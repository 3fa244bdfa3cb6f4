/*
 * Pipelines with transforms that change pixel values: which effects they draw, where these run
 * among the geometric transforms, and the output in every form.
 */
#include "format/augment/apply/geometry.h"
#include "format/augment/grammar/draw.h"
#include "format/base/system/cpu.h"
#include "tests/test.h"
#include "tests/unit/augment/stats.h"

#include <math.h>

enum { WIDTH = 37, HEIGHT = 26 };

static struct pipeline_scratch *scratches[CPU_ISA_COUNT];
static struct random_stream rng;
static uint8_t picture[HEIGHT * WIDTH * 3];

static int setup(void **state)
{
	random_init(&rng, 11, 0, 0, RANDOM_AUGMENT);
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++) {
		setenv("LOADERD_ISA", cpu_isa_name((enum cpu_isa)isa), 1);
		if (pipeline_scratch_new(&scratches[isa]) < 0)
			return -1;
	}
	unsetenv("LOADERD_ISA");
	for (size_t i = 0; i < sizeof(picture); i++)
		picture[i] = (uint8_t)random_u32(&rng);
	return 0;
}

static int teardown(void **state)
{
	for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
		pipeline_scratch_free(scratches[isa]);
	return 0;
}

static struct pipeline *parse(const char *text)
{
	struct pipeline *pipeline = NULL;
	struct pipeline_error error;

	if (pipeline_parse(text, &pipeline, &error) < 0 ||
	    pipeline_fix_size(pipeline, WIDTH, HEIGHT, &error) < 0)
		fail_msg("'%s': %s", text, error.text);
	return pipeline;
}

/*
 * Returns the finished sample, after checking that repeated runs and all instruction sets give the
 * same one.
 */
static uint8_t *apply(const struct pipeline *pipeline, uint64_t index,
		      struct pipeline_shape *ret_shape)
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

	pipeline_shape(pipeline, 0, ret_shape);
	for (int isa = 0; isa <= (int)cpu_isa_supported(); isa++)
		for (int again = 0; again < 2; again++) {
			uint8_t *output = malloc(ret_shape->sample_size);

			assert_non_null(output);
			if (pipeline_apply(pipeline, scratches[isa], &sample, 3, 0, output, NULL,
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

/* Checks that two pipelines give equal results for equal samples. */
static void expect_same(const char *text, const char *other_text)
{
	struct pipeline *pipeline = parse(text), *other_pipeline = parse(other_text);

	for (uint64_t index = 0; index < 12; index++) {
		struct pipeline_shape shape, other_shape;
		uint8_t *output = apply(pipeline, index, &shape);
		uint8_t *other = apply(other_pipeline, index, &other_shape);

		assert_int_equal(shape.width, other_shape.width);
		assert_int_equal(shape.height, other_shape.height);
		if (memcmp(output, other, shape.sample_size) != 0)
			fail_msg("'%s' and '%s' differ on sample %d", text, other_text, (int)index);
		free(output);
		free(other);
	}
	pipeline_free(pipeline);
	pipeline_free(other_pipeline);
}

TEST(order_is_kept)
{
	expect_same("random_invert(1)  random_invert(1)", "");
	expect_same("random_invert(1) resize(20x11) random_invert(1) random_invert(p=1)",
		    "random_invert(1) resize(20x11)");
	expect_same("random_invert(1) pad(3, fill=255) random_invert(1)", "pad(3, fill=0)");
	expect_same("pad(2, fill=9:8:7) random_invert(1) pad(2)",
		    "random_invert(1) pad(2, fill=246:247:248) pad(2)");
	expect_same("random_rotation(180:180)", "hflip(1) vflip(1)");
	expect_same(
		"center_crop(20) random_rotation(90:90) random_rotation(90:90, bilinear) vflip(1)",
		"center_crop(20) hflip(1)");
	expect_same("random_affine(0, scale=0.5:0.5, fill=30) center_crop(5x3)",
		    "random_affine(0, scale=0.5:0.5, fill=9) center_crop(5x3)");
	/* A flip commutes with transforms that act on single pixels. */
	expect_same("random_invert(1) hflip(1)", "hflip(1) random_invert(1)");
	expect_same("resize(33x30) random_posterize(3, 1) vflip(1) center_crop(11)",
		    "resize(33x30) vflip(1) center_crop(11) random_posterize(bits=3, p=1)");
	expect_same("random_grayscale(p=1) hflip(1)", "hflip(1) random_grayscale(1)");
}

TEST(zero_probability_changes_nothing)
{
	expect_same("resize(24) color_jitter(0.4, 0.4, 0.4, 0.1, p=0) random_grayscale(0) "
		    "random_invert(0) "
		    "random_solarize(9, 0) random_posterize(1, 0) random_autocontrast(0) "
		    "random_equalize(0)",
		    "resize(24)");
	expect_same("color_jitter()", "");
	expect_same("random_posterize(8, 1)", "");
	expect_same("random_rotation(0) random_affine(0) gaussian_blur(1) "
		    "random_adjust_sharpness(1, 1)",
		    "");
	expect_same("random_rotation(0, bilinear) random_erasing(1, scale=0:0)", "");
}

/*
 * Policies in pipelines: whatever they choose, every instruction set gives the same result (checked
 * by expect_same()).
 */
TEST(policies_run)
{
	static const char *const texts[] = {
		"rand_augment(3, 15, interpolation=bilinear) random_crop(20)",
		"random_resized_crop(24) trivial_augment_wide hflip",
		"resize(31x29) aug_mix(severity=10) to(f16) normalize(imagenet) layout(nchw) "
		"random_erasing(0.25)",
		"auto_augment(imagenet, fill=128) gaussian_blur(5)",
		"aug_mix(10, 4, 2, 0.5, interpolation=nearest) aug_mix(all_ops=false) "
		"auto_augment(svhn) channels(4)",
	};

	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		expect_same(texts[i], texts[i]);
}

/* Every output form of a finished sample contains the same picture as the u8 form. */
TEST(output_forms_have_the_same_picture)
{
	static const char *const transforms = "random_solarize(100, 1) random_equalize(1)";
	static const char *const sizes[] = {"", "resize(96x64)", "resize(300x200)"};

	for (unsigned i = 0; i < 3; i++) {
		struct pipeline_shape shape, other;
		char text[200];

		snprintf(text, sizeof(text), "%s %s", sizes[i], transforms);
		struct pipeline *pipeline = parse(text);
		uint8_t *bytes = apply(pipeline, 1, &shape);
		size_t count = (size_t)shape.width * shape.height;

		pipeline_free(pipeline);
		for (int form = 0; form < 4; form++) {
			bool planar = form & 1;
			uint32_t channels = form & 2 ? 4 : 3;

			snprintf(text, sizeof(text), "%s %s to(f32) layout(%s) channels(%u)",
				 sizes[i], transforms, planar ? "nchw" : "nhwc", channels);
			pipeline = parse(text);
			float *floats = (float *)(void *)apply(pipeline, 1, &other);

			for (size_t p = 0; p < count; p++)
				for (uint32_t c = 0; c < channels; c++) {
					float value = planar ? floats[c * count + p]
							     : floats[p * channels + c];
					float byte = c < 3 ? bytes[3 * p + c] : 0;

					assert_true(fabsf(value - byte / 255) < 1e-6f);
				}
			free(floats);
			pipeline_free(pipeline);
		}
		free(bytes);
	}
}

TEST(jitter_is_uniform)
{
	enum { SAMPLES = 12000, BINS = 20 };
	static const double limits[4][2] = {{0.6, 1.4}, {0.5, 0.9}, {0, 3}, {-0.1, 0.1}};
	unsigned order[256] = {0}, bins[4][BINS] = {0}, orders[24], order_count = 0;
	struct effect_list list;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		unsigned code = 0;

		stats_draw("color_jitter(0.4, contrast=0.5:0.9, saturation=2, hue=0.1)", sample,
			   &list);
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
	stats_expect_uniform(orders, 24);
	for (int i = 0; i < 4; i++)
		stats_expect_uniform(bins[i], BINS);
	stats_draw("color_jitter(hue=0.5)", 0, &list);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.effects[0].kind, EFFECT_HUE);
}

/* Whether each change acts, the place of contrast, the factors and the order of the channels. */
TEST(distortion_is_uniform)
{
	static const double limits[4][2] = {{0.875, 1.125}, {0.5, 1.5}, {0.5, 1.5}, {-0.05, 0.05}};
	enum { SAMPLES = 8000, BINS = 8 };
	unsigned acts[5] = {0}, bins[4][BINS] = {{0}}, orders[6] = {0}, late = 0, order_count = 0;
	unsigned codes[6], both = 0;
	struct effect_list list;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		int contrast = -1, hue = -1;

		stats_draw("random_photometric_distort", sample, &list);
		for (int i = 0; i < (int)list.count; i++) {
			const struct effect *effect = &list.effects[i];
			unsigned which = (unsigned)effect->kind - EFFECT_BRIGHTNESS;

			contrast = effect->kind == EFFECT_CONTRAST ? i : contrast;
			hue = effect->kind == EFFECT_HUE ? i : hue;
			if (effect->kind == EFFECT_PERMUTE) {
				const uint8_t *to = effect->channels;
				unsigned code = to[0] * 16u + to[1] * 4u + to[2], at = 0;

				assert_int_equal(i, (int)list.count - 1);
				while (at < order_count && codes[at] != code)
					at++;
				assert_true(at < 6);
				codes[at] = code;
				order_count += at == order_count;
				orders[at]++;
				acts[4]++;
				continue;
			}
			double at = (effect->factor - limits[which][0]) /
				    (limits[which][1] - limits[which][0]);

			assert_true(which < 4 && at >= 0 && at < 1);
			bins[which][(unsigned)(at * BINS)]++;
			acts[which]++;
		}
		both += contrast >= 0 && hue >= 0;
		late += contrast >= 0 && hue >= 0 && contrast > hue;
	}
	for (int i = 0; i < 4; i++)
		stats_expect_uniform(bins[i], BINS);
	stats_expect_uniform(orders, 6);
	stats_expect_uniform((unsigned[]){late, both - late}, 2);
	for (int i = 0; i < 5; i++)
		stats_expect_uniform((unsigned[]){acts[i], SAMPLES - acts[i]}, 2);
	stats_draw("random_photometric_distort(p=0)", 0, &list);
	assert_int_equal(list.count, 0);
	stats_draw("random_photometric_distort(2:2, hue=0.5:0.5, p=1)", 0, &list);
	assert_int_equal(list.count, 5);
	assert_true(list.effects[0].kind == EFFECT_BRIGHTNESS && list.effects[0].factor == 2);
}

/*
 * Counts the pixels in which the erased sample differs from the plain one, and checks that they
 * form a rectangle of the fill value.
 */
static size_t erased_pixels(const char *text, const char *plain_text, uint64_t index, float value)
{
	struct pipeline *pipeline = parse(text), *plain = parse(plain_text);
	struct pipeline_shape shape;
	float *with = (float *)(void *)apply(pipeline, index, &shape);
	float *without = (float *)(void *)apply(plain, index, &shape);
	uint32_t left = UINT32_MAX, top = UINT32_MAX, right = 0, bottom = 0;
	size_t count = 0;

	for (uint32_t y = 0; y < shape.height; y++)
		for (uint32_t x = 0; x < shape.width; x++) {
			const float *a = with + ((size_t)y * shape.width + x) * 3;
			const float *b = without + ((size_t)y * shape.width + x) * 3;

			if (memcmp(a, b, 12) == 0)
				continue;
			assert_true(isnan(value) ||
				    (a[0] == value && a[1] == value && a[2] == value));
			count++;
			left = x < left ? x : left;
			right = x > right ? x : right;
			top = y < top ? y : top;
			bottom = y;
		}
	/* No pixel of this picture has the fill value, which would leave a gap in the rectangle. */
	if (count)
		assert_int_equal(count, (size_t)(right - left + 1) * (bottom - top + 1));
	free(with);
	free(without);
	pipeline_free(pipeline);
	pipeline_free(plain);
	return count;
}

TEST(erasing_before_and_after)
{
	enum { AREA = WIDTH * HEIGHT };
	double sum = 0;

	for (uint64_t index = 0; index < 60; index++) {
		size_t count = erased_pixels("to(f32) normalize(imagenet) random_erasing(1)",
					     "to(f32) normalize(imagenet)", index, 0);

		assert_true(count >= 0.02 * AREA - 6 && count <= 0.33 * AREA + 20);
		sum += (double)count / AREA;
		erased_pixels("random_erasing(1, value=255) to(f32)", "to(f32)", index, 1);
		erased_pixels("to(f32) normalize(imagenet) random_erasing(1, scale=0.1:0.2, "
			      "value=random)",
			      "to(f32) normalize(imagenet)", index, NAN);
		erased_pixels("random_erasing(1, scale=0.1:0.2, value=random) to(f32)", "to(f32)",
			      index, NAN);
		count = erased_pixels("to(f32) normalize(imagenet) cutout(9, value=-4)",
				      "to(f32) normalize(imagenet)", index, -4);
		assert_true(count >= 25 && count <= 81);
	}
	/* The areas are uniform in 0.02..0.33, except that some large shapes do not fit. */
	assert_true(sum / 60 > 0.12 && sum / 60 < 0.21);
}

/* Normal noise has mean 0 and standard deviation 1, in every element type. */
TEST(erased_noise_is_normal)
{
	static const char *const texts[] = {
		"resize(200x200) to(f32) normalize(imagenet) cutout(400, value=random)",
		"resize(200x200) to(f32) layout(nchw) cutout(400, value=random)"};

	for (int i = 0; i < 2; i++) {
		struct pipeline *pipeline = parse(texts[i]);
		struct pipeline_shape shape;
		float *values = (float *)(void *)apply(pipeline, 4, &shape);
		double sum = 0, squares = 0, fourth = 0, count = shape.sample_size / 4.0;

		for (size_t k = 0; k < shape.sample_size / 4; k++) {
			double v = values[k];

			sum += v;
			squares += v * v;
			fourth += v * v * v * v;
		}
		assert_true(fabs(sum / count) < 4 / sqrt(count));
		assert_true(fabs(squares / count - 1) < 4 * sqrt(2 / count));
		assert_true(fabs(fourth / count - 3) < 4 * sqrt(96 / count));
		free(values);
		pipeline_free(pipeline);
	}
}

TEST(warps_are_uniform)
{
	enum { SAMPLES = 8000, BINS = 16 };
	unsigned angles[BINS] = {0}, shifts[2][9] = {{0}}, sigmas[BINS] = {0};
	struct effect_list list;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		stats_draw("random_rotation(-30:10)", sample, &list);
		const float *m = list.effects[0].warp.matrix;
		double degrees = atan2(m[3], m[0]) * 180 / M_PI;

		assert_true(degrees > -30.01 && degrees < 10.01);
		/* Positive angles turn counter-clockwise, like torchvision's rotate. */
		angles[(unsigned)fmin((degrees + 30.0) / 40 * BINS, BINS - 1)]++;
		stats_draw("random_affine(0, translate=0.1:0.16)", sample, &list);
		m = list.effects[0].warp.matrix;
		assert_true(fabsf(m[2]) <= 4 && fabsf(m[5]) <= 4 && m[0] == 1 && m[1] == 0);
		shifts[0][(int)(m[2] + 4)]++;
		shifts[1][(int)(m[5] + 4)]++;
		stats_draw("gaussian_blur(3, 0.5:1)", sample, &list);
		sigmas[(unsigned)((list.effects[0].gauss.sigma - 0.5) * 2 * BINS)]++;
	}
	stats_expect_uniform(angles, BINS);
	stats_expect_uniform(sigmas, BINS);
	/*
	 * The shifts range up to 3.7 and 4.16 pixels in both directions and are rounded, so the
	 * outermost integers are less likely than the others.
	 */
	stats_expect_uniform(shifts[0] + 2, 5);
	stats_expect_uniform(shifts[1] + 1, 7);
	assert_true(shifts[0][0] > 0 && shifts[0][0] < shifts[0][4] && shifts[1][8] > shifts[0][8]);
}

TEST(effects_occur_with_their_probability)
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
		{"gaussian_blur(23, p=0.5)", 0.5},
		{"random_adjust_sharpness(2)", 0.5},
		{"random_erasing", 0.5},
		{"cutout(4, 0.7)", 0.7},
	};
	enum { SAMPLES = 4000 };
	struct effect_list list;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double p = cases[i].probability;
		unsigned acted = 0;

		for (uint64_t sample = 0; sample < SAMPLES; sample++) {
			stats_draw(cases[i].text, sample, &list);
			acted += list.count > 0;
		}
		if (fabs(acted - p * SAMPLES) > 4 * sqrt(p * (1 - p) * SAMPLES))
			fail_msg("'%s' acted on %u of %d", cases[i].text, acted, SAMPLES);
	}
}

TEST_MAIN(setup, teardown)
