/*
 * Mixup and CutMix: timm's boxes, the distribution of blend weights, and blended images against
 * arithmetic element by element.
 */
#include "format/augment/kernels/converter.h"
#include "format/augment/mix_images.h"
#include "format/base/half.h"
#include "tests/test.h"

#include <math.h>

TEST(boxes)
{
	FILE *file = fopen(GOLDEN_BOXES, "r");
	char first[128];
	double share, rest;
	uint32_t height, width, row, column, box[4];
	unsigned cases = 0;
	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (fscanf(file, "%u %u %lf %u %u %u %u %u %u %lf", &height, &width, &share, &row,
		      &column, &box[0], &box[1], &box[2], &box[3], &rest) == 10) {
		struct mix_blend blend;
		double got = mix_box(height, width, share, row, column, &blend);
		assert_true(fabs(got - rest) < 1e-12);
		assert_int_equal(blend.top, box[0]);
		assert_int_equal(blend.bottom, box[1]);
		assert_int_equal(blend.left, box[2]);
		assert_int_equal(blend.right, box[3]);
		cases++;
	}
	fclose(file);
	assert_int_equal(cases, 40);
}

/* Beta(alpha, alpha) has mean 1/2 and variance 1 / (8 alpha + 4). */
TEST(shares)
{
	static const double alphas[] = {0.1, 0.5, 1, 4};
	for (size_t a = 0; a < sizeof(alphas) / sizeof(*alphas); a++) {
		const struct mix_rule rule = {.mixup = alphas[a], .prob = 1};
		double mean = 0, square = 0, wanted = 1 / (8 * alphas[a] + 4);
		for (unsigned i = 0; i < 10000; i++) {
			struct mix_blend blend;
			double share = mix_draw_blend(&rule, 3, 1, i, 32, 32, &blend);
			assert_true(share >= 0 && share <= 1);
			assert_true(share == (double)blend.share);
			mean += share / 10000;
			square += (share - 0.5) * (share - 0.5) / 10000;
		}
		/* within five standard deviations of the mean */
		assert_true(fabs(mean - 0.5) < 5 * sqrt(wanted / 10000));
		assert_true(fabs(square / wanted - 1) < 0.08);
	}
}

/* With both methods, each is drawn as often as switch_prob says, and none as often as prob. */
TEST(choice)
{
	const struct mix_rule rule = {.mixup = 1, .cutmix = 1, .prob = 0.8, .switch_prob = 0.25};
	unsigned cut = 0, none = 0;
	for (unsigned step = 0; step < 10000; step++) {
		struct mix_blend blend;
		double share = mix_draw_blend(&rule, 5, step, 0, 400, 300, &blend);
		bool boxed = blend.top < blend.bottom && blend.left < blend.right;
		double area = (double)(blend.bottom - blend.top) * (blend.right - blend.left);
		assert_true(!boxed || blend.share == 1);
		assert_true(!boxed || share == 1 - area / (400 * 300));
		cut += boxed;
		none += share == 1;
	}
	/* boxes of less than a pixel are rare */
	assert_in_range(cut, 1850, 2150);
	assert_in_range(none, 1850, 2150);
}

enum { CHANNELS_MAX = 4, SIDE_MAX = 40, ELEMENTS_MAX = SIDE_MAX * SIDE_MAX * CHANNELS_MAX };

static size_t size_of(enum pipeline_element element)
{
	return element == PIPELINE_U8 ? 1 : element == PIPELINE_F32 ? 4 : 2;
}

static float value_at(const uint8_t *image, enum pipeline_element element, size_t i)
{
	uint16_t half;
	float value;
	memcpy(&half, image + 2 * i, element == PIPELINE_U8 ? 0 : 2);
	if (element == PIPELINE_U8)
		return image[i];
	if (element == PIPELINE_F16)
		return half_to_float(half);
	if (element == PIPELINE_BF16)
		return bfloat_to_float(half);
	memcpy(&value, image + 4 * i, sizeof(value));
	return value;
}

/* Blends element by element. */
static void blend_slowly(const struct pipeline_shape *shape, const struct mix_blend *blend,
			 const uint8_t *own, const uint8_t *other, uint8_t *ret_image)
{
	const size_t size = size_of(shape->element);
	const uint32_t width = shape->width, channels = shape->channels;
	for (size_t i = 0; i < shape->sample_size / size; i++) {
		size_t pixel =
			shape->layout == PIPELINE_NCHW ? i % (shape->height * width) : i / channels;
		uint32_t y = (uint32_t)(pixel / width), x = (uint32_t)(pixel % width);
		bool boxed = y >= blend->top && y < blend->bottom && x >= blend->left &&
			     x < blend->right;
		float a = value_at(own, shape->element, i), b = value_at(other, shape->element, i);
		if (boxed)
			memcpy(ret_image + i * size, other + i * size, size);
		else if (blend->share < 1)
			converter_element(ret_image + i * size, shape->element,
					  blend->share * a + (1 - blend->share) * b);
		else
			memcpy(ret_image + i * size, own + i * size, size);
	}
}

