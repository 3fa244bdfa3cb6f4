/*
 * Weights with other programs' names: each tensor of a published layout maps to its name in timm.
 * tests/golden/finetune/make.py checked that networks whose weights are renamed in this way give
 * the same logits.
 */
#include "tests/test.h"
#include "tests/unit/trainer/trainer_test.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/name_map.h"
#include "trainer/device/device.h"
#include "trainer/device/graph.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"
#include "trainer/model/random.h"

#include <math.h>

enum { PAIRS_MAX = 256, BLOCKS = 12 };

struct pair {
	char theirs[DEVICE_NAME_MAX], ours[DEVICE_NAME_MAX];
	uint64_t shape[4];
	unsigned rank;
	float *values;
	size_t count;
};

struct net {
	char layout[32], path[64];
	struct pair pairs[PAIRS_MAX];
	size_t count;
	struct device *device;
	struct device_params *params;
};

static void read_shape(struct pair *pair, const char *text)
{
	pair->count = 1;
	for (const char *at = text; *at; at += *at == 'x') {
		char *end;
		pair->shape[pair->rank] = strtoul(at, &end, 10);
		pair->count *= pair->shape[pair->rank++];
		at = end;
	}
	pair->values = malloc(pair->count * sizeof(float));
}

static void read_pairs(struct net *net, const char *network)
{
	char of[32], layout[32], first[256], shape[64];
	FILE *file = fopen(GOLDEN_FINETUNE "/names.txt", "r");
	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	struct pair pair = {0};
	while (fscanf(file, "%31s %31s %127s %63s %127s", of, layout, pair.theirs, shape,
		      pair.ours) == 5) {
		if (strcmp(of, network) != 0)
			continue;
		struct pair *own = &net->pairs[net->count++];
		*own = pair;
		read_shape(own, shape);
		for (size_t i = 0; i < own->count; i++)
			own->values[i] = (float)(net->count * 1000 + i);
		snprintf(net->layout, sizeof(net->layout), "%s", layout);
	}
	fclose(file);
	assert_true(net->count > 30);
}

/* Declares a parameter as our networks would. */
static void declare(struct net *net, const struct pair *pair)
{
	struct device_param_spec spec = {.name = pair->ours};
	struct device_param *param;
	uint32_t sides[4] = {0}, rank = 0;
	for (unsigned i = 0; i < pair->rank; i++)
		if (pair->shape[i] > 1 || pair->rank == 4)
			sides[rank++] = (uint32_t)pair->shape[i];
	spec.kind = rank == 4   ? DEVICE_CONV_WEIGHT
		    : rank == 2 ? DEVICE_LINEAR_WEIGHT
				: DEVICE_VECTOR;
	memcpy(spec.shape, sides, sizeof(sides));
	if (rank == 4)
		memcpy(spec.shape, (uint32_t[]){sides[0], sides[2], sides[3], sides[1]},
		       sizeof(sides));
	if (device_param_add(net->params, &spec, &param))
		fail_msg("%s", device_error(net->device));
}

static void write_file(struct net *net)
{
	struct safetensors_tensor tensors[PAIRS_MAX] = {0};
	char error[SAFETENSORS_ERROR_MAX];
	for (size_t i = 0; i < net->count; i++) {
		const struct pair *pair = &net->pairs[i];
		tensors[i] = (struct safetensors_tensor){
			.name = pair->theirs,
			.type = SAFETENSORS_F32,
			.rank = pair->rank,
			.data = pair->values,
			.size = pair->count * sizeof(float),
		};
		memcpy(tensors[i].shape, pair->shape, sizeof(pair->shape));
	}
	struct safetensors_writer writer = {.tensors = tensors, .count = net->count};
	snprintf(net->path, sizeof(net->path), "/tmp/loaderd-names-%d.safetensors", getpid());
	if (safetensors_write(net->path, &writer, error))
		fail_msg("%s", error);
}

