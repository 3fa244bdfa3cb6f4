#include "tests/unit/trainer/golden.h"
#include "tests/test.h"
#include "trainer/algorithms/optim.h"
#include "trainer/device/steps.h"

#include <math.h>

json_t *golden_load(const char *name)
{
	char path[4096];
	json_error_t error;
	snprintf(path, sizeof(path), "%s/%s", GOLDEN, name);
	json_t *json = json_load_file(path, 0, &error);
	if (!json)
		fail_msg("%s: %s", path, error.text);
	return json;
}

double golden_number(const json_t *json, const char *key)
{
	return json_number_value(json_object_get(json, key));
}

void golden_near(double value, double expected, double tolerance, const char *what)
{
	if (!(fabs(value - expected) <= tolerance))
		fail_msg("%s is %.9g, expected %.9g within %.3g", what, value, expected, tolerance);
}

void golden_compare(struct fixture *fixture, const json_t *digests, enum device_slot slot,
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
		double square = 0, norm = golden_number(digest, "norm");
		for (size_t i = 0; i < n; i++)
			square += (double)values[i] * values[i];
		golden_near(sqrt(square), norm, tolerance * norm, name);
		for (int k = 0; k < 4; k++)
			golden_near(values[at[k]],
				    json_number_value(
					    json_array_get(json_object_get(digest, "entries"), k)),
				    tolerance * norm, name);
		free(values);
		compared++;
	}
	assert_int_equal(compared, json_object_size(digests));
}

void golden_follow(struct golden_trajectory *trajectory, double tolerance)
{
	const json_t *losses = json_object_get(trajectory->reference, "losses"),
		     *rates = json_object_get(trajectory->reference, "lr");
	uint8_t *pixels =
		malloc((size_t)trajectory->count * trajectory->side * trajectory->side * 3);
	int32_t *labels = malloc(trajectory->count * sizeof(*labels));
	struct schedule schedule;
	schedule_init(&schedule, trajectory->recipe);
	for (size_t i = 0; i < json_array_size(losses); i++) {
		char name[32];
		struct device_hyper hyper;
		struct device_results results;
		uint64_t ticket, step;
		if (trajectory->prepare)
			trajectory->prepare(trajectory, i);
		snprintf(name, sizeof(name), "images %zu", i);
		golden_images(trajectory->seed, name, trajectory->count, trajectory->side, pixels);
		snprintf(name, sizeof(name), "labels %zu", i);
		golden_labels(trajectory->seed, name, trajectory->count, labels);
		optim_hyper(trajectory->recipe, &schedule, i + 1, 1, &hyper);
		golden_near(hyper.lr[MODEL_WEIGHTS], json_number_value(json_array_get(rates, i)),
			    1e-7, "learning rate");
		struct device_batch batch = {.images = pixels,
					     .labels = labels,
					     .count = trajectory->count,
					     .channels = 3,
					     .element = DEVICE_ELEMENT_U8};
		assert_int_equal(device_upload(trajectory->graph, &batch, &ticket), 0);
		assert_int_equal(device_step(trajectory->graph, &hyper, &step), 0);
		assert_int_equal(device_results(trajectory->graph, step, true, &results), 0);
		golden_near(results.loss, json_number_value(json_array_get(losses, i)), tolerance,
			    name);
	}
	free(pixels);
	free(labels);
}
