/*
 * `networks FOLDER` writes, for each network FOLDER/NAME.onnx, its input images to NAME.images (u8
 * or fp32) and the logits computed on the CPU to NAME.logits (fp32).
 */
#include "tests/test.h"
#include "tests/unit/trainer/trainer_test.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/onnx/onnx.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

enum { COUNT = 3, CLASSES = 10, SIDE_MAX = 64 };

static const char *folder;

/* Together the networks use every operation, with every option that affects the ONNX export. */
static const struct network {
	const char *name, *settings;
	uint32_t side;
	bool floats;
} networks[] = {
	{"resnet18", "model.name=resnet18", 64},
	{"resnet50-variants",
	 "model.name=resnet50 model.stem=deep model.downsample=average "
	 "model.squeeze_excite=yes model.blur=all model.drop_path=0.1 model.dropout=0.1",
	 64},
	{"resnext50", "model.name=resnext50_32x4d", 32},
	{"resnet_cifar", "model.name=resnet_cifar model.depth=8", 32},
	{"speednet", "model.name=speednet model.width=0.25", 32},
	{"floats", "model.name=resnet_cifar model.depth=8", 32, true},
	{"convnext", "model.name=convnext_tiny model.drop_path=0.1", 64},
	{"vit-token", "model.name=vit_tiny_patch16 model.image_size=48 model.attention_dropout=0.1",
	 48},
	{"vit-resized",
	 "model.name=vit_tiny_patch16 model.patch=8 model.image_size=48 model.pool=average "
	 "model.layer_scale=0.1",
	 64},
};

static void put(const struct network *network, const char *ending, const void *data, size_t size)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s.%s", folder, network->name, ending);
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

static void run(struct fixture *fixture, const struct network *network, struct device_graph *graph)
{
	static uint8_t pixels[COUNT * SIDE_MAX * SIDE_MAX * 3];
	static float floats[COUNT * SIDE_MAX * SIDE_MAX * 3], logits[COUNT * CLASSES];
	size_t count = (size_t)COUNT * network->side * network->side * 3;
	struct device_batch batch = {
		.images = network->floats ? (const void *)floats : pixels,
		.count = COUNT,
		.channels = 3,
		.element = network->floats ? DEVICE_ELEMENT_F32 : DEVICE_ELEMENT_U8,
	};
	uint64_t step;
	golden_images(1, network->name, COUNT, network->side, pixels);
	for (size_t i = 0; i < count; i++)
		floats[i] = (float)pixels[i] / 64 - 2;
	assert_int_equal(device_upload(graph, &batch, &step), 0);
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &step), 0);
	assert_int_equal(device_logits(graph, logits), 0);
	put(network, "images", batch.images, network->floats ? count * sizeof(*floats) : count);
	put(network, "logits", logits, sizeof(logits));
}

static void test_network(void **state)
{
	const struct network *network = *state;
	const char *const entries[] = {"pipeline", "resize(64)", NULL};
	struct onnx_options options = {.weights = DEVICE_VALUE,
				       .bytes = !network->floats,
				       .producer_version = "1.2.3",
				       .entries = entries};
	struct fixture fixture;
	char settings[512], error[DEVICE_ERROR_MAX] = "";
	void *data;
	size_t size;
	snprintf(settings, sizeof(settings), "%s train.precision=fp32", network->settings);
	fixture_init(&fixture, settings, CLASSES, NULL);
	golden_fill(&fixture, 1);
	struct device_graph *graph =
		fixture_graph(&fixture, DEVICE_EVAL, COUNT, network->side, 0, false);
	run(&fixture, network, graph);
	if (onnx_encode(graph, &options, &data, &size, error))
		fail_msg("%s", error);
	put(network, "onnx", data, size);
	free(data);
	device_graph_free(graph);
	fixture_deinit(&fixture);
}

static void test_training_is_refused(void **state)
{
	struct onnx_options options = {.weights = DEVICE_VALUE, .producer_version = ""};
	struct fixture fixture;
	struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	char error[DEVICE_ERROR_MAX] = "";
	void *data;
	size_t size;
	fixture_init(&fixture, "model.name=resnet_cifar model.depth=8", CLASSES, &sgd);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_TRAIN, COUNT, 32, 0, false);
	assert_int_equal(onnx_encode(graph, &options, &data, &size, error), -EINVAL);
	assert_non_null(strstr(error, "for evaluation"));
	device_graph_free(graph);
	fixture_deinit(&fixture);
}

int main(int argc, char **argv)
{
	enum { NETWORKS = sizeof(networks) / sizeof(networks[0]) };
	struct CMUnitTest tests[NETWORKS + 1];
	if (argc != 2) {
		fprintf(stderr, "usage: networks FOLDER\n");
		return 2;
	}
	folder = argv[1];
	for (size_t i = 0; i < NETWORKS; i++)
		tests[i] = (struct CMUnitTest){networks[i].name, test_network, NULL, NULL,
					       (void *)&networks[i]};
	tests[NETWORKS] = (struct CMUnitTest)cmocka_unit_test(test_training_is_refused);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
