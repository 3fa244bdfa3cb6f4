/*
 * Masks follow the image. If pixels are only copied, a mask with the image's pixels gives the
 * image's bytes; with a resize, a mask of coordinates shows where the image's pixels come from.
 */
#include "format/augment/apply/raster_resampler.h"
#include "tests/unit/augment/pipeline_test.h"

#include <math.h>
#include <sys/mman.h>

/* Geometry that only copies pixels of the image. */
static const char *const copying[] = {
	"hflip(p=1)",
	"vflip(p=1)",
	"center_crop(20x30)",
	"center_crop(90x70)",
	"hflip random_crop(32) vflip",
	"pad(3x5) hflip random_crop(32)",
	"random_crop(32, padding=4, fill=reflect) hflip",
	"pad(4, fill=reflect) pad(1) pad(2, fill=reflect) vflip",
	"random_zoom_out(p=0.8) center_crop(70x60) hflip",
	"random_rotation(30)",
	"random_affine(20, translate=0.1:0.2, scale=0.7:1.4, shear=10)",
	"hflip random_rotation(45) random_crop(24) random_rotation(90) vflip",
	"pad(2) random_affine(10, shear=-5:5:-8:8) center_crop(30) hflip",
};

/* Geometry with resizes, whose images are rounded. */
static const char *const resizing[] = {
	"resize(40x40)",
	"hflip(p=1) resize(23x31)",
	"resize(200) vflip",
	"random_resized_crop(32) hflip",
	"vflip random_resized_crop(48x20, scale=0.2:0.6) hflip",
	"resize(40) center_crop(32) hflip",
	"resize(40) random_crop(32) resize(64) vflip",
	"hflip random_crop(40) resize(17) random_crop(15)",
	"random_resized_crop(32) random_rotation(30) hflip",
};

/* Makes the raster of a region of a whole raster, as a decoder returns it. */
static struct packimg_raster region_of(const struct packimg_raster *whole,
				       const struct packimg_region *region)
{
	struct packimg_raster raster = *whole;

	raster.data = whole->data + (ptrdiff_t)region->x * whole->step_x +
		      (ptrdiff_t)region->y * whole->step_y;
	raster.width = region->width;
	raster.height = region->height;
	return raster;
}

static struct packimg_raster raster_of(const void *pixels, uint32_t width, uint32_t height,
				       uint32_t channels, enum packimg_element element)
{
	size_t size = packimg_element_size(element) * channels;

	return (struct packimg_raster){pixels, (ptrdiff_t)size, (ptrdiff_t)(width * size),
				       width,  height,          channels,
				       element};
}

/*
 * Runs the geometry of a sample on a mask with every instruction set. Returns the result, which the
 * caller frees, and its size.
 */
static uint8_t *run(const struct pipeline *pipeline, const struct packimg_raster *whole,
		    enum pipeline_filter filter, uint64_t seed, uint64_t sample, const void *fill,
		    struct geometry *geometry, uint32_t *ret_width, uint32_t *ret_height)
{
	size_t pixel = packimg_element_size(whole->element) * whole->channels, size = 0;
	uint8_t *first = NULL;

	assert_int_equal(geometry_make(pipeline, whole->width, whole->height, seed, 0, sample, NULL,
				       geometry, NULL),
			 0);
	const struct geometry_stage *last = &geometry->stages[geometry->stage_count - 1];

	for (int isa = CPU_ISA_C; isa <= (int)cpu_isa_supported(); isa++) {
		struct packimg_region region;
		struct raster_resampler resampler;

		raster_resampler_init(&resampler, (enum cpu_isa)isa);
		assert_int_equal(raster_resampler_begin(&resampler, geometry, whole->width,
							whole->height, filter, &region),
				 0);
		assert_true(region.x + region.width <= whole->width &&
			    region.y + region.height <= whole->height);
		struct packimg_raster raster = region_of(whole, &region);

		size = pixel * last->x.count * last->y.count;
		uint8_t *output = malloc(size + 16);

		memset(output, 0xee, size + 16);
		assert_int_equal(raster_resampler_run(&resampler, &raster, fill, output), 0);
		for (size_t i = size; i < size + 16; i++)
			assert_int_equal(output[i], 0xee);
		raster_resampler_deinit(&resampler);
		if (first) {
			assert_memory_equal(output, first, size);
			free(output);
		} else {
			first = output;
		}
	}
	*ret_width = last->x.count;
	*ret_height = last->y.count;
	return first;
}

