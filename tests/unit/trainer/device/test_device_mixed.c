/*
 * Batches that the daemon blends (mix_images()) against those that the CPU backend blends during
 * upload: floats are equal, bytes differ by their rounding.
 */
#include "format/augment/mix_images.h"
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

enum { SAMPLES = 4, HEIGHT = 13, WIDTH = 11, CHANNELS = 3, IMAGE = HEIGHT * WIDTH * CHANNELS };

/* Each of a pair has the same share and box, as in a feed. */
static const struct mix_blend blends[SAMPLES / 2] = {
	{.share = 0.3178f}, {.share = 1, .top = 2, .bottom = 9, .left = 5, .right = 11}};

/* Returns the device's input values; of bytes without normalisation. */
static void upload(const void *images, enum device_element element, float *ret_values)
{
	struct device_input_spec input = {.name = "input",
					  .shape = {SAMPLES, HEIGHT, WIDTH, CHANNELS},
					  .std = {1, 1, 1},
					  .resamples = true};
	struct device_graph_options options = {.mode = DEVICE_EVAL, .keep_all = true};
	struct device_blend device_blends[SAMPLES];
	struct device_batch batch = {.images = images,
				     .count = SAMPLES,
				     .channels = CHANNELS,
				     .element = element,
				     .blends = device_blends};
	struct device *device = open_device(DEVICE_FP32, 0);
	struct device_params *params;
	struct device_graph *graph;
	char error[DEVICE_ERROR_MAX];
	uint64_t number;
	for (uint32_t i = 0; i < SAMPLES; i++) {
		const struct mix_blend *blend = &blends[i / 2];
		device_blends[i] = (struct device_blend){i ^ 1,         blend->share, blend->top,
							 blend->bottom, blend->left,  blend->right};
	}
	assert_int_equal(device_params_new(device, &params), 0);
	assert_int_equal(device_params_allocate(params, NULL), 0);
	assert_int_equal(device_graph_new(params, &options, &graph), 0);
	struct device_value *value = device_input(graph, &input);
	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	if (device_upload(graph, &batch, &number) < 0)
		fail_msg("%s", device_error(device));
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &number), 0);
	assert_int_equal(device_value_read(graph, value, DEVICE_VALUE, ret_values), 0);
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
}

/* Blends as the daemon does. */
static void mix(void *images, enum pipeline_element element, size_t image_size)
{
	const struct pipeline_shape shape = {.height = HEIGHT,
					     .width = WIDTH,
					     .channels = CHANNELS,
					     .element = element,
					     .layout = PIPELINE_NHWC,
					     .sample_size = image_size};
	for (uint32_t i = 0; i < SAMPLES; i += 2)
		mix_images(cpu_isa_chosen(), &shape, &blends[i / 2],
			   (char *)images + i * image_size, (char *)images + (i + 1) * image_size);
}

TEST(floats_are_equal)
{
	float images[SAMPLES * IMAGE], values[SAMPLES * IMAGE];
	for (size_t i = 0; i < SAMPLES * IMAGE; i++)
		images[i] = (float)(4 * uniform(3, i) - 2);
	upload(images, DEVICE_ELEMENT_F32, values);
	mix(images, PIPELINE_F32, IMAGE * sizeof(float));
	assert_memory_equal(images, values, sizeof(values));
}

TEST(bytes_differ_by_their_rounding)
{
	uint8_t images[SAMPLES * IMAGE];
	float values[SAMPLES * IMAGE];
	for (size_t i = 0; i < SAMPLES * IMAGE; i++)
		images[i] = (uint8_t)(256 * uniform(4, i));
	upload(images, DEVICE_ELEMENT_U8, values);
	mix(images, PIPELINE_U8, IMAGE);
	for (size_t i = 0; i < SAMPLES * IMAGE; i++)
		assert_true(fabsf(values[i] - images[i]) <= 0.5f + 1e-4f);
}
