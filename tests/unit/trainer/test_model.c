/* Models: names, shapes and counts of their parameters, and initial values. */
#include "tests/test.h"
#include "tests/unit/trainer/trainer_test.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/model/layers.h"

#include <math.h>

static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};

static uint64_t parameters(const struct fixture *fixture)
{
	uint64_t count = 0;
	for (size_t i = 0; i < device_params_count(fixture->params); i++) {
		const struct device_param *param = device_params_at(fixture->params, i);
		if (device_param_spec(param)->kind != DEVICE_BUFFER)
			count += device_param_elements(param);
	}
	return count;
}

/*
 * Parameter counts reported by torchvision and timm for 1000 classes, and by the paper for
 * resnet_cifar.
 */
TEST(counts)
{
	static const struct {
		const char *settings;
		uint32_t classes;
		uint64_t parameters;
	} models[] = {
		{"model.name=resnet18", 1000, 11689512},
		{"model.name=resnet34", 1000, 21797672},
		{"model.name=resnet50", 1000, 25557032},
		{"model.name=resnet101", 1000, 44549160},
		{"model.name=resnext50_32x4d", 1000, 25028904},
		{"model.name=resnext101_32x8d", 1000, 88791336},
		{"model.name=resnext101_64x4d", 1000, 83455272},
		{"model.name=wide_resnet50_2", 1000, 68883240},
		{"model.name=resnet50 model.stride_in=1x1 model.downsample=average", 1000,
		 25557032},
		{"model.name=resnet50 model.stem=deep", 1000, 25576264},
		{"model.name=resnet18 model.stem=cifar", 10, 11173962},
		{"model.name=resnet_cifar model.depth=20", 10, 272474},
		{"model.name=resnet_cifar model.depth=56", 10, 855770},
		{"model.name=resnet50 model.squeeze_excite=yes", 1000, 28088024},
		{"model.name=convnext_tiny", 1000, 28589128},
		{"model.name=vit_tiny_patch16", 1000, 5717416},
		{"model.name=vit_small_patch16", 1000, 22050664},
		{"model.name=vit_base_patch16", 1000, 86567656},
	};
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		struct fixture fixture;
		fixture_init(&fixture, models[i].settings, models[i].classes, NULL);
		if (parameters(&fixture) != models[i].parameters)
			fail_msg("%s has %llu parameters", models[i].settings,
				 (unsigned long long)parameters(&fixture));
		fixture_deinit(&fixture);
	}
}

TEST(names)
{
	struct fixture fixture;
	fixture_init(&fixture, "model.name=resnet50", 1000, NULL);
	static const struct {
		const char *name;
		uint32_t shape[4];
	} expected[] = {
		{"conv1.weight", {64, 7, 7, 3}},
		{"bn1.running_var", {64}},
		{"layer1.0.conv1.weight", {64, 1, 1, 64}},
		{"layer1.0.bn1.weight", {64}},
		{"layer1.0.bn2.weight", {64}},
		{"layer1.0.downsample.0.weight", {256, 1, 1, 64}},
		{"layer1.0.downsample.1.running_mean", {256}},
		{"layer2.0.conv2.weight", {128, 3, 3, 128}},
		{"layer2.1.bn1.running_mean", {128}},
		{"layer2.1.conv3.weight", {512, 1, 1, 128}},
		{"layer4.2.bn3.bias", {2048}},
		{"fc.weight", {1000, 2048}},
		{"fc.bias", {1000}},
	};
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		const struct device_param *param =
			device_params_find(fixture.params, expected[i].name);
		if (!param)
			fail_msg("no %s", expected[i].name);
		assert_memory_equal(device_param_spec(param)->shape, expected[i].shape,
				    sizeof(expected[i].shape));
	}
	assert_null(device_params_find(fixture.params, "conv1.bias"));
	assert_null(device_params_find(fixture.params, "layer1.1.downsample.0.weight"));
	fixture_deinit(&fixture);
}

static void read_param(const struct fixture *fixture, const char *name, float **ret_values,
		       size_t *ret_count)
{
	struct device_param *param = device_params_find(fixture->params, name);
	assert_non_null(param);
	*ret_count = device_param_elements(param);
	*ret_values = malloc(*ret_count * sizeof(float));
	assert_int_equal(device_param_read(param, DEVICE_VALUE, *ret_values), 0);
}