TEST(copied_masks_equal_the_image)
{
	static const uint32_t sizes[][2] = {{64, 48}, {33, 61}, {40, 40}};
	const uint8_t fill = 0;

	for (unsigned i = 0; i < sizeof(copying) / sizeof(*copying); i++)
		for (uint64_t seed = 0; seed < 12; seed++) {
			uint32_t w = sizes[seed % 3][0], h = sizes[seed % 3][1], width, height;
			struct pipeline *pipeline = parse(copying[i]);
			struct geometry geometry;

			assert_int_equal(pipeline_fix_size(pipeline, w, h, NULL), 0);
			uint8_t *pixels = random_pixels(w, h);
			struct packimg_sample sample = make_sample(pixels, w, h, seed);
			struct packimg_raster mask = raster_of(pixels, w, h, 3, PACKIMG_ELEMENT_U8);
			uint8_t *image = apply_all(pipeline, &sample, seed, 0);
			uint8_t *got = run(pipeline, &mask, PIPELINE_NEAREST, seed, seed, &fill,
					   &geometry, &width, &height);

			for (size_t k = 0; k < (size_t)width * height * 3; k++)
				if (got[k] != image[k])
					fail_msg("'%s', seed %u, %ux%u: byte %zu is %u, of the "
						 "image %u",
						 copying[i], (unsigned)seed, w, h, k, got[k],
						 image[k]);
			free(got);
			free(image);
			free(pixels);
			pipeline_free(pipeline);
		}
}

/*
 * Returns the distance of two adjacent pixels of the sample in pixels of the image, over all
 * stages.
 */
static double scale_of(const struct geometry *geometry, bool rows)
{
	double scale = 1;

	for (unsigned i = 0; i < geometry->stage_count; i++) {
		const struct geometry_axis *axis =
			rows ? &geometry->stages[i].y : &geometry->stages[i].x;
		double step = (double)(axis->high - axis->low) / axis->grid;

		scale *= step > 1 ? step : 1;
	}
	return scale;
}

/*
 * An image whose red is x and green is y shows where its pixels come from; the mask's pixels come
 * from the same place.
 */
TEST(coordinates_follow_the_image)
{
	enum { WIDTH = 120, HEIGHT = 90 };
	uint8_t *pixels = random_pixels(WIDTH, HEIGHT);
	uint16_t *coordinates = malloc(WIDTH * HEIGHT * 2 * sizeof(uint16_t));
	const uint16_t fill = 0;

	for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
		pixels[3 * i] = (uint8_t)(coordinates[2 * i] = (uint16_t)(100 + i % WIDTH));
		pixels[3 * i + 1] = (uint8_t)(coordinates[2 * i + 1] = (uint16_t)(100 + i / WIDTH));
	}
	struct packimg_raster mask = raster_of(coordinates, WIDTH, HEIGHT, 2, PACKIMG_ELEMENT_U16);

	for (unsigned i = 0; i < sizeof(resizing) / sizeof(*resizing); i++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct packimg_sample sample = make_sample(pixels, WIDTH, HEIGHT, seed);
			struct pipeline *pipeline = parse(resizing[i]);
			struct geometry geometry;
			uint32_t width, height;

			assert_int_equal(pipeline_fix_size(pipeline, WIDTH, HEIGHT, NULL), 0);
			uint8_t *image = apply_all(pipeline, &sample, seed, 0);
			uint16_t *got = (uint16_t *)run(pipeline, &mask, PIPELINE_NEAREST, seed,
							seed, &fill, &geometry, &width, &height);
			double x_off = 1 + scale_of(&geometry, false),
			       y_off = 1 + scale_of(&geometry, true);

			for (size_t k = 0; k < (size_t)width * height; k++)
				if (abs(image[3 * k] - got[2 * k]) > x_off ||
				    abs(image[3 * k + 1] - got[2 * k + 1]) > y_off)
					fail_msg(
						"'%s', seed %u: pixel %zu comes from %u,%u, of the "
						"image %u,%u",
						resizing[i], (unsigned)seed, k, got[2 * k],
						got[2 * k + 1], image[3 * k], image[3 * k + 1]);
			free(got);
			free(image);
			pipeline_free(pipeline);
		}
	free(coordinates);
	free(pixels);
}

