#include "tests/unit/trainer/trainer_test.h"
#include "tests/test.h"
#include "trainer/algorithms/layer_decay.h"
#include "trainer/model/random.h"

#include <math.h>

const double golden_mean[3] = {120, 115, 100}, golden_std[3] = {60, 58, 57};

void fixture_init(struct fixture *fixture, const char *settings, uint32_t classes,
		  const struct device_optimizer_spec *optimizer)
{
	char error[2048] = "", text[1024];
	struct device_options options = {.precision = DEVICE_FP32, .threads = 2};
	*fixture = (struct fixture){0};
	assert_int_equal(recipe_init(&fixture->recipe), 0);
	snprintf(text, sizeof(text), "%s", settings);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		if ((strchr(word, '=') ? recipe_override : recipe_load)(&fixture->recipe, word,
									error))
			fail_msg("%s", error);
	if (device_open("cpu", &options, &fixture->device, error) ||
	    device_params_new(fixture->device, &fixture->params) ||
	    model_new(&fixture->recipe.model, classes, fixture->params, &fixture->model, error))
		fail_msg("%s", error);
	if (layer_decay_apply(&fixture->recipe, fixture->model, fixture->params) ||
	    device_params_allocate(fixture->params, optimizer))
		fail_msg("%s", device_error(fixture->device));
}

void fixture_deinit(struct fixture *fixture)
{
	model_free(fixture->model);
	device_params_free(fixture->params);
	device_close(fixture->device);
	recipe_deinit(&fixture->recipe);
}

struct device_graph *fixture_graph(struct fixture *fixture, enum device_mode mode, uint32_t count,
				   uint32_t side, double smoothing, bool keep_all)
{
	struct device_graph_options options = {
		.mode = mode,
		.keep_all = keep_all,
		.recompute = (uint32_t)fixture->recipe.train.recompute,
	};
	struct model_input input = {
		.count = count, .height = side, .width = side, .loss.smoothing = (float)smoothing};
	struct device_graph *graph;
	char error[DEVICE_ERROR_MAX] = "";
	memcpy(input.mean, golden_mean, sizeof(input.mean));
	memcpy(input.std, golden_std, sizeof(input.std));
	assert_int_equal(device_graph_new(fixture->params, &options, &graph), 0);
	model_record(fixture->model, graph, &input);
	if (device_graph_plan(graph, error))
		fail_msg("%s", error);
	return graph;
}

void golden_fill(struct fixture *fixture, uint64_t seed)
{
	assert_int_equal(model_initialize_constants(fixture->model), 0);
	for (size_t i = 0; i < device_params_count(fixture->params); i++) {
		struct device_param *param = device_params_at(fixture->params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		if (spec->constant)
			continue;
		size_t count = device_param_elements(param), length = strlen(spec->name);
		uint64_t key = random_key(seed, spec->name);
		double offset = 0, scale = 0.25;
		if (spec->kind == DEVICE_CONV_WEIGHT)
			scale = sqrt(6.0 /
				     ((double)spec->shape[1] * spec->shape[2] * spec->shape[3]));
		else if (spec->kind == DEVICE_LINEAR_WEIGHT)
			scale = sqrt(3.0 / spec->shape[1]);
		else if (length > 6 && strcmp(spec->name + length - 6, "weight") == 0)
			offset = 1;
		if (spec->kind == DEVICE_BUFFER) {
			offset = strcmp(spec->name + length - 3, "var") == 0;
			scale = 0;
		}
		float *values = malloc(count * sizeof(float));
		for (size_t k = 0; k < count; k++)
			values[k] = (float)(offset + scale * random_uniform(key, k));
		assert_int_equal(device_param_write(param, DEVICE_VALUE, values), 0);
		free(values);
	}
}

void golden_images(uint64_t seed, const char *name, uint32_t count, uint32_t side,
		   uint8_t *ret_pixels)
{
	uint64_t key = random_key(seed, name);
	size_t pixels = (size_t)count * side * side * 3, row = (size_t)side * 3, image = row * side;
	uint8_t *noise = malloc(pixels);
	for (size_t i = 0; i < pixels; i++) {
		uint32_t words[4];
		random_block(key, i, 0, words);
		noise[i] = (uint8_t)(words[0] >> 24);
	}
	for (size_t i = 0; i < pixels; i++) {
		size_t base = i / image * image, y = i % image / row, x = i % row / 3, c = i % 3;
		size_t up = (y + side - 1) % side, left = (x + side - 1) % side;
		unsigned sum = noise[i] + noise[base + up * row + x * 3 + c] +
			       noise[base + y * row + left * 3 + c] +
			       noise[base + up * row + left * 3 + c];
		ret_pixels[i] = (uint8_t)(sum / 4);
	}
	free(noise);
}

void golden_labels(uint64_t seed, const char *name, uint32_t count, int32_t *ret_labels)
{
	uint64_t key = random_key(seed, name);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t words[4];
		random_block(key, i, 0, words);
		ret_labels[i] = (int32_t)(words[0] % 10);
	}
}