static void deviation(const struct fixture *fixture, const char *name, double expected)
{
	float *values;
	size_t count;
	double square = 0;
	read_param(fixture, name, &values, &count);
	for (size_t i = 0; i < count; i++)
		square += (double)values[i] * values[i];
	double got = sqrt(square / (double)count);
	if (fabs(got - expected) > 5 * expected / sqrt(2.0 * (double)count))
		fail_msg("%s deviates by %g, expected %g", name, got, expected);
	free(values);
}

static void constant(const struct fixture *fixture, const char *name, float expected)
{
	float *values;
	size_t count;
	read_param(fixture, name, &values, &count);
	for (size_t i = 0; i < count; i++)
		assert_true(values[i] == expected);
	free(values);
}

TEST(starts)
{
	struct fixture a, b;
	fixture_init(&a, "model.name=resnet18", 100, &sgd);
	fixture_init(&b, "model.name=resnet18 model.zero_init=no", 100, &sgd);
	assert_int_equal(model_initialize(a.model, 3, NULL), 0);
	assert_int_equal(model_initialize(b.model, 3, NULL), 0);
	deviation(&a, "layer3.1.conv1.weight", sqrt(2.0 / (256 * 9)));
	deviation(&a, "conv1.weight", sqrt(2.0 / (64 * 49)));
	deviation(&a, "fc.weight", 1 / sqrt(512) / sqrt(3));
	constant(&a, "layer2.1.bn2.weight", 0);
	constant(&b, "layer2.1.bn2.weight", 1);
	constant(&a, "layer2.1.bn1.weight", 1);
	constant(&a, "layer2.1.bn1.bias", 0);
	constant(&a, "bn1.running_var", 1);
	float *x, *y;
	size_t count;
	read_param(&a, "layer3.1.conv1.weight", &x, &count);
	read_param(&b, "layer3.1.conv1.weight", &y, &count);
	assert_memory_equal(x, y, count * sizeof(float));
	assert_int_equal(model_initialize(b.model, 4, NULL), 0);
	free(y);
	read_param(&b, "layer3.1.conv1.weight", &y, &count);
	assert_true(memcmp(x, y, count * sizeof(float)) != 0);
	free(x);
	free(y);
	fixture_deinit(&a);
	fixture_deinit(&b);
}

/* Settings that make no network: the error names the setting. */
TEST(mistakes)
{
	static const struct {
		const char *name, *error;
		double width;
		uint32_t classes, image_size;
	} mistakes[] = {
		{"resnet19", "model.name = \"resnet19\" is no network", 1, 10, 224},
		{"vit_tiny_patch16",
		 "model.width = 0.3 makes 56 channels, which 3 heads of vit_tiny_patch16 cannot "
		 "share",
		 0.3, 10, 224},
		{"vit_tiny_patch16", "model.image_size = 8 is smaller than a patch", 1, 10, 8},
		{"resnet50", "parameter fc.weight cannot be declared", 16, 1000000, 224},
		{"vit_base_patch16", "parameter head.weight cannot be declared", 16, 1000000, 224},
	};
	struct recipe recipe;
	struct device *device;
	char error[2048] = "";
	assert_int_equal(recipe_init(&recipe), 0);
	assert_int_equal(device_open("cpu", NULL, &device, error), 0);
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		struct recipe_model mistaken = recipe.model;
		struct device_params *params;
		struct model *model = NULL;
		char name[32];
		snprintf(name, sizeof(name), "%s", mistakes[i].name);
		mistaken.name = name;
		mistaken.width = mistakes[i].width;
		mistaken.image_size = mistakes[i].image_size;
		assert_int_equal(device_params_new(device, &params), 0);
		assert_int_equal(model_new(&mistaken, mistakes[i].classes, params, &model, error),
				 -EINVAL);
		assert_null(model);
		if (!strstr(error, mistakes[i].error))
			fail_msg("'%s' is not in: %s", mistakes[i].error, error);
		device_params_free(params);
	}
	device_close(device);
	recipe_deinit(&recipe);
}

