/*
 * The trainer against PyTorch: one forward and backward pass of ResNet-18, and a short run of SGD
 * with everything that a recipe adds to it. tests/golden/resnet18/make.py made the references in
 * double precision.
 */
#include "optim.h"
#include "trainer_test.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *load(const char *name)
{
	char path[4096];
	json_error_t error;
	snprintf(path, sizeof(path), "%s/%s", GOLDEN, name);
	json_t *json = json_load_file(path, 0, &error);
	if (!json)
		fail_msg("%s: %s", path, error.text);
	return json;
}

static double number(const json_t *json, const char *key)
{
	return json_number_value(json_object_get(json, key));
}

static void near(double value, double expected, double tolerance, const char *what)
{
	if (!(fabs(value - expected) <= tolerance))
		fail_msg("%s is %.9g, expected %.9g within %.3g", what, value, expected, tolerance);
}

/* Compares a slot of every parameter that the digests name; tolerance relative to the norm. */
static void compare(struct fixture *fixture, const json_t *digests, enum device_slot slot,
		    double tolerance)
{
	const char *name;
	json_t *digest;
	size_t compared = 0;
	json_object_foreach((json_t *)digests, name, digest)
	{
		struct device_param *param = device_params_find(fixture->params, name);
		if (!param)
			fail_msg("the model has no %s", name);
		size_t n = device_param_elements(param), at[4] = {0, n / 3, n / 2, n - 1};
		float *values = malloc(n * sizeof(float));
		assert_int_equal(device_param_read(param, slot, values), 0);
		double square = 0, norm = number(digest, "norm");
		for (size_t i = 0; i < n; i++)
			square += (double)values[i] * values[i];
		near(sqrt(square), norm, tolerance * norm, name);
		for (int k = 0; k < 4; k++)
			near(values[at[k]],
			     json_number_value(
				     json_array_get(json_object_get(digest, "entries"), k)),
			     tolerance * norm, name);
		free(values);
		compared++;
	}
	assert_true(compared > 0);
}

static void run_logits(struct device_graph *graph, const json_t *expected, uint32_t count,
		       double tolerance)
{
	float *logits = malloc(count * 10 * sizeof(float));
	assert_int_equal(device_logits(graph, logits), 0);
	for (uint32_t i = 0; i < count * 10; i++)
		near(logits[i], json_number_value(json_array_get(expected, i)), tolerance, "logit");
	free(logits);
}

static void resnet18(void **state)
{
	enum { COUNT = 4, SIDE = 64 };
	struct fixture fixture;
	struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	json_t *json = load("reference.json");
	fixture_init(&fixture, "model.name=resnet18", 10, &sgd);
	golden_fill(&fixture, 1);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, SIDE, 0.1, false);
	uint8_t *pixels = malloc(COUNT * SIDE * SIDE * 3);
	int32_t labels[COUNT];
	golden_images(1, "images", COUNT, SIDE, pixels);
	golden_labels(1, "labels", COUNT, labels);
	struct device_batch batch = {.images = pixels,
				     .labels = labels,
				     .count = COUNT,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_U8};
	struct device_results results;
	uint64_t ticket, step;
	assert_int_equal(device_feed(graph, &batch, &ticket), 0);
	assert_int_equal(device_step(graph, NULL, &step), 0);
	assert_int_equal(device_results(graph, step, true, &results), 0);
	near(results.loss, number(json, "loss"), 1e-4, "loss");
	run_logits(graph, json_object_get(json, "logits"), COUNT, 1e-3);
	compare(&fixture, json_object_get(json, "gradients"), DEVICE_GRAD, 2e-3);
	compare(&fixture, json_object_get(json, "buffers"), DEVICE_VALUE, 1e-4);
	assert_int_equal(json_object_size(json_object_get(json, "gradients")), 62);
	device_graph_free(graph);

	graph = fixture_graph(&fixture, DEVICE_EVAL, COUNT, SIDE, 0, false);
	assert_int_equal(device_feed(graph, &batch, &ticket), 0);
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &step), 0);
	assert_int_equal(device_results(graph, step, true, &results), 0);
	near(results.loss, number(json, "eval_loss"), 1e-3 * number(json, "eval_loss"),
	     "loss of the evaluation");
	run_logits(graph, json_object_get(json, "eval_logits"), COUNT, 1e-2);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	free(pixels);
	json_decref(json);
}

/* 12 steps are an epoch of 12 batches here, so that epochs of the schedule are twelfths. */
static void trajectory(void **state)
{
	enum { COUNT = 8, SIDE = 16, STEPS = 12 };
	struct fixture fixture;
	struct device_optimizer_spec spec;
	struct schedule schedule;
	json_t *json = load("trajectory.json");
	struct recipe recipe;
	char error[RECIPE_ERROR_MAX];
	static const char *const settings[] = {
		"train.epochs=12",   "optim.lr=0.2",	     "optim.weight_decay=5e-3",
		"schedule.warmup=4", "schedule.name=cosine", "schedule.final=0.1",
		"train.ema=0.9",
	};
	assert_int_equal(recipe_init(&recipe), 0);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		assert_int_equal(recipe_override(&recipe, settings[i], error), 0);
	optim_spec(&recipe, &spec);
	schedule_init(&schedule, &recipe);
	fixture_init(&fixture, "model.name=resnet_cifar model.depth=8", 10, &spec);
	golden_fill(&fixture, 2);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, SIDE, 0.1, false);
	for (int i = 0; i < STEPS; i++) {
		uint8_t pixels[COUNT * SIDE * SIDE * 3];
		int32_t labels[COUNT];
		char name[32];
		struct device_hyper hyper;
		struct device_results results;
		uint64_t ticket, step;
		snprintf(name, sizeof(name), "images %d", i);
		golden_images(2, name, COUNT, SIDE, pixels);
		snprintf(name, sizeof(name), "labels %d", i);
		golden_labels(2, name, COUNT, labels);
		optim_hyper(&recipe, &schedule, (uint64_t)i + 1, 1, &hyper);
		near(hyper.lr[MODEL_WEIGHTS],
		     json_number_value(json_array_get(json_object_get(json, "lr"), (size_t)i)),
		     1e-7, "learning rate");
		struct device_batch batch = {.images = pixels,
					     .labels = labels,
					     .count = COUNT,
					     .channels = 3,
					     .element = DEVICE_ELEMENT_U8};
		assert_int_equal(device_feed(graph, &batch, &ticket), 0);
		assert_int_equal(device_step(graph, &hyper, &step), 0);
		assert_int_equal(device_results(graph, step, true, &results), 0);
		near(results.loss,
		     json_number_value(json_array_get(json_object_get(json, "losses"), (size_t)i)),
		     5e-3, name);
	}
	compare(&fixture, json_object_get(json, "values"), DEVICE_VALUE, 1e-2);
	compare(&fixture, json_object_get(json, "ema"), DEVICE_EMA, 1e-2);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	recipe_deinit(&recipe);
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resnet18),
		cmocka_unit_test(trajectory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
