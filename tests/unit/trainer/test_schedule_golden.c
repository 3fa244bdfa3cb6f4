/*
 * Learning rate and momentum of schedules, step by step, against PyTorch's and timm's schedulers
 * (results from tests/golden/schedules/make.py).
 */
#include "tests/test.h"
#include "trainer/algorithms/optim.h"

#include <jansson.h>
#include <math.h>

static double largest; /* largest deviation so far */

static void near(double value, double expected, const char *settings, size_t step)
{
	largest = fmax(largest, fabs(value - expected));
	if (!(fabs(value - expected) <= 1e-12))
		fail_msg("%s: step %zu: %.17g, expected %.17g", settings, step, value, expected);
}

static void set(struct recipe *recipe, const char *settings)
{
	char error[RECIPE_ERROR_MAX], text[512];
	snprintf(text, sizeof(text), "%s", settings);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		if (recipe_override(recipe, word, error))
			fail_msg("%s", error);
}

static void check_schedule(const json_t *json)
{
	const char *settings = json_string_value(json_object_get(json, "settings"));
	const json_t *rates = json_object_get(json, "lr"),
		     *momenta = json_object_get(json, "momentum"),
		     *metric = json_object_get(json, "metric");
	double per_epoch = json_number_value(json_object_get(json, "steps_per_epoch"));
	struct plateau plateau = {0};
	struct schedule schedule;
	struct recipe recipe;
	char error[RECIPE_ERROR_MAX];
	assert_int_equal(recipe_init(&recipe), 0);
	set(&recipe, "data.train=x data.val=y");
	set(&recipe, settings);
	if (recipe_check(&recipe, true, error))
		fail_msg("%s: %s", settings, error);
	schedule_init(&schedule, &recipe);
	schedule.plateau = &plateau;
	assert_true(json_array_size(rates) >= 30);
	for (size_t i = 0; i < json_array_size(rates); i++) {
		double epoch = (double)i / per_epoch;
		double highest = recipe.optim.name == DEVICE_SGD ? recipe.optim.momentum
								 : recipe.optim.beta1;
		near(recipe.optim.lr * schedule_factor(&schedule, epoch),
		     json_number_value(json_array_get(rates, i)), settings, i);
		if (momenta)
			near(schedule_momentum(&schedule, epoch, highest),
			     json_number_value(json_array_get(momenta, i)), settings, i);
		if (metric) {
			double value = json_number_value(json_array_get(metric, i));
			bool loss = recipe.schedule.metric == RECIPE_METRIC_LOSS;
			plateau_evaluated(&plateau, &recipe.schedule, loss ? value : 0,
					  loss ? 0 : value);
		}
	}
	recipe_deinit(&recipe);
}

TEST(as_pytorch)
{
	json_error_t error;
	json_t *json = json_load_file(GOLDEN_SCHEDULES, 0, &error);
	if (!json)
		fail_msg("%s: %s", GOLDEN_SCHEDULES, error.text);
	const json_t *cases = json_object_get(json, "cases");
	assert_true(json_array_size(cases) > 0);
	for (size_t i = 0; i < json_array_size(cases); i++)
		check_schedule(json_array_get(cases, i));
	print_message("largest deviation %.3g\n", largest);
	json_decref(json);
}