/* All depths in the recipe's table are valid. */
TEST(every_depth)
{
	static const char *const settings[] = {"model.depth=8", "model.depth=14",
					       "model.depth=1202",
					       "model.depth=1202 model.stem=imagenet",
					       "model.depth=1202 model.stem=deep model.blur=all "
					       "model.downsample=average "
					       "model.squeeze_excite=yes model.dropout=0.1"};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		struct fixture fixture;
		char setting[256];
		snprintf(setting, sizeof(setting), "model.name=resnet_cifar model.width=0.0625 %s",
			 settings[i]);
		fixture_init(&fixture, setting, 10, NULL);
		fixture_deinit(&fixture);
	}
}

/* All values of model.name that the recipe accepts are networks, here narrow ones. */
TEST(every_name)
{
	const struct recipe_key *key = recipe_keys;
	while (strcmp(key->section, "model") != 0 || strcmp(key->name, "name") != 0)
		key++;
	unsigned count = 0;
	for (const char *word = key->words; *word; word += *word == '|') {
		int length = (int)strcspn(word, "|");
		char setting[64];
		struct fixture fixture;
		snprintf(setting, sizeof(setting), "model.name=%.*s model.width=0.25", length,
			 word);
		fixture_init(&fixture, setting, 10, NULL);
		fixture_deinit(&fixture);
		word += length;
		count++;
	}
	assert_int_equal(count, 18);
}

/* After whitening, the patches' second moments are the identity. */
TEST(whitening)
{
	enum { COUNT = 16, SIDE = 24, N = 12 };
	static uint8_t pixels[COUNT * SIDE * SIDE * 3];
	static float weights[2 * N * N];
	static double moments[N][N];
	struct model_images images = {pixels, COUNT, SIDE, SIDE, 3, {120, 115, 100}, {60, 58, 57}};
	golden_images(5, "images", COUNT, SIDE, pixels);
	assert_int_equal(whiten_weights(&images, 2, weights), 0);
	double patches = 0;
	for (int i = 0; i < COUNT; i++) {
		for (int y = 0; y + 2 <= SIDE; y++) {
			for (int x = 0; x + 2 <= SIDE; x++, patches++) {
				double out[N] = {0};
				for (int k = 0; k < N; k++) {
					int row = y + k / 6, column = x + k / 3 % 2;
					double value =
						(pixels[((i * SIDE + row) * SIDE + column) * 3 +
							k % 3] -
						 images.mean[k % 3]) /
						images.std[k % 3];
					for (int o = 0; o < N; o++)
						out[o] += weights[o * N + k] * value;
				}
				for (int a = 0; a < N; a++)
					for (int b = 0; b < N; b++)
						moments[a][b] += out[a] * out[b];
			}
		}
	}
	for (int a = 0; a < N; a++)
		for (int b = 0; b < N; b++)
			if (fabs(moments[a][b] / patches - (a == b)) > 0.03)
				fail_msg("moment %d, %d is %g", a, b, moments[a][b] / patches);
	for (int i = 0; i < N * N; i++)
		assert_true(weights[N * N + i] == -weights[i]);
	images.height = 1;
	assert_int_equal(whiten_weights(&images, 2, weights), -EINVAL);
}

TEST(speednet)
{
	enum { COUNT = 4, SIDE = 32 };
	struct fixture fixture;
	static uint8_t pixels[COUNT * SIDE * SIDE * 3];
	struct model_images images = {pixels, COUNT, SIDE, SIDE, 3, {120, 115, 100}, {60, 58, 57}};
	fixture_init(&fixture, "model.name=speednet", 10, &sgd);
	assert_true(model_needs_images(fixture.model));
	assert_int_equal(model_initialize(fixture.model, 1, NULL), -EINVAL);
	golden_images(5, "images", COUNT, SIDE, pixels);
	assert_int_equal(model_initialize(fixture.model, 1, &images), 0);
	float *values;
	size_t count;
	read_param(&fixture, "group1.conv2.weight", &values, &count);
	assert_int_equal(count, 64 * 9 * 64);
	for (int i = 0; i < 9 * 64; i++)
		assert_true(values[5 * 9 * 64 + i] == (i == 4 * 64 + 5));
	free(values);
	assert_true(device_param_spec(device_params_find(fixture.params, "whiten.weight"))->frozen);
	assert_int_equal(
		device_param_spec(device_params_find(fixture.params, "whiten.bias"))->group,
		MODEL_WHITEN_BIAS);
	assert_int_equal(
		device_param_spec(device_params_find(fixture.params, "group1.bn1.bias"))->group,
		MODEL_NORM_BIASES);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, SIDE, 0.2, false);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	fixture_init(&fixture, "model.name=speednet model.whiten=no", 10, &sgd);
	assert_int_equal(
		device_param_spec(device_params_find(fixture.params, "whiten.bias"))->group,
		MODEL_BIASES);
	fixture_deinit(&fixture);
}

