/*
 * Output forms of finished samples: all element types, layouts and channel counts contain the same
 * picture, also for large samples and at every alignment.
 */
#include "format/augment/kernels/converter.h"
#include "format/base/half.h"
#include "tests/unit/augment/pipeline_test.h"

#include <math.h>

static double from_f16(uint16_t half)
{
	int exponent = half >> 10 & 31;
	double fraction = half & 0x3ff;
	double value = exponent == 0    ? ldexp(fraction, -24)
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

/*
 * Checks that `half` is the nearest narrow float: the value lies between the midpoints to both
 * neighbours; on a midpoint, the even one must be chosen.
 */
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

TEST(narrow_floats_are_nearest)
{
	/*
	 * Tests every half, the midpoint to the next one, and values just below and above the
	 * midpoint.
	 */
	for (uint32_t half = 0; half < 0x7bff; half++) {
		double low = from_f16((uint16_t)half),
		       middle = (low + from_f16((uint16_t)(half + 1))) / 2;
		double values[] = {low, middle, nextafterf((float)middle, 0),
				   nextafterf((float)middle, 1e9f)};

		for (int i = 0; i < 4; i++) {
			check_nearest(values[i], float_to_half((float)values[i]), from_f16);
			check_nearest(-values[i], float_to_half((float)-values[i]), from_f16);
		}
	}
	assert_int_equal(float_to_half(65519.996f), 0x7bff);
	assert_int_equal(float_to_half(65520.0f), 0x7c00);
	assert_int_equal(float_to_half(-1e9f), 0xfc00);
	for (int i = 0; i < 200000; i++) {
		float value = ldexpf(random_float(&rng) * 2 - 1, (int)random_below(&rng, 60) - 30);
		uint32_t bits;

		if (i % 2) { /* exactly on a midpoint */
			memcpy(&bits, &value, sizeof(bits));
			bits = (bits & 0xffff0000) | 0x8000;
			memcpy(&value, &bits, sizeof(value));
		}
		check_nearest((double)value, float_to_bfloat(value), from_bf16);
	}
}

/* Returns an element of a finished sample as a number. */
static double element_at(const struct pipeline_shape *shape, const uint8_t *sample, uint32_t x,
			 uint32_t y, uint32_t c)
{
	size_t at = shape->layout == PIPELINE_NHWC
			    ? ((size_t)y * shape->width + x) * shape->channels + c
			    : ((size_t)c * shape->height + y) * shape->width + x;
	uint16_t half;
	float value;

	switch (shape->element) {
	case PIPELINE_U8:
		return sample[at];
	case PIPELINE_F32:
		memcpy(&value, sample + 4 * at, sizeof(value));
		return (double)value;
	default:
		memcpy(&half, sample + 2 * at, sizeof(half));
		return shape->element == PIPELINE_F16 ? from_f16(half) : from_bf16(half);
	}
}

static void check_form(const char *geometry, const char *type, const char *layout,
		       const char *channels, bool normalize, uint32_t width, uint32_t height)
{
	char text[256];
	bool bytes = strcmp(type, "u8") == 0;
	/* Tolerances for values up to 3: 4 ulp in f32, half an ulp in the narrow types. */
	double tolerance = bytes                      ? 0
			   : strcmp(type, "f32") == 0 ? 1e-6
			   : strcmp(type, "f16") == 0 ? 1.01e-3
						      : 8e-3;
	static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
	uint8_t *pixels = random_pixels(width, height);
	struct packimg_sample sample = make_sample(pixels, width, height, random_u32(&rng));
	struct pipeline_shape shape, plain_shape;
	struct pipeline *plain = parse(geometry);

	snprintf(text, sizeof(text), "%s to(%s) layout(%s) channels(%s) %s", geometry, type, layout,
		 channels, normalize ? "normalize(imagenet)" : "");
	struct pipeline *pipeline = parse(text);

	assert_int_equal(pipeline_fix_size(pipeline, width, height, NULL), 0);
	assert_int_equal(pipeline_fix_size(plain, width, height, NULL), 0);
	pipeline_shape(pipeline, 0, &shape);
	pipeline_shape(plain, 0, &plain_shape);
	uint8_t *got = apply_all(pipeline, &sample, 1, 0),
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
	pipeline_free(plain);
	pipeline_free(pipeline);
}

TEST(forms_hold_the_same_picture)
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

/* Samples so large that stores bypass the cache, at every alignment. */
TEST(large_samples)
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
			struct pipeline *pipeline = parse(geometries[i]);

			assert_int_equal(pipeline_fix_size(pipeline, 160, 150, NULL), 0);
			compare(geometries[i], pipeline, 160, 150, 0);
			pipeline_free(pipeline);
			check_form(geometries[i], "f16", misalignment % 2 ? "nchw" : "nhwc",
				   misalignment % 3 ? "3" : "4", true, 160, 150);
		}
	misalignment = 0;
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
