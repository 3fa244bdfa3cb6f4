/*
 * Computed rasters against torchvision's resize of float tensors. The argument is the data file
 * made by tests/golden/resize/make_float.py, which describes it.
 */
#include "format/augment/apply/raster_resampler.h"
#include "format/augment/pipeline.h"
#include "tests/test.h"
#include "tests/unit/augment/golden_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *golden_path;

struct resize_case {
	uint32_t channels, width, height, new_width, new_height;
	enum pipeline_filter filter;
};

/* Resizes the raster whose values follow the file's rule. The caller frees the result. */
static void *resize_case_run(const struct resize_case *given, enum packimg_element element)
{
	size_t count = (size_t)given->channels * given->width * given->height;
	size_t size = packimg_element_size(element), pixel = given->channels * size;
	uint8_t *values = malloc(count * size);
	uint8_t *output = malloc((size_t)given->new_width * given->new_height * pixel);
	const float fill = 0;
	struct packimg_region region;
	struct raster_resampler resampler;
	struct geometry geometry;
	char text[64];

	for (size_t i = 0; i < count; i++) {
		uint16_t value = (uint16_t)((uint32_t)(i * 2654435761u) >> 16);
		float number = value;

		memcpy(values + i * size, size == 2 ? (const void *)&value : &number, size);
	}
	const struct packimg_raster raster = {.data = values,
					      .step_x = (ptrdiff_t)pixel,
					      .step_y = (ptrdiff_t)(given->width * pixel),
					      .width = given->width,
					      .height = given->height,
					      .channels = given->channels,
					      .element = element};

	snprintf(text, sizeof(text), "resize(%ux%u)", given->new_width, given->new_height);
	struct pipeline *pipeline = golden_pipeline(text);

	assert_int_equal(geometry_make(pipeline, given->width, given->height, 0, 0, 0, NULL,
				       &geometry, NULL),
			 0);
	raster_resampler_init(&resampler, cpu_isa_chosen());
	assert_int_equal(raster_resampler_begin(&resampler, &geometry, given->width, given->height,
						given->filter, &region),
			 0);
	assert_int_equal(raster_resampler_run(&resampler, &raster, &fill, output), 0);
	raster_resampler_deinit(&resampler);
	pipeline_free(pipeline);
	free(values);
	return output;
}

/*
 * f32 differs by less than 1e-5 of the largest value: torchvision's weights are computed in f32,
 * ours in f64. u16 is f32 rounded; of noise, one in fifty of the values at most is rounded the
 * other way and differs by one.
 */
TEST(resizes_equal_torchvision)
{
	size_t size, total = 0, off = 0;
	double largest = 0;
	uint8_t *data = golden_read(golden_path, &size);
	struct golden golden = {data, data + size};

	assert_memory_equal(golden_take(&golden, 8), "FLTGOLD1", 8);
	for (uint64_t cases = golden_take_number(&golden, 4); cases > 0; cases--) {
		struct resize_case given;
		float expected;

		given.channels = (uint32_t)golden_take_number(&golden, 4);
		given.width = (uint32_t)golden_take_number(&golden, 4);
		given.height = (uint32_t)golden_take_number(&golden, 4);
		given.new_width = (uint32_t)golden_take_number(&golden, 4);
		given.new_height = (uint32_t)golden_take_number(&golden, 4);
		given.filter = (enum pipeline_filter)golden_take_number(&golden, 4);
		size_t count = (size_t)given.channels * given.new_width * given.new_height;
		float *floats = resize_case_run(&given, PACKIMG_ELEMENT_F32);
		uint16_t *whole = resize_case_run(&given, PACKIMG_ELEMENT_U16);

		for (size_t i = 0; i < count; i++) {
			memcpy(&expected, golden_take(&golden, sizeof(expected)), sizeof(expected));
			double error = fabs((double)floats[i] - (double)expected);
			double rounded = fmin(fmax(rint((double)expected), 0), UINT16_MAX);

			largest = error > largest ? error : largest;
			assert_in_range(fabs(whole[i] - rounded), 0, 1);
			off += whole[i] != rounded;
		}
		total += count;
		free(whole);
		free(floats);
	}
	print_message("largest error %.3g of %u, %zu of %zu u16 off by one\n", largest, UINT16_MAX,
		      off, total);
	assert_true(golden.at == golden.end);
	assert_true(largest < 1e-5 * UINT16_MAX);
	assert_in_range(off, 0, total / 50);
	free(data);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s float.bin.zst\n", argv[0]);
		return 2;
	}
	golden_path = argv[1];
	return test_run(NULL, NULL);
}