/*
 * Only the first and the last layer are `outer`. In speednet the first is the whitening
 * convolution, so an optimizer that treats matrices separately applies to everything trained except
 * fc.
 */
TEST(outer)
{
	static const struct {
		const char *settings, *first, *last;
	} networks[] = {
		{"model.name=resnet18", "conv1.weight", "fc.weight"},
		{"model.name=resnet50 model.stem=deep model.blur=all", "conv1.0.weight",
		 "fc.weight"},
		{"model.name=resnet_cifar", "conv1.weight", "fc.weight"},
		{"model.name=vit_tiny_patch16", "patch_embed.proj.weight", "head.weight"},
		{"model.name=convnext_tiny", "stem.0.weight", "head.fc.weight"},
		{"model.name=speednet", "whiten.weight", "fc.weight"},
	};
	for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
		struct fixture fixture;
		fixture_init(&fixture, networks[i].settings, 10, NULL);
		for (size_t j = 0; j < device_params_count(fixture.params); j++) {
			const struct device_param_spec *spec =
				device_param_spec(device_params_at(fixture.params, j));
			bool outer = strcmp(spec->name, networks[i].first) == 0 ||
				     strcmp(spec->name, networks[i].last) == 0;
			if (spec->outer != outer)
				fail_msg("%s: %s", networks[i].settings, spec->name);
		}
		fixture_deinit(&fixture);
	}
}

/* Layer-wise learning rates equal those of timm's param_groups_layer_decay. */
TEST(layer_decay)
{
	static const struct {
		const char *name, *settings;
	} networks[] = {
		{"resnet18", "model.name=resnet18"},
		{"resnet50", "model.name=resnet50"},
		{"resnet50d", "model.name=resnet50 model.stem=deep model.downsample=average"},
		{"vit_tiny_patch16_224", "model.name=vit_tiny_patch16"},
		{"convnext_tiny", "model.name=convnext_tiny"},
	};
	for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
		struct fixture fixture;
		char settings[256], name[64], param[DEVICE_NAME_MAX], first[128];
		double factor;
		unsigned compared = 0;
		FILE *file = fopen(GOLDEN_FINETUNE "/layer_decay.txt", "r");
		assert_non_null(file);
		assert_non_null(fgets(first, sizeof(first), file));
		snprintf(settings, sizeof(settings), "%s optim.layer_decay=0.75",
			 networks[i].settings);
		fixture_init(&fixture, settings, 10, NULL);
		while (fscanf(file, "%63s %127s %lf", name, param, &factor) == 3) {
			if (strcmp(name, networks[i].name) != 0)
				continue;
			const struct device_param *found =
				device_params_find(fixture.params, param);
			if (!found)
				fail_msg("%s has no %s", name, param);
			double mine = (double)device_param_spec(found)->lr_factor;
			if (fabs(mine - factor) > 1e-6 * factor)
				fail_msg("%s: factor %g on %s, expected %g", name, mine, param,
					 factor);
			compared++;
		}
		assert_true(compared > 30);
		fclose(file);
		fixture_deinit(&fixture);
	}
}

/*
 * Blocks are counted from the head. Parameters between the last block and the head count as part of
 * that block.
 */
