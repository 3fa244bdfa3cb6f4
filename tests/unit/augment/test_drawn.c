/*
 * From a transform's arguments to the parameters that it draws. With ranges of a single value
 * nothing is random, so each argument can be checked separately. Expected values are the parameters
 * that torchvision's transform of the same name passes to its functional operation. test_effects.c
 * tests what these parameters do to pixels.
 */
#include "format/augment/grammar/warp.h"
#include "tests/test.h"
#include "tests/unit/augment/stats.h"

#include <math.h>

enum { SAMPLES = 40 };

/* Returns the only effect that a transform draws for a sample. */
static const struct effect *draw_one(const char *text, uint64_t sample, enum effect_kind kind)
{
	static struct effect_list list;

	stats_draw(text, sample, &list);
	if (list.count != 1 || list.effects[0].kind != kind)
		fail_msg("'%s' drew %u effects, the first of kind %d", text, list.count,
			 (int)list.effects[0].kind);
	return &list.effects[0];
}

/* Returns the affine map given by angles in degrees, as in torchvision's functional.affine. */
struct affine {
	double degrees, scale, shear_x, shear_y;
};

static void expect_warp(const char *text, struct affine affine, bool bilinear, const char *fill)
{
	const struct effect_warp *got = &draw_one(text, 3, EFFECT_WARP)->warp;
	float matrix[6];

	warp_matrix(&(struct warp){.degrees = affine.degrees,
				   .scale = affine.scale,
				   .slope_x = tan(affine.shear_x * M_PI / 180),
				   .slope_y = tan(affine.shear_y * M_PI / 180)},
		    matrix);
	for (int i = 0; i < 6; i++)
		if (fabsf(got->matrix[i] - matrix[i]) > 1e-5f)
			fail_msg("'%s': element %d of the matrix is %g, not %g", text, i,
				 (double)got->matrix[i], (double)matrix[i]);
	assert_int_equal(got->bilinear, bilinear);
	assert_true(got->filled);
	assert_memory_equal(got->fill, fill, 3);
}

TEST(affine_arguments)
{
	static const char black[3];

	expect_warp("random_affine(20:20)", (struct affine){20, 1, 0, 0}, false, black);
	expect_warp("random_affine(-20:-20)", (struct affine){-20, 1, 0, 0}, false, black);
	expect_warp("random_affine(0, scale=1.25:1.25)", (struct affine){0, 1.25, 0, 0}, false,
		    black);
	expect_warp("random_affine(0, shear=10:10)", (struct affine){0, 1, 10, 0}, false, black);
	expect_warp("random_affine(0, shear=10:10:0:0)", (struct affine){0, 1, 10, 0}, false,
		    black);
	expect_warp("random_affine(0, shear=0:0:10:10)", (struct affine){0, 1, 0, 10}, false,
		    black);
	expect_warp("random_affine(0, shear=-3:-3:8:8)", (struct affine){0, 1, -3, 8}, false,
		    black);
	expect_warp("random_affine(0, interpolation=bilinear)", (struct affine){0, 1, 0, 0}, true,
		    black);
	expect_warp("random_affine(0, interpolation=nearest)", (struct affine){0, 1, 0, 0}, false,
		    black);
	expect_warp("random_affine(0, fill=1:2:3)", (struct affine){0, 1, 0, 0}, false, "\1\2\3");
	expect_warp("random_affine(30:30, scale=0.5:0.5, shear=5:5:-7:-7, "
		    "interpolation=bilinear, fill=9)",
		    (struct affine){30, 0.5, 5, -7}, true, "\11\11\11");
	/* torchvision's rotate and affine turn in opposite directions. */
	expect_warp("random_rotation(20:20)", (struct affine){-20, 1, 0, 0}, false, black);
	expect_warp("random_rotation(-20:-20, bilinear, fill=4:5:6)", (struct affine){20, 1, 0, 0},
		    true, "\4\5\6");
}

/* A single number gives a symmetric range; two or four numbers are the ends. */
TEST(affine_ranges)
{
	static const struct {
		const char *text;
		double low, high;
		bool of_y;
	} cases[] = {
		{"random_affine(0, shear=10)", -10, 10, false},
		{"random_affine(0, shear=4:10)", 4, 10, false},
		{"random_affine(0, shear=4:10:0:0)", 4, 10, false},
		{"random_affine(0, shear=0:0:-20:-2)", -20, -2, true},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double low = 90, high = -90;

		for (uint64_t sample = 0; sample < SAMPLES; sample++) {
			const float *m = draw_one(cases[i].text, sample, EFFECT_WARP)->warp.matrix;
			double degrees = atan((double)m[cases[i].of_y ? 3 : 1]) * 180 / M_PI;

			low = fmin(low, degrees);
			high = fmax(high, degrees);
		}
		double width = cases[i].high - cases[i].low;

		if (low < cases[i].low - 0.001 || high > cases[i].high + 0.001 ||
		    low > cases[i].low + 0.2 * width || high < cases[i].high - 0.2 * width)
			fail_msg("'%s' draws from %g to %g", cases[i].text, low, high);
	}
}