/*
 * A flip before a resize and one after it give different masks, because positions are rounded down.
 */
TEST(flips_before_and_after_a_resize_differ)
{
	static const uint8_t pixels[] = {10, 11, 12, 13, 14}, before[] = {14, 13, 11},
			     after[] = {13, 11, 10}, fill = 0;
	struct packimg_raster mask = raster_of(pixels, 5, 1, 1, PACKIMG_ELEMENT_U8);
	struct pipeline *pipelines[] = {parse("hflip(p=1) resize(3x1)"),
					parse("resize(3x1) hflip(p=1)")};

	for (unsigned i = 0; i < 2; i++) {
		struct geometry geometry;
		uint32_t width, height;
		uint8_t *got = run(pipelines[i], &mask, PIPELINE_NEAREST, 1, 1, &fill, &geometry,
				   &width, &height);

		assert_int_equal(width, 3);
		assert_memory_equal(got, i == 0 ? before : after, 3);
		free(got);
		pipeline_free(pipelines[i]);
	}
}

/*
 * Every element type and number of channels is copied from the same positions, in any orientation.
 */
TEST(elements_are_copied_alike)
{
	static const enum packimg_element elements[] = {PACKIMG_ELEMENT_U8, PACKIMG_ELEMENT_U16,
							PACKIMG_ELEMENT_I16, PACKIMG_ELEMENT_I32,
							PACKIMG_ELEMENT_F32};
	static const char *const texts[] = {"random_resized_crop(17x23) hflip pad(2)",
					    "random_resized_crop(29x13, scale=0.1:1) vflip",
					    "pad(1) random_rotation(40) random_resized_crop(20)"};
	enum { WIDTH = 30, HEIGHT = 26 };
	uint8_t numbers[WIDTH * HEIGHT], fill[4] = {250, 251, 252, 253};

	for (unsigned i = 0; i < sizeof(numbers); i++)
		numbers[i] = (uint8_t)(i * 7 % 250);
	for (unsigned i = 0; i < 90; i++) {
		enum packimg_element element = elements[i % 5];
		uint32_t channels = 1 + i / 15 % 3, width, height;
		size_t size = packimg_element_size(element), pixel = size * channels;
		uint8_t *pixels = malloc(WIDTH * HEIGHT * pixel);
		struct pipeline *pipeline = parse(texts[i / 5 % 3]);
		struct geometry geometry;

		/* stored upside down and from right to left */
		for (size_t k = 0; k < WIDTH * HEIGHT; k++)
			for (size_t b = 0; b < pixel; b++)
				pixels[(WIDTH * HEIGHT - 1 - k) * pixel + b] =
					(uint8_t)(numbers[k] + b);
		struct packimg_raster one =
			raster_of(numbers, WIDTH, HEIGHT, 1, PACKIMG_ELEMENT_U8);
		struct packimg_raster other = raster_of(pixels, WIDTH, HEIGHT, channels, element);

		other.data += (WIDTH * HEIGHT - 1) * pixel;
		other.step_x = -other.step_x;
		other.step_y = -other.step_y;
		uint8_t *expected = run(pipeline, &one, PIPELINE_NEAREST, i, 5, fill, &geometry,
					&width, &height);
		uint8_t *got = run(pipeline, &other, PIPELINE_NEAREST, i, 5, fill, &geometry,
				   &width, &height);

		for (size_t k = 0; k < (size_t)width * height; k++)
			for (size_t b = 0; b < pixel; b++)
				assert_int_equal(got[k * pixel + b],
						 expected[k] == fill[0]
							 ? fill[b % size]
							 : (uint8_t)(expected[k] + b));
		free(got);
		free(expected);
		free(pixels);
		pipeline_free(pipeline);
	}
}

/*
 * Computed rasters of integers equal those of f32, rounded and clamped; constant rasters do not
 * change.
 */