static void fill(uint8_t *image, enum pipeline_element element, size_t count)
{
	for (size_t i = 0; i < count; i++)
		converter_element(image + i * size_of(element), element,
				  element == PIPELINE_U8 ? (float)(rand() % 256)
							 : (float)(rand() % 2001 - 1000) / 250);
}

static void check_images(const struct pipeline_shape *shape, const struct mix_blend *blend)
{
	static uint8_t a[ELEMENTS_MAX * 4 + 1], b[sizeof(a)], before_a[sizeof(a)],
		before_b[sizeof(a)], wanted[sizeof(a)];
	size_t count = shape->sample_size / size_of(shape->element);
	for (int isa = CPU_ISA_C; isa <= (int)cpu_isa_supported(); isa++) {
		fill(a, shape->element, count);
		fill(b, shape->element, count);
		a[shape->sample_size] = b[shape->sample_size] = 0x5a;
		memcpy(before_a, a, sizeof(a));
		memcpy(before_b, b, sizeof(b));
		mix_images((enum cpu_isa)isa, shape, blend, a, b);
		blend_slowly(shape, blend, before_a, before_b, wanted);
		assert_memory_equal(a, wanted, shape->sample_size);
		blend_slowly(shape, blend, before_b, before_a, wanted);
		assert_memory_equal(b, wanted, shape->sample_size);
		assert_true(a[shape->sample_size] == 0x5a && b[shape->sample_size] == 0x5a);
	}
}

static void check_shape(enum pipeline_element element, enum pipeline_layout layout,
			uint32_t channels)
{
	static const uint32_t sizes[][2] = {{1, 1}, {7, 3}, {16, 16}, {33, 40}};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		const uint32_t height = sizes[i][0], width = sizes[i][1];
		const struct pipeline_shape shape = {.height = height,
						     .width = width,
						     .channels = channels,
						     .element = element,
						     .layout = layout,
						     .sample_size = (size_t)height * width *
								    channels * size_of(element)};
		const struct mix_blend blends[] = {
			{.share = 1},
			{.share = 0},
			{.share = 0.5f},
			{.share = 0.7316f},
			{.share = 1, .bottom = height, .right = width},
			{.share = 1, .top = height / 3, .bottom = height, .right = (width + 1) / 2},
			{.share = 1,
			 .top = 1,
			 .bottom = height - height / 4,
			 .left = width / 4,
			 .right = width},
		};
		for (size_t b = 0; b < sizeof(blends) / sizeof(*blends); b++)
			check_images(&shape, &blends[b]);
	}
}

TEST(images)
{
	for (int element = PIPELINE_U8; element <= PIPELINE_F32; element++)
		for (uint32_t channels = 3; channels <= 4; channels++) {
			check_shape((enum pipeline_element)element, PIPELINE_NHWC, channels);
			check_shape((enum pipeline_element)element, PIPELINE_NCHW, channels);
		}
}

/* Every instruction set rounds, overflows and passes on infinities and NaN like the reference. */
TEST(unusual_numbers)
{
	enum { COUNT = 4096 };
	static uint8_t a[CPU_ISA_COUNT][COUNT * 4], b[CPU_ISA_COUNT][COUNT * 4];
	static const enum pipeline_element elements[] = {PIPELINE_F16, PIPELINE_BF16, PIPELINE_F32};
	for (size_t e = 0; e < sizeof(elements) / sizeof(*elements); e++) {
		struct pipeline_shape shape = {.height = 1,
					       .width = COUNT / 4,
					       .channels = 4,
					       .element = elements[e],
					       .layout = PIPELINE_NHWC};
		struct mix_blend blend = {.share = 0.3f};
		shape.sample_size = COUNT * size_of(elements[e]);
		for (size_t i = 0; i < shape.sample_size; i++) {
			a[0][i] = (uint8_t)(rand() >> 8);
			b[0][i] = (uint8_t)(rand() >> 8);
		}
		for (size_t i = 0; i < COUNT; i++) {
			float x = value_at(a[0], elements[e], i),
			      y = value_at(b[0], elements[e], i);
			/* which of two NaN remains depends on the compiler */
			if (isnan(x) && isnan(y))
				memset(b[0] + i * size_of(elements[e]), 0, size_of(elements[e]));
		}
		for (int isa = 1; isa <= (int)cpu_isa_supported(); isa++) {
			memcpy(a[isa], a[0], sizeof(a[0]));
			memcpy(b[isa], b[0], sizeof(b[0]));
			mix_images((enum cpu_isa)isa, &shape, &blend, a[isa], b[isa]);
		}
		mix_images(CPU_ISA_C, &shape, &blend, a[0], b[0]);
		for (int isa = 1; isa <= (int)cpu_isa_supported(); isa++)
			for (size_t i = 0; i < COUNT; i++) {
				float x = value_at(a[0], elements[e], i),
				      y = value_at(a[isa], elements[e], i);
				assert_true((isnan(x) && isnan(y)) || x == y);
			}
	}
}