static void net_open(struct net *net, const char *network)
{
	char error[DEVICE_ERROR_MAX];
	*net = (struct net){0};
	read_pairs(net, network);
	if (device_open("cpu", NULL, &net->device, error))
		fail_msg("%s", error);
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	for (size_t i = 0; i < net->count; i++)
		declare(net, &net->pairs[i]);
	assert_int_equal(device_params_allocate(net->params, NULL), 0);
	write_file(net);
}

static void net_close(struct net *net)
{
	for (size_t i = 0; i < net->count; i++)
		free(net->pairs[i].values);
	device_params_free(net->params);
	device_close(net->device);
	unlink(net->path);
}

/* Converts the index of an element from the device's order to the file's. */
static size_t place(const struct pair *pair, size_t i)
{
	if (pair->rank < 4)
		return i;
	size_t c = pair->shape[1], r = pair->shape[2], s = pair->shape[3];
	return ((i / (r * s * c) * c + i % c) * r + i / (s * c) % r) * s + i / c % s;
}

static void check_values(const struct net *net)
{
	for (size_t i = 0; i < net->count; i++) {
		const struct pair *pair = &net->pairs[i];
		struct device_param *param = device_params_find(net->params, pair->ours);
		assert_int_equal(device_param_elements(param), pair->count);
		float *values = malloc(pair->count * sizeof(float));
		assert_int_equal(device_param_read(param, DEVICE_VALUE, values), 0);
		for (size_t k = 0; k < pair->count; k++)
			if (values[k] != pair->values[place(pair, k)])
				fail_msg("%s: number %zu is %g", pair->ours, k, (double)values[k]);
		free(values);
	}
}

TEST(layouts)
{
	static const char *const networks[] = {"vit", "convnext", "convnext_first"};
	static struct net net;
	for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
		struct checkpoint_import_result result;
		struct safetensors *file;
		char error[CHECKPOINT_ERROR_MAX] = "";
		net_open(&net, networks[i]);
		if (checkpoint_import(net.path, NULL, net.params, &result, error))
			fail_msg("%s", error);
		assert_string_equal(result.layout, net.layout);
		assert_int_equal(result.unknown_count, 0);
		assert_false(result.head_kept);
		check_values(&net);
		assert_int_equal(safetensors_open(net.path, &file, error), 0);
		assert_int_equal(name_map_classes(file), 7);
		safetensors_close(file);
		net_close(&net);
	}
}

/*
 * If the classes differ, import keeps the model's last layer. Errors about shapes use the file's
 * names.
 */
TEST(other_shapes)
{
	static struct net net;
	struct checkpoint_import_result result;
	char error[CHECKPOINT_ERROR_MAX] = "";
	net_open(&net, "vit");
	for (size_t i = 0; i < net.count; i++)
		if (name_map_is_head(net.pairs[i].ours))
			net.pairs[i].shape[0]--;
	for (size_t i = 0; i < net.count; i++)
		net.pairs[i].count = 1;
	for (size_t i = 0; i < net.count; i++)
		for (unsigned k = 0; k < net.pairs[i].rank; k++)
			net.pairs[i].count *= net.pairs[i].shape[k];
	write_file(&net);
	if (checkpoint_import(net.path, NULL, net.params, &result, error))
		fail_msg("%s", error);
	assert_true(result.head_kept);
	strcpy(net.pairs[0].theirs, "class_tokens");
	write_file(&net);
	assert_int_equal(checkpoint_import(net.path, NULL, net.params, &result, error), -EBADMSG);
	assert_non_null(strstr(error, "tensor cls_token of the model is missing"));
	net_close(&net);
}

/*
 * Fills a tensor as make.py's fill(); elements of convolutions are numbered in the order
 * [K][R][S][C].
 */
static void fill_pair(struct pair *pair)
{
	uint64_t key = random_key(1, pair->theirs);
	size_t length = strlen(pair->theirs);
	double scale = 0.25, offset = 0;
	if (pair->rank == 4)
		scale = sqrt(6.0 / (double)(pair->count / pair->shape[0]));
	else if (pair->rank == 2)
		scale = sqrt(3.0 / (double)pair->shape[1]);
	else if (strcmp(pair->theirs + length - 6, "weight") == 0)
		offset = 1;
	for (size_t i = 0; i < pair->count; i++)
		pair->values[place(pair, i)] = (float)(offset + scale * random_uniform(key, i));
}