TEST(computed_rasters_are_rounded_floats)
{
	enum { WIDTH = 60, HEIGHT = 45 };
	static const enum packimg_element elements[] = {PACKIMG_ELEMENT_U8, PACKIMG_ELEMENT_U16,
							PACKIMG_ELEMENT_I16, PACKIMG_ELEMENT_I32};
	static uint8_t bytes[WIDTH * HEIGHT * 2 * 4];
	static float floats[WIDTH * HEIGHT * 2];

	for (unsigned i = 0; i < sizeof(resizing) / sizeof(*resizing) * 8; i++) {
		enum pipeline_filter filter = i % 8 < 4 ? PIPELINE_BILINEAR : PIPELINE_BICUBIC;
		enum packimg_element element = elements[i % 4];
		size_t size = packimg_element_size(element);
		struct pipeline *pipeline = parse(resizing[i / 8]);
		bool negative = element != PACKIMG_ELEMENT_U8 && element != PACKIMG_ELEMENT_U16;
		int32_t low = negative ? -(1 << (8 * size - 9)) : 0, fill = low + 3;
		float fill_float = (float)fill;
		struct geometry geometry;
		uint32_t width, height;

		for (uint32_t k = 0; k < WIDTH * HEIGHT * 2; k++) {
			int32_t value = low + (int32_t)(random_u32(&rng) % 250);

			value = k % 2 ? low + 77 : value;
			memcpy(bytes + k * size, &value, size);
			floats[k] = (float)value;
		}
		struct packimg_raster whole = raster_of(bytes, WIDTH, HEIGHT, 2, element);
		struct packimg_raster other =
			raster_of(floats, WIDTH, HEIGHT, 2, PACKIMG_ELEMENT_F32);
		uint8_t *got =
			run(pipeline, &whole, filter, i, 4, &fill, &geometry, &width, &height);
		float *expected = (float *)run(pipeline, &other, filter, i, 4, &fill_float,
					       &geometry, &width, &height);

		for (size_t k = 0; k < (size_t)width * height * 2; k++) {
			int32_t rounded = (int32_t)rint((double)expected[k]);

			rounded = !negative && rounded < 0 ? 0 : rounded;
			rounded = size == 1 && rounded > UINT8_MAX ? UINT8_MAX : rounded;

			assert_memory_equal(got + k * size, &rounded, size);
			if (k % 2 && rounded != fill && size < 4)
				assert_int_equal(rounded, low + 77);
		}
		free(expected);
		free(got);
		pipeline_free(pipeline);
	}
}

/* i32 is rounded in f32, so results are clamped to the range of i32. */
TEST(large_integers_are_clamped)
{
	static const int32_t pixels[] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX,
					 INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
	struct packimg_raster raster = raster_of(pixels, 4, 2, 1, PACKIMG_ELEMENT_I32);
	struct pipeline *pipeline = parse("resize(7x2)");
	struct geometry geometry;
	const int32_t fill = 0;
	uint32_t width, height;
	int32_t *got = (int32_t *)run(pipeline, &raster, PIPELINE_BILINEAR, 1, 1, &fill, &geometry,
				      &width, &height);

	for (unsigned i = 0; i < 14; i++)
		assert_true(i < 7 ? got[i] == INT32_MAX : got[i] <= INT32_MIN + 256);
	free(got);
	pipeline_free(pipeline);
}

/*
 * Infinite values and NaN do not affect pixels beyond the filter, where their weight would be zero.
 */
TEST(infinite_values_stay_near)
{
	static const float pixels[] = {1, 2, INFINITY, NAN, 5, 6, 7, 8}, fill = 0;
	struct packimg_raster raster = raster_of(pixels, 8, 1, 1, PACKIMG_ELEMENT_F32);
	struct pipeline *pipeline = parse("resize(8x2)");
	struct geometry geometry;
	uint32_t width, height;
	float *got = (float *)run(pipeline, &raster, PIPELINE_BILINEAR, 1, 1, &fill, &geometry,
				  &width, &height);

	for (unsigned i = 0; i < 16; i++)
		assert_memory_equal(&got[i], &pixels[i % 8], sizeof(float));
	free(got);
	pipeline_free(pipeline);
}

static void resize_whole(struct resize_float *resize, enum cpu_isa isa, const float *pixels,
			 const uint32_t sizes[4], float *output)
{
	struct float_axis x = {.size = sizes[0], .grid = sizes[2], .count = sizes[2]};
	struct float_axis y = {.size = sizes[1], .grid = sizes[3], .count = sizes[3]};

	resize_float_range(&x, false);
	resize_float_range(&y, false);
	assert_int_equal(
		resize_float_run(resize, resize_kernels_get(isa), pixels, 1, &x, &y, false, output),
		0);
}

