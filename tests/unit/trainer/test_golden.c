/*
 * The trainer against PyTorch: one forward and backward pass of each network, and a short run of
 * SGD with everything that a recipe adds to it; recipes/cifar10.ini against the training that it is
 * after; layers that freeze as Composer freezes them. tests/golden/networks/make.py and
 * tests/golden/freezing/make.py made the references in double precision.
 */
#include "tests/unit/trainer/trainer_test.h"
#include "trainer/algorithms/freeze_layers.h"
#include "trainer/algorithms/optim.h"

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
	assert_int_equal(compared, json_object_size(digests));
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

/* As torchvision or timm has it, by the name that make.py gives it. */
struct passed {
	const char *file;
	const char *keys;
	uint32_t side;
	double logits, gradients; /* tolerances; of gradients, relative to the norm */
};

static void check_pass(const struct passed *network)
{
	enum { COUNT = 4 };
	const uint32_t side = network->side;
	struct fixture fixture;
	struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	json_t *json = load(network->file);
	fixture_init(&fixture, network->keys, 10, &sgd);
	golden_fill(&fixture, 1);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, side, 0.1, false);
	uint8_t *pixels = malloc(COUNT * side * side * 3);
	int32_t labels[COUNT];
	golden_images(1, "images", COUNT, side, pixels);
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
	run_logits(graph, json_object_get(json, "logits"), COUNT, network->logits);
	compare(&fixture, json_object_get(json, "gradients"), DEVICE_GRAD, network->gradients);
	compare(&fixture, json_object_get(json, "buffers"), DEVICE_VALUE, 1e-4);
	size_t parameters = 0;
	for (size_t i = 0; i < device_params_count(fixture.params); i++)
		parameters += device_param_spec(device_params_at(fixture.params, i))->kind !=
				      DEVICE_BUFFER &&
			      !device_param_spec(device_params_at(fixture.params, i))->constant;
	assert_int_equal(parameters, (size_t)number(json, "parameters"));
	device_graph_free(graph);

	graph = fixture_graph(&fixture, DEVICE_EVAL, COUNT, side, 0, false);
	assert_int_equal(device_feed(graph, &batch, &ticket), 0);
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &step), 0);
	assert_int_equal(device_results(graph, step, true, &results), 0);
	near(results.loss, number(json, "eval_loss"), 1e-3 * number(json, "eval_loss"),
	     "loss of the evaluation");
	run_logits(graph, json_object_get(json, "eval_logits"), COUNT, 10 * network->logits);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	free(pixels);
	json_decref(json);
}

static void test_networks(void **state)
{
	/*
	 * by how much, relative to the norm, PyTorch's own gradients in fp32 differ from those in
	 * double: there ReLUs of many layers flip by rounding
	 */
	const double deep = 4e-2;
	const struct passed networks[] = {
		{"resnet18.json", "model.name=resnet18", 64, 1e-3, 2e-3},
		{"resnet50_v1.json", "model.name=resnet50 model.stride_in=1x1", 64, 2e-3, deep},
		{"resnet50d.json", "model.name=resnet50 model.stem=deep model.downsample=average",
		 67, 2e-3, deep},
		{"resnet18_blur.json", "model.name=resnet18 model.blur=all", 64, 1e-3, 2e-3},
		{"resnext50_32x4d.json", "model.name=resnext50_32x4d", 64, 2e-3, deep},
		{"vit_tiny.json", "model.name=vit_tiny_patch16 model.image_size=64", 64, 1e-3,
		 2e-3},
		{"vit_tiny_resized.json", "model.name=vit_tiny_patch16 model.image_size=64", 96,
		 1e-3, 2e-3},
		{"vit_tiny_scaled.json",
		 "model.name=vit_tiny_patch16 model.image_size=64 model.layer_scale=1e-5", 64, 1e-3,
		 2e-3},
		{"vit_tiny_average.json",
		 "model.name=vit_tiny_patch16 model.image_size=32 model.patch=4 "
		 "model.pool=average",
		 32, 1e-3, 2e-3},
		{"seresnet50.json", "model.name=resnet50 model.squeeze_excite=yes", 64, 2e-3, deep},
		{"convnext_tiny.json", "model.name=convnext_tiny", 64, 1e-3, 2e-3},
		{"wide_resnet50_2.json", "model.name=wide_resnet50_2", 64, 2e-3, deep},
	};

	for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++)
		check_pass(&networks[i]);
}

