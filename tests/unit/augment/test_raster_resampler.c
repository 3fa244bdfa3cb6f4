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
		    bool bilinear, uint64_t seed, uint64_t sample, const void *fill,
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
							whole->height, bilinear, &region),
				 0);
		assert_true(region.x + region.width <= whole->width &&
			    region.y + region.height <= whole->height);
		struct packimg_raster raster = region_of(whole, &region);

		size = pixel * last->x.count * last->y.count;
		uint8_t *output = malloc(size + 16);

		memset(output, 0xee, size + 16);
		assert_int_equal(raster_resampler_run(&resampler, geometry, whole->width,
						      whole->height, bilinear, &region, &raster,
						      fill, output),
				 0);
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
			uint8_t *got = run(pipeline, &mask, false, seed, seed, &fill, &geometry,
					   &width, &height);

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
			uint16_t *got = (uint16_t *)run(pipeline, &mask, false, seed, seed, &fill,
							&geometry, &width, &height);
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
		uint8_t *got =
			run(pipelines[i], &mask, false, 1, 1, &fill, &geometry, &width, &height);

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
		uint8_t *expected =
			run(pipeline, &one, false, i, 5, fill, &geometry, &width, &height);
		uint8_t *got = run(pipeline, &other, false, i, 5, fill, &geometry, &width, &height);

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

/* Bilinear rasters of integers equal those of f32, rounded; constant rasters do not change. */
TEST(computed_rasters_are_rounded_floats)
{
	enum { WIDTH = 60, HEIGHT = 45 };
	static const enum packimg_element elements[] = {PACKIMG_ELEMENT_U8, PACKIMG_ELEMENT_U16,
							PACKIMG_ELEMENT_I16, PACKIMG_ELEMENT_I32};
	static uint8_t bytes[WIDTH * HEIGHT * 2 * 4];
	static float floats[WIDTH * HEIGHT * 2];

	for (unsigned i = 0; i < sizeof(resizing) / sizeof(*resizing) * 4; i++) {
		enum packimg_element element = elements[i % 4];
		size_t size = packimg_element_size(element);
		struct pipeline *pipeline = parse(resizing[i / 4]);
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
		uint8_t *got = run(pipeline, &whole, true, i, 4, &fill, &geometry, &width, &height);
		float *expected = (float *)run(pipeline, &other, true, i, 4, &fill_float, &geometry,
					       &width, &height);

		for (size_t k = 0; k < (size_t)width * height * 2; k++) {
			int32_t rounded = (int32_t)rint((double)expected[k]);

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
	int32_t *got =
		(int32_t *)run(pipeline, &raster, true, 1, 1, &fill, &geometry, &width, &height);

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
	float *got = (float *)run(pipeline, &raster, true, 1, 1, &fill, &geometry, &width, &height);

	for (unsigned i = 0; i < 16; i++)
		assert_memory_equal(&got[i], &pixels[i % 8], sizeof(float));
	free(got);
	pipeline_free(pipeline);
}

/* Several rows are computed at once; none is written after the last one. */
TEST(resized_rows_end_with_the_picture)
{
	float pixels[7 * 9], output[12 * 5 + 60];
	struct resize_float resize = {0};

	for (unsigned i = 0; i < 7 * 9; i++)
		pixels[i] = 3;
	for (uint32_t height = 1; height <= 5; height++) {
		for (unsigned i = 0; i < 12 * 5 + 60; i++)
			output[i] = -1;
		assert_int_equal(resize_float_run(&resize, pixels, 7, 9, 12, height, output), 0);
		for (unsigned i = 0; i < 12 * 5 + 60; i++)
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
		const uint32_t *s = sizes[i];
		struct resize_float fresh = {0};

		assert_int_equal(resize_float_run(&fresh, pixels, s[0], s[1], s[2], s[3], expected),
				 0);
		assert_int_equal(resize_float_run(&kept, pixels, s[0], s[1], s[2], s[3], output),
				 0);
		assert_memory_equal(output, expected, s[2] * s[3] * sizeof(float));
		resize_float_deinit(&fresh);
	}
	resize_float_deinit(&kept);
}

/* The size of a picture that must be computed as a whole is limited. */
TEST(computed_pictures_are_limited)
{
	struct pipeline *pipeline = parse("resize(4096) center_crop(8)");
	struct packimg_region region;
	struct geometry geometry;
	struct raster_resampler resampler;

	raster_resampler_init(&resampler, CPU_ISA_C);
	assert_int_equal(geometry_make(pipeline, 3000, 1000, 1, 0, 0, NULL, &geometry, NULL), 0);
	assert_int_equal(raster_resampler_begin(&resampler, &geometry, 3000, 1000, true, &region),
			 -E2BIG);
	assert_int_equal(raster_resampler_begin(&resampler, &geometry, 3000, 1000, false, &region),
			 0);
	assert_int_equal(geometry_make(pipeline, 1000, 1000, 1, 0, 0, NULL, &geometry, NULL), 0);
	assert_int_equal(raster_resampler_begin(&resampler, &geometry, 1000, 1000, true, &region),
			 0);
	raster_resampler_deinit(&resampler);
	pipeline_free(pipeline);
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

		free(run(pipeline, &raster, false, side, 0, &fill, &geometry, &width, &height));
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
	} cases[] = {
		{"center_crop(30x20) hflip", {35, 30, 30, 20}},
		{"resize(50x40) center_crop(10)", {40, 30, 19, 19}},
		{"pad(200) center_crop(100x60)", {0, 10, 100, 60}},
		{"random_rotation(10) center_crop(10)", {0, 0, 100, 80}},
	};
	struct packimg_region region;
	struct geometry geometry;
	struct raster_resampler resampler;

	raster_resampler_init(&resampler, CPU_ISA_C);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pipeline *pipeline = parse(cases[i].text);

		assert_int_equal(geometry_make(pipeline, 100, 80, 1, 0, 0, NULL, &geometry, NULL),
				 0);
		assert_int_equal(
			raster_resampler_begin(&resampler, &geometry, 100, 80, false, &region), 0);
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
		assert_int_equal(
			raster_resampler_begin(&resampler, &geometry, 100, 80, false, &region), 0);
		if (region.width > 0)
			continue;
		empty++;
		assert_int_equal(raster_resampler_run(&resampler, &geometry, 100, 80, false,
						      &region, &none, &fill, output),
				 0);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(output[i], fill);
	}
	assert_in_range(empty, 10, 32);
	pipeline_free(pipeline);
	raster_resampler_deinit(&resampler);
}

TEST_MAIN(pipeline_setup, pipeline_teardown)