/* Adds the tensors of the first block again, renamed for each of the other blocks. */
static void repeat_blocks(struct net *net)
{
	static const char first[] = "encoder.layers.encoder_layer_0.",
			  second[] = "encoder.layers.encoder_layer_1.";
	size_t count = net->count;
	for (size_t i = 0; i < count; i++) {
		const struct pair *pair = &net->pairs[i];
		bool again = strncmp(pair->theirs, first, strlen(first)) == 0;
		for (unsigned block = 2; again && block < BLOCKS; block++) {
			struct pair *own = &net->pairs[net->count++];
			*own = *pair;
			own->values = malloc(own->count * sizeof(float));
			snprintf(own->theirs, sizeof(own->theirs), "%.*s%u.%s",
				 (int)strlen(second) - 2, second, block,
				 pair->theirs + strlen(first));
		}
	}
}

static void read_logits(const char *network, double *ret_logits, size_t count)
{
	char first[256], name[32] = "";
	FILE *file = fopen(GOLDEN_FINETUNE "/logits.txt", "r");
	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (strcmp(name, network) != 0) {
		assert_int_equal(fscanf(file, "%31s", name), 1);
		for (size_t i = 0; i < count; i++)
			assert_int_equal(fscanf(file, "%lf", &ret_logits[i]), 1);
	}
	fclose(file);
}

/* Weights of one of torchvision's networks give torchvision's logits. */
static void check_published(const char *network, const char *settings)
{
	enum { IMAGES = 2, SIDE = 32, CLASSES = 7 };
	static struct net net;
	static uint8_t pixels[IMAGES * SIDE * SIDE * 3];
	int32_t labels[IMAGES] = {0, 1};
	double expected[IMAGES * CLASSES];
	float logits[IMAGES * CLASSES];
	char error[CHECKPOINT_ERROR_MAX] = "";
	struct checkpoint_import_result result;
	struct fixture fixture;
	uint64_t number;
	net = (struct net){0};
	read_pairs(&net, network);
	repeat_blocks(&net);
	for (size_t i = 0; i < net.count; i++)
		fill_pair(&net.pairs[i]);
	write_file(&net);
	fixture_init(&fixture, settings, CLASSES, NULL);
	if (checkpoint_import(net.path, NULL, fixture.params, &result, error))
		fail_msg("%s", error);
	assert_false(result.head_kept || result.unknown_count);
	struct device_graph *graph = fixture_graph(&fixture, DEVICE_EVAL, IMAGES, SIDE, 0, false);
	golden_images(1, "images", IMAGES, SIDE, pixels);
	struct device_batch batch = {.images = pixels,
				     .labels = labels,
				     .count = IMAGES,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_U8};
	assert_int_equal(device_upload(graph, &batch, &number), 0);
	assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &number), 0);
	assert_int_equal(device_logits(graph, logits), 0);
	read_logits(network, expected, IMAGES * CLASSES);
	for (size_t i = 0; i < IMAGES * CLASSES; i++)
		if (!(fabs((double)logits[i] - expected[i]) <= 1e-4))
			fail_msg("logit %zu is %.7g, torchvision's %.7g", i, (double)logits[i],
				 expected[i]);
	device_graph_free(graph);
	fixture_deinit(&fixture);
	for (size_t i = 0; i < net.count; i++)
		free(net.pairs[i].values);
	unlink(net.path);
}

TEST(published)
{
	check_published("vit", "model.name=vit_tiny_patch16 model.width=0.25 model.image_size=32");
	check_published("convnext_tiny", "model.name=convnext_tiny model.width=0.125");
}

TEST(heads)
{
	assert_true(name_map_is_head("fc.weight") && name_map_is_head("fc.bias") &&
		    name_map_is_head("head.weight"));
	assert_true(name_map_is_head("head.fc.weight"));
	assert_false(name_map_is_head("head.norm.weight") || name_map_is_head("fc_norm.weight") ||
		     name_map_is_head("blocks.0.mlp.fc1.weight"));
}
