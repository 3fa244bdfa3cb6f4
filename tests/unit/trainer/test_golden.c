/*
 * The trainer against PyTorch: a forward and backward pass of each network, a short run of SGD with
 * all options of a recipe, and recipes/cifar10.ini against the training that it reproduces.
 * tests/golden/networks/make.py computed the references in double precision.
 */
#include "tests/test.h"
#include "tests/unit/trainer/golden.h"
#include "trainer/algorithms/optim.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

#include <jansson.h>

static void run_logits(struct device_graph *graph, const json_t *expected, uint32_t count,
		       double tolerance)
{
	float *logits = malloc(count * 10 * sizeof(float));
	assert_int_equal(device_logits(graph, logits), 0);
	for (uint32_t i = 0; i < count * 10; i++)
		golden_near(logits[i], json_number_value(json_array_get(expected, i)), tolerance,
			    "logit");
	free(logits);
}

/* A network of torchvision or timm, under its name in make.py. */
struct golden_network {
	const char *file;
	const char *keys;
	uint32_t side;
	double logits, gradients; /* tolerances; the one of gradients is relative to their norm */
};

static void check_pass(const struct golden_network *network)
{
	enum { COUNT = 4 };
	const uint32_t side = network->side;
	struct fixture fixture;
	struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	json_t *json = golden_load(network->file);
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
	assert_int_equal(device_upload(graph, &batch, &ticket), 0);
	assert_int_equal(device_step(graph, NULL, &step), 0);
	assert_int_equal(device_results(graph, step, true, &results), 0);
	golden_near(results.loss, golden_number(json, "loss"), 1e-4, "loss");
	run_logits(graph, json_object_get(json, "logits"), COUNT, network->logits);
	golden_compare(&fixture, json_object_get(json, "gradients"), DEVICE_GRAD,
		       network->gradients);
	golden_compare(&fixture, json_object_get(json, "buffers"), DEVICE_VALUE, 1e-4);
	size_t parameters = 0;
	for (size_t i = 0; i < device_params_count(fixture.params); i++)
		parameters += device_param_spec(device_params_at(fixture.params, i))->kind !=
				      DEVICE_BUFFER &&
			      !device_param_spec(device_params_at(fixture.params, i))->constant;
	assert_int_equal(parameters, (size_t)golden_number(json, "parameters"));
	device_graph_free(graph);

	graph = fixture_graph(&fixture, DEVICE_EVAL, COUNT, side, 0, false);
	assert_int_equal(device_upload(graph, &batch, &ticket), 0);
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &step), 0);
	assert_int_equal(device_results(graph, step, true, &results), 0);
	golden_near(results.loss, golden_number(json, "eval_loss"),
		    1e-3 * golden_number(json, "eval_loss"), "loss of the evaluation");
	run_logits(graph, json_object_get(json, "eval_logits"), COUNT, 10 * network->logits);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	free(pixels);
	json_decref(json);
}

TEST(networks)
{
	/*
	 * relative error (norm) of PyTorch's fp32 gradients against double precision: in deep
	 * networks, rounding flips some ReLUs
	 */
	const double deep = 4e-2;
	const struct golden_network networks[] = {
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

/* 12 steps here are an epoch of 12 batches, so the schedule counts in twelfths of an epoch. */
TEST(trajectory)
{
	enum { COUNT = 8, SIDE = 16, STEPS = 12 };
	struct fixture fixture;
	struct device_optimizer_spec spec;
	json_t *json = golden_load("trajectory.json");
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
	golden_follow(&(struct golden_trajectory){.recipe = &recipe,
						  .graph = graph,
						  .reference = json,
						  .seed = 2,
						  .count = COUNT,
						  .side = SIDE},
		      5e-3);
	golden_compare(&fixture, json_object_get(json, "values"), DEVICE_VALUE, 1e-2);
	golden_compare(&fixture, json_object_get(json, "ema"), DEVICE_EMA, 1e-2);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	recipe_deinit(&recipe);
	json_decref(json);
}

/*
 * The shipped recipe at a tenth of its rate: network, rates and decays by group, a parameter that
 * stops training after some epochs, Lookahead.
 */
TEST(airbench)
{
	enum { COUNT = 8, SIDE = 24 };
	static const char settings[] = RECIPES "/cifar10.ini optim.lr=0.15 model.width=0.25";
	struct fixture fixture;
	struct device_optimizer_spec spec;
	struct recipe recipe;
	char error[RECIPE_ERROR_MAX];
	json_t *json = golden_load("airbench.json");
	assert_int_equal(recipe_init(&recipe), 0);
	if (recipe_load(&recipe, RECIPES "/cifar10.ini", error))
		fail_msg("%s", error);
	optim_spec(&recipe, &spec);
	recipe_deinit(&recipe);
	fixture_init(&fixture, settings, 10, &spec);
	golden_fill(&fixture, 3);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, SIDE,
						   fixture.recipe.train.label_smoothing, false);
	golden_follow(&(struct golden_trajectory){.recipe = &fixture.recipe,
						  .graph = graph,
						  .reference = json,
						  .seed = 3,
						  .count = COUNT,
						  .side = SIDE},
		      1e-5);
	golden_compare(&fixture, json_object_get(json, "values"), DEVICE_VALUE, 1e-4);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	json_decref(json);
}