TEST(point_arguments)
{
	static const double thresholds[] = {0, 9, 127.5, 128, 255};

	for (unsigned i = 0; i < sizeof(thresholds) / sizeof(thresholds[0]); i++) {
		char text[100];

		snprintf(text, sizeof(text), "random_solarize(%g, 1)", thresholds[i]);
		assert_true(draw_one(text, 0, EFFECT_SOLARIZE)->factor == thresholds[i]);
	}
	for (unsigned bits = 0; bits < 8; bits++) {
		char text[100];

		snprintf(text, sizeof(text), "random_posterize(%u, 1)", bits);
		assert_true(draw_one(text, 0, EFFECT_POSTERIZE)->factor == bits);
	}
	assert_true(draw_one("random_adjust_sharpness(2.5, 1)", 0, EFFECT_SHARPNESS)->factor ==
		    2.5);
	const struct effect_gauss *gauss =
		&draw_one("gaussian_blur(5x9, 1.5:1.5)", 0, EFFECT_BLUR)->gauss;

	assert_int_equal(gauss->width, 5);
	assert_int_equal(gauss->height, 9);
	assert_true(gauss->sigma == 1.5);
	assert_true(draw_one("gaussian_blur(3, 0.7)", 0, EFFECT_BLUR)->gauss.sigma == 0.7);
}

/* A range whose one end is the neutral value is still drawn from. */
TEST(jitter_with_a_neutral_end)
{
	static const struct {
		const char *text;
		enum effect_kind kind;
		double low, high;
	} cases[] = {
		{"color_jitter(brightness=1:1.5)", EFFECT_BRIGHTNESS, 1, 1.5},
		{"color_jitter(brightness=0.5:1)", EFFECT_BRIGHTNESS, 0.5, 1},
		{"color_jitter(contrast=1:1.5)", EFFECT_CONTRAST, 1, 1.5},
		{"color_jitter(contrast=0.5:1)", EFFECT_CONTRAST, 0.5, 1},
		{"color_jitter(saturation=1:1.5)", EFFECT_SATURATION, 1, 1.5},
		{"color_jitter(saturation=0.5:1)", EFFECT_SATURATION, 0.5, 1},
		{"color_jitter(hue=0:0.25)", EFFECT_HUE, 0, 0.25},
		{"color_jitter(hue=-0.25:0)", EFFECT_HUE, -0.25, 0},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double low = 2, high = -2, width = cases[i].high - cases[i].low;

		for (uint64_t sample = 0; sample < SAMPLES; sample++) {
			double factor = draw_one(cases[i].text, sample, cases[i].kind)->factor;

			low = fmin(low, factor);
			high = fmax(high, factor);
		}
		if (low < cases[i].low || high > cases[i].high ||
		    low > cases[i].low + 0.2 * width || high < cases[i].high - 0.2 * width)
			fail_msg("'%s' draws from %g to %g", cases[i].text, low, high);
	}
}

TEST(erased_sides)
{
	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		const struct erase *erase = &draw_one("random_erasing(1, scale=0.1:0.1, ratio=4:4)",
						      sample, EFFECT_ERASE)
						     ->erase;

		/*
		 * torchvision's ratio is height / width: a tenth of the 962 pixels with ratio 4 is
		 * 4.9 x 19.6.
		 */
		assert_int_equal(erase->width, 5);
		assert_int_equal(erase->height, 20);
		assert_in_range(erase->x, 0, STATS_WIDTH - erase->width);
		assert_in_range(erase->y, 0, STATS_HEIGHT - erase->height);
		erase = &draw_one("random_erasing(1, scale=0.1:0.1, ratio=0.25:0.25, value=1:2:3)",
				  sample, EFFECT_ERASE)
				 ->erase;
		assert_int_equal(erase->width, 20);
		assert_int_equal(erase->height, 5);
		assert_true(erase->value[0] == 1 && erase->value[1] == 2 && erase->value[2] == 3);
	}
}

/* A hole has the given width and height, unless an edge clips it. */
TEST(cutout_sides)
{
	uint32_t width = 0, height = 0;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		const struct erase *erase = &draw_one("cutout(12x4)", sample, EFFECT_ERASE)->erase;

		assert_in_range(erase->width, 6, 12);
		assert_in_range(erase->height, 2, 4);
		assert_in_range(erase->x, 0, STATS_WIDTH - erase->width);
		assert_in_range(erase->y, 0, STATS_HEIGHT - erase->height);
		if (erase->width < 12)
			assert_true(erase->x == 0 || erase->x + erase->width == STATS_WIDTH);
		if (erase->height < 4)
			assert_true(erase->y == 0 || erase->y + erase->height == STATS_HEIGHT);
		width = erase->width > width ? erase->width : width;
		height = erase->height > height ? erase->height : height;
	}
	assert_int_equal(width, 12);
	assert_int_equal(height, 4);
}