/* Several rows are computed at once; none is written after the last one. */
TEST(resized_rows_end_with_the_picture)
{
	enum { ROWS = 35 };
	float pixels[7 * 9], output[12 * (ROWS + 5)];
	struct resize_float resize = {0};

	for (unsigned i = 0; i < 7 * 9; i++)
		pixels[i] = 3;
	for (int isa = CPU_ISA_C; isa <= (int)cpu_isa_supported(); isa++)
		for (uint32_t height = 1; height <= ROWS; height++) {
			for (unsigned i = 0; i < 12 * (ROWS + 5); i++)
				output[i] = -1;
			resize_whole(&resize, (enum cpu_isa)isa, pixels,
				     (const uint32_t[]){7, 9, 12, height}, output);
			for (unsigned i = 0; i < 12 * (ROWS + 5); i++)
				assert_true(fabsf(output[i] - (i < 12 * height ? 3 : -1)) < 1e-5f);
		}
	resize_float_deinit(&resize);
}

/* Filters are reused only for a picture of the same sizes. */
TEST(kept_filters_fit_the_sizes)
{
	static const uint32_t sizes[][4] = {{7, 9, 12, 5}, {7, 9, 12, 5}, {9, 7, 12, 5},
					    {9, 7, 5, 12}, {7, 9, 12, 5}, {60, 3, 2, 40}};
	struct resize_float kept = {0};
	float pixels[180], output[80], expected[80];

	for (int i = 0; i < 180; i++)
		pixels[i] = (float)(i * i % 97);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct resize_float fresh = {0};

		resize_whole(&fresh, CPU_ISA_C, pixels, sizes[i], expected);
		resize_whole(&kept, CPU_ISA_C, pixels, sizes[i], output);
		assert_memory_equal(output, expected, sizes[i][2] * sizes[i][3] * sizeof(float));
		resize_float_deinit(&fresh);
	}
	resize_float_deinit(&kept);
}

static double weight_at(double x, bool cubic)
{
	x = fabs(x);
	if (!cubic)
		return x < 1 ? 1 - x : 0;
	if (x < 1)
		return (1.5 * x - 2.5) * x * x + 1;
	return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* Computes the weights of all pixels for output i, and checks that they add up to 1. */
static void weights_of(uint32_t size, uint32_t grid, uint32_t i, bool cubic, float *weights)
{
	double scale = (double)size / grid, wide = scale > 1 ? scale : 1, total = 0, sum = 0;

	for (uint32_t at = 0; at < size; at++)
		total += weight_at((at + 0.5 - scale * (i + 0.5)) / wide, cubic);
	for (uint32_t at = 0; at < size; at++) {
		weights[at] =
			(float)(weight_at((at + 0.5 - scale * (i + 0.5)) / wide, cubic) / total);
		sum += (double)weights[at];
	}
	assert_true(fabs(sum - 1) < 1e-6);
}

static float weighted(const float *weights, uint32_t size, const float *values, size_t step)
{
	float sum = 0;

	for (uint32_t k = 0; k < size; k++)
		sum += weights[k] * values[k * step];
	return sum;
}

/* Resizes as resize_float.h says, in the plainest way. The caller frees the result. */
static float *resize_plainly(const float *pixels, const uint32_t sizes[4], uint32_t channels,
			     bool cubic)
{
	uint32_t width = sizes[0], height = sizes[1], out_width = sizes[2], out_height = sizes[3];
	size_t row = (size_t)width * channels, out_row = (size_t)out_width * channels;
	float *between = malloc(out_height * row * sizeof(float)), weights[200];
	float *output = malloc(out_height * out_row * sizeof(float));

	for (uint32_t y = 0; y < out_height; y++) {
		weights_of(height, out_height, y, cubic, weights);
		for (size_t i = 0; i < row; i++)
			between[y * row + i] = weighted(weights, height, pixels + i, row);
	}
	for (uint32_t x = 0; x < out_width; x++) {
		weights_of(width, out_width, x, cubic, weights);
		for (size_t i = 0; i < (size_t)out_height * channels; i++)
			output[i / channels * out_row + x * channels + i % channels] =
				weighted(weights, width,
					 between + i / channels * row + i % channels, channels);
	}
	free(between);
	return output;
}

/* Any number of channels, enlarged and shrunk by any ratio, has the numbers of the plain method. */
TEST(resizes_equal_the_plain_method)
{
	static const uint32_t sizes[][4] = {{37, 53, 20, 31}, {9, 7, 23, 40},   {1, 1, 5, 3},
					    {64, 3, 1, 1},    {130, 40, 67, 9}, {70, 18, 70, 36}};
	static float pixels[130 * 40 * 32];
	const float fill = 0;

	for (size_t i = 0; i < sizeof(pixels) / sizeof(*pixels); i++)
		pixels[i] = (float)(int32_t)random_u32(&rng) / 1000;
	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++)
		for (uint32_t channels = 1; channels <= 32; channels += 1 + channels / 3) {
			const uint32_t *s = sizes[i / 2];
			struct packimg_raster raster =
				raster_of(pixels, s[0], s[1], channels, PACKIMG_ELEMENT_F32);
			struct geometry geometry;
			uint32_t width, height;
			char text[64];

			snprintf(text, sizeof(text), "resize(%ux%u)", s[2], s[3]);
			struct pipeline *pipeline = parse(text);
			float *expected = resize_plainly(pixels, s, channels, i % 2);
			float *got = (float *)run(pipeline, &raster,
						  i % 2 ? PIPELINE_BICUBIC : PIPELINE_BILINEAR, 1,
						  1, &fill, &geometry, &width, &height);

			for (size_t k = 0; k < (size_t)s[2] * s[3] * channels; k++)
				if (fabsf(got[k] - expected[k]) > 1e-6f * 2147484)
					fail_msg("%s of %ux%u, %u channels: value %zu is %.9g, "
						 "not %.9g",
						 text, s[0], s[1], channels, k, (double)got[k],
						 (double)expected[k]);
			free(expected);
			free(got);
			pipeline_free(pipeline);
		}
}