/* Steps of training whose losses and learning rates a reference has; each is an epoch. */
struct course {
	const struct recipe *recipe;
	struct device_graph *graph;
	const json_t *reference;
	uint64_t seed; /* of images and labels */
	uint32_t count, side;
	void (*prepare)(struct course *course, size_t step); /* the step that follows, or NULL */
};

static void follow(struct course *course, double tolerance)
{
	const json_t *losses = json_object_get(course->reference, "losses"),
		     *rates = json_object_get(course->reference, "lr");
	uint8_t *pixels = malloc((size_t)course->count * course->side * course->side * 3);
	int32_t *labels = malloc(course->count * sizeof(*labels));
	struct schedule schedule;
	schedule_init(&schedule, course->recipe);
	for (size_t i = 0; i < json_array_size(losses); i++) {
		char name[32];
		struct device_hyper hyper;
		struct device_results results;
		uint64_t ticket, step;
		if (course->prepare)
			course->prepare(course, i);
		snprintf(name, sizeof(name), "images %zu", i);
		golden_images(course->seed, name, course->count, course->side, pixels);
		snprintf(name, sizeof(name), "labels %zu", i);
		golden_labels(course->seed, name, course->count, labels);
		optim_hyper(course->recipe, &schedule, i + 1, 1, &hyper);
		near(hyper.lr[MODEL_WEIGHTS], json_number_value(json_array_get(rates, i)), 1e-7,
		     "learning rate");
		struct device_batch batch = {.images = pixels,
					     .labels = labels,
					     .count = course->count,
					     .channels = 3,
					     .element = DEVICE_ELEMENT_U8};
		assert_int_equal(device_feed(course->graph, &batch, &ticket), 0);
		assert_int_equal(device_step(course->graph, &hyper, &step), 0);
		assert_int_equal(device_results(course->graph, step, true, &results), 0);
		near(results.loss, json_number_value(json_array_get(losses, i)), tolerance, name);
	}
	free(pixels);
	free(labels);
}

/* 12 steps are an epoch of 12 batches here, so that epochs of the schedule are twelfths. */
static void test_trajectory(void **state)
{
	enum { COUNT = 8, SIDE = 16, STEPS = 12 };
	struct fixture fixture;
	struct device_optimizer_spec spec;
	json_t *json = load("trajectory.json");
	struct recipe recipe;
	char error[RECIPE_ERROR_MAX];
	static const char *const settings[] = {
		"train.epochs=12",   "optim.lr=0.2",         "optim.weight_decay=5e-3",
		"schedule.warmup=4", "schedule.name=cosine", "schedule.final=0.1",
		"train.ema=0.9",
	};
	assert_int_equal(recipe_init(&recipe), 0);
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		assert_int_equal(recipe_override(&recipe, settings[i], error), 0);
	optim_spec(&recipe, &spec);
	fixture_init(&fixture, "model.name=resnet_cifar model.depth=8", 10, &spec);
	golden_fill(&fixture, 2);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, SIDE, 0.1, false);
	follow(&(struct course){.recipe = &recipe,
				.graph = graph,
				.reference = json,
				.seed = 2,
				.count = COUNT,
				.side = SIDE},
	       5e-3);
	compare(&fixture, json_object_get(json, "values"), DEVICE_VALUE, 1e-2);
	compare(&fixture, json_object_get(json, "ema"), DEVICE_EMA, 1e-2);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	recipe_deinit(&recipe);
	json_decref(json);
}

/*
 * The shipped recipe at a tenth of its rate: network, rates and decays by group, what rests after
 * some epochs, Lookahead.
 */