TEST(blocks_after)
{
	static const struct {
		const char *settings, *param;
		uint32_t behind;
	} params[] = {
		{"model.name=resnet_cifar model.depth=8", "bn1.running_var", 4},
		{"model.name=resnet_cifar model.depth=8", "layer2.0.downsample.0.weight", 2},
		{"model.name=resnet_cifar model.depth=8", "fc.bias", 0},
		{"model.name=speednet", "whiten.bias", 4},
		{"model.name=speednet", "group3.bn2.bias", 1},
		{"model.name=speednet", "fc.weight", 0},
		{"model.name=convnext_tiny", "stages.3.downsample.0.weight", 3},
		{"model.name=convnext_tiny", "head.norm.weight", 0},
		{"model.name=vit_tiny_patch16", "cls_token", 13},
		{"model.name=vit_tiny_patch16", "norm.weight", 1},
		{"model.name=vit_tiny_patch16 model.pool=average", "fc_norm.weight", 0},
	};
	for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
		struct fixture fixture;
		fixture_init(&fixture, params[i].settings, 10, NULL);
		uint32_t behind = model_blocks_after(
			fixture.model, device_params_find(fixture.params, params[i].param));
		if (behind != params[i].behind)
			fail_msg("%s: %s has %u blocks behind it", params[i].settings,
				 params[i].param, behind);
		fixture_deinit(&fixture);
	}
}

/* A network accepts images as small as model_side_min(). */
TEST(smallest_side)
{
	static const char *const settings[] = {
		"model.name=resnet50 model.stem=deep model.downsample=average model.blur=all",
		"model.name=convnext_tiny", "model.name=speednet",
		"model.name=vit_tiny_patch16 model.patch=8"};
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		struct fixture fixture;
		fixture_init(&fixture, settings[i], 10, &sgd);
		uint32_t side = model_side_min(fixture.model);
		device_graph_free(fixture_graph(&fixture, DEVICE_EVAL, 1, side, 0, false));
		fixture_deinit(&fixture);
	}
}

/* Computes the losses of a step and of an evaluation, with constant weights and images. */
static void losses_of(const char *settings, double *ret_trained, double *ret_evaluated)
{
	enum { COUNT = 4, SIDE = 32 };
	static uint8_t pixels[COUNT * SIDE * SIDE * 3];
	int32_t labels[COUNT];
	struct fixture fixture;
	struct device_batch batch = {.images = pixels,
				     .labels = labels,
				     .count = COUNT,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_U8,
				     .draws = {1, 2, 3}};
	struct device_results results;
	uint64_t number;
	golden_images(1, "images", COUNT, SIDE, pixels);
	golden_labels(1, "labels", COUNT, labels);
	fixture_init(&fixture, settings, 10, &sgd);
	golden_fill(&fixture, 1);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, SIDE, 0, false);
	assert_int_equal(device_upload(graph, &batch, &number), 0);
	assert_int_equal(device_step(graph, NULL, &number), 0);
	assert_int_equal(device_results(graph, number, true, &results), 0);
	*ret_trained = results.loss;
	device_graph_free(graph);
	graph = fixture_graph(&fixture, DEVICE_EVAL, COUNT, SIDE, 0, false);
	assert_int_equal(device_upload(graph, &batch, &number), 0);
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &number), 0);
	assert_int_equal(device_results(graph, number, true, &results), 0);
	*ret_evaluated = results.loss;
	device_graph_free(graph);
	fixture_deinit(&fixture);
}

/* Attention drops keys in training, the same ones for equal draws, and none in evaluation. */
TEST(attention_dropout)
{
#define VIT "model.name=vit_tiny_patch16 model.width=0.25 model.patch=8 model.image_size=32"
	double trained[4], evaluated[4];
	losses_of(VIT, &trained[0], &evaluated[0]);
	losses_of(VIT " model.attention_dropout=0.4", &trained[1], &evaluated[1]);
	losses_of(VIT " model.attention_dropout=0.4", &trained[2], &evaluated[2]);
	losses_of(VIT " model.attention_dropout=0.2", &trained[3], &evaluated[3]);
	assert_true(fabs(trained[0] - trained[1]) > 1e-5);
	assert_true(fabs(trained[1] - trained[3]) > 1e-5);
	assert_true(trained[1] == trained[2]);
	assert_true(evaluated[0] == evaluated[1]);
#undef VIT
}