/*
 * A crop of a resize has the same bytes as that part of the whole resize; every element, any number
 * of channels, stored in any direction.
 */
TEST(crops_of_a_resize_equal_the_whole)
{
	static const enum packimg_element elements[] = {PACKIMG_ELEMENT_U8, PACKIMG_ELEMENT_U16,
							PACKIMG_ELEMENT_I16, PACKIMG_ELEMENT_I32,
							PACKIMG_ELEMENT_F32};
	static const uint32_t channels[] = {1, 3, 4, 13, 32};
	enum { SIDE = 40, GRID_X = 61, GRID_Y = 33, X = 19, Y = 11, WIDTH = 23, HEIGHT = 11 };
	struct pipeline *pipelines[] = {parse("resize(61x33)"),
					parse("resize(61x33) center_crop(23x11)")};
	static float values[SIDE * SIDE * 32];
	const uint32_t fill = 0;

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		values[i] = (float)(random_u32(&rng) % 60000);
	for (unsigned i = 0; i < 5 * 5 * 2 * 2; i++) {
		struct packimg_raster raster =
			raster_of(values, SIDE, SIDE, channels[i / 5 % 5], elements[i % 5]);
		size_t pixel = packimg_element_size(raster.element) * raster.channels;
		enum pipeline_filter filter = i / 25 % 2 ? PIPELINE_BICUBIC : PIPELINE_BILINEAR;
		struct geometry geometry;
		uint32_t width, height;

		if (i >= 50) { /* turned */
			raster.data += (SIDE - 1) * pixel;
			raster.step_y = -raster.step_x;
			raster.step_x = (ptrdiff_t)(SIDE * pixel);
		}
		uint8_t *whole =
			run(pipelines[0], &raster, filter, 1, 1, &fill, &geometry, &width, &height);
		assert_true(width == GRID_X && height == GRID_Y);
		uint8_t *part =
			run(pipelines[1], &raster, filter, 1, 1, &fill, &geometry, &width, &height);
		assert_true(width == WIDTH && height == HEIGHT);
		for (uint32_t y = 0; y < HEIGHT; y++)
			assert_memory_equal(part + y * WIDTH * pixel,
					    whole + ((Y + y) * GRID_X + X) * pixel, WIDTH * pixel);
		free(part);
		free(whole);
	}
	pipeline_free(pipelines[0]);
	pipeline_free(pipelines[1]);
}