static void test_airbench(void **state)
{
	enum { COUNT = 8, SIDE = 24 };
	static const char settings[] = RECIPES "/cifar10.ini optim.lr=0.15 model.width=0.25";
	struct fixture fixture;
	struct device_optimizer_spec spec;
	struct recipe recipe;
	char error[RECIPE_ERROR_MAX];
	json_t *json = load("airbench.json");
	assert_int_equal(recipe_init(&recipe), 0);
	if (recipe_load(&recipe, RECIPES "/cifar10.ini", error))
		fail_msg("%s", error);
	optim_spec(&recipe, &spec);
	recipe_deinit(&recipe);
	fixture_init(&fixture, settings, 10, &spec);
	golden_fill(&fixture, 3);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, SIDE,
						   fixture.recipe.train.label_smoothing, false);
	follow(&(struct course){.recipe = &fixture.recipe,
				.graph = graph,
				.reference = json,
				.seed = 3,
				.count = COUNT,
				.side = SIDE},
	       1e-5);
	compare(&fixture, json_object_get(json, "values"), DEVICE_VALUE, 1e-4);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	json_decref(json);
}

/* A number of layers for each of the steps, as Composer freezes them. */
static void compare_depths(const json_t *json, uint32_t layers)
{
	const json_t *depths = json_object_get(json, "depths");
	const struct recipe_train recipe = {.freeze_start = number(json, "start"),
					    .freeze_level = number(json, "level")};
	size_t steps = json_array_size(depths);
	assert_int_equal(steps, (size_t)number(json, "steps"));
	for (size_t i = 0; i < steps; i++)
		assert_int_equal(freeze_layers_depth(&recipe, i, steps,
						     (uint64_t)number(json, "epoch"), layers),
				 json_integer_value(json_array_get(depths, i)));
}

struct freezing {
	struct course course;
	struct fixture fixture;
	struct freeze_layers layers;
};

static void prepare_frozen(struct course *course, size_t step)
{
	struct freezing *freezing = (struct freezing *)course;
	uint32_t depth = (uint32_t)json_integer_value(
		json_array_get(json_object_get(course->reference, "depths"), step));
	if (course->graph && depth == freezing->layers.depth)
		return;
	freeze_layers_apply(&freezing->layers, freezing->fixture.params, depth);
	device_graph_free(course->graph);
	course->graph = fixture_graph(&freezing->fixture, DEVICE_TRAIN, course->count, course->side,
				      0.1, false);
}

static void test_freezing(void **state)
{
	struct device_optimizer_spec spec;
	json_t *json = load("../freezing/freezing.json"), *cases = json_object_get(json, "cases"),
	       *reference = json_object_get(json, "course");
	struct freezing freezing = {.course = {.recipe = &freezing.fixture.recipe,
					       .reference = reference,
					       .seed = 2,
					       .count = 8,
					       .side = 16,
					       .prepare = prepare_frozen}};
	struct recipe recipe;
	char error[RECIPE_ERROR_MAX];
	static const char settings[] =
		"model.name=resnet_cifar model.depth=8 schedule.name=constant optim.lr=0.01 "
		"optim.weight_decay=5e-3 train.freeze_level=1 train.freeze_start=0.2";
	assert_int_equal(json_array_size(cases), 5);
	for (size_t i = 0; i < 5; i++)
		compare_depths(json_array_get(cases, i),
			       (uint32_t)number(json_array_get(cases, i), "layers"));
	assert_int_equal(recipe_init(&recipe), 0);
	assert_int_equal(recipe_override(&recipe, "optim.weight_decay=5e-3", error), 0);
	optim_spec(&recipe, &spec);
	fixture_init(&freezing.fixture, settings, 10, &spec);
	golden_fill(&freezing.fixture, 2);
	assert_int_equal(freeze_layers_init(&freezing.layers, &freezing.fixture.recipe.train,
					    freezing.fixture.params),
			 0);
	assert_int_equal(freezing.layers.count, 19);
	compare_depths(reference, freezing.layers.count);
	follow(&freezing.course, 1e-3);
	compare(&freezing.fixture, json_object_get(reference, "values"), DEVICE_VALUE, 3e-4);
	device_graph_free(freezing.course.graph);
	freeze_layers_deinit(&freezing.layers);
	fixture_deinit(&freezing.fixture);
	recipe_deinit(&recipe);
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freezing),
		cmocka_unit_test(test_networks),
		cmocka_unit_test(test_trajectory),
		cmocka_unit_test(test_airbench),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