/* The pixels that a computed resize makes are limited, if later steps show them. */
TEST(computed_pictures_are_limited)
{
	static const struct {
		const char *text;
		enum pipeline_filter filter;
		uint32_t width;
		int result;
	} cases[] = {
		{"resize(4096) resize(8)", PIPELINE_BILINEAR, 3000, -E2BIG},
		{"resize(4096) resize(8)", PIPELINE_BICUBIC, 3000, -E2BIG},
		{"resize(4096) resize(8)", PIPELINE_NEAREST, 3000, 0},
		{"resize(4096) resize(8)", PIPELINE_BILINEAR, 1000, 0},
		{"resize(4096) center_crop(8)", PIPELINE_BILINEAR, 3000, 0},
	};
	struct raster_resampler resampler;

	raster_resampler_init(&resampler, CPU_ISA_C);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pipeline *pipeline = parse(cases[i].text);
		struct packimg_region region;
		struct geometry geometry;

		assert_int_equal(geometry_make(pipeline, cases[i].width, 1000, 1, 0, 0, NULL,
					       &geometry, NULL),
				 0);
		assert_int_equal(raster_resampler_begin(&resampler, &geometry, cases[i].width, 1000,
							cases[i].filter, &region),
				 cases[i].result);
		pipeline_free(pipeline);
	}
	raster_resampler_deinit(&resampler);
}

/* Nothing is read after the last pixel, where an inaccessible page follows. */
TEST(reads_end_with_the_raster)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint32_t fill = 0;

	assert_true(pages != MAP_FAILED);
	assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
	for (uint32_t side = 1; side <= 40; side++) {
		struct packimg_raster raster = raster_of(pages + page - (size_t)side * side, side,
							 side, 1, PACKIMG_ELEMENT_U8);
		struct pipeline *pipeline = parse("resize(37x19) hflip vflip");
		struct geometry geometry;
		uint32_t width, height;

		free(run(pipeline, &raster, PIPELINE_NEAREST, side, 0, &fill, &geometry, &width,
			 &height));
		pipeline_free(pipeline);
	}
	munmap(pages, 2 * page);
}

/* Only the pixels that the sample shows are decoded; if it shows none, nothing is decoded. */
TEST(regions_are_exact)
{
	static const struct {
		const char *text;
		struct packimg_region region;
		enum pipeline_filter filter;
	} cases[] = {
		{"center_crop(30x20) hflip", {35, 30, 30, 20}, PIPELINE_NEAREST},
		{"resize(50x40) center_crop(10)", {40, 30, 19, 19}, PIPELINE_NEAREST},
		{"resize(50x40) center_crop(10)", {39, 29, 22, 22}, PIPELINE_BILINEAR},
		{"resize(50x40) center_crop(10)", {37, 27, 26, 26}, PIPELINE_BICUBIC},
		{"resize(100x80) center_crop(10)", {45, 35, 10, 10}, PIPELINE_BICUBIC},
		{"pad(200) center_crop(100x60)", {0, 10, 100, 60}, PIPELINE_NEAREST},
		{"random_rotation(10) center_crop(10)", {0, 0, 100, 80}, PIPELINE_NEAREST},
	};
	struct packimg_region region;
	struct geometry geometry;
	struct raster_resampler resampler;

	raster_resampler_init(&resampler, CPU_ISA_C);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pipeline *pipeline = parse(cases[i].text);

		assert_int_equal(geometry_make(pipeline, 100, 80, 1, 0, 0, NULL, &geometry, NULL),
				 0);
		assert_int_equal(raster_resampler_begin(&resampler, &geometry, 100, 80,
							cases[i].filter, &region),
				 0);
		assert_memory_equal(&region, &cases[i].region, sizeof(region));
		pipeline_free(pipeline);
	}
	struct pipeline *pipeline = parse("pad(200) random_crop(50) center_crop(2)");
	struct packimg_raster none = {.channels = 1, .element = PACKIMG_ELEMENT_I32};
	int32_t fill = -5, output[4];
	unsigned empty = 0;

	for (uint64_t seed = 0; seed < 32; seed++) {
		assert_int_equal(
			geometry_make(pipeline, 100, 80, seed, 0, 0, NULL, &geometry, NULL), 0);
		assert_int_equal(raster_resampler_begin(&resampler, &geometry, 100, 80,
							PIPELINE_NEAREST, &region),
				 0);
		if (region.width > 0)
			continue;
		empty++;
		assert_int_equal(raster_resampler_run(&resampler, &none, &fill, output), 0);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(output[i], fill);
	}
	assert_in_range(empty, 10, 32);
	pipeline_free(pipeline);
	raster_resampler_deinit(&resampler);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
