/*
 * Frozen layers with frozen norm statistics: the layers after them get the same results and
 * gradients whether the frozen ones run as in evaluation or are differentiated. Frozen layers do
 * not change and have no backward pass. Also tests unfreezing a layer.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

enum { LAYERS = 4, FROZEN = 2, CLASSES = 5, SAMPLES = 4, SIDE = 6, WIDTH = 16, STEPS = 4 };

/* Convolutions with norms, the first FROZEN of them frozen, and a linear layer. */
struct net {
	struct device *device;
	struct device_params *params;
	struct device_param *weight[LAYERS + 1], *norm[LAYERS][4];
	struct device_graph *graph;
	struct device_value *input;
	float images[SAMPLES * SIDE * SIDE * 3];
};

static const char *const leaves[] = {"weight", "bias", "running_mean", "running_var"};

static struct device_param *declare(struct net *net, unsigned layer, const char *leaf,
				    const struct device_param_spec *wanted)
{
	struct device_param_spec spec = *wanted;
	struct device_param *param = NULL;
	char name[32];

	snprintf(name, sizeof(name), "layer%u.%s", layer, leaf);
	spec.name = name;
	assert_int_equal(device_param_add(net->params, &spec, &param), 0);
	device_param_freeze(param, layer < FROZEN);
	return param;
}

static void declare_all(struct net *net)
{
	for (unsigned i = 0; i < LAYERS; i++) {
		struct device_param_spec conv = {.kind = DEVICE_CONV_WEIGHT,
						 .shape = {WIDTH, 3, 3, i ? WIDTH : 3}};

		net->weight[i] = declare(net, i, "conv", &conv);
		for (unsigned j = 0; j < 4; j++) {
			struct device_param_spec vector = {
				.kind = j < 2 ? DEVICE_VECTOR : DEVICE_BUFFER, .shape = {WIDTH}};

			net->norm[i][j] = declare(net, i, leaves[j], &vector);
		}
	}
	struct device_param_spec fc = {.kind = DEVICE_LINEAR_WEIGHT, .shape = {CLASSES, WIDTH}};

	net->weight[LAYERS] = declare(net, LAYERS, "fc", &fc);
}

static void fill_all(struct net *net)
{
	float values[WIDTH * 9 * WIDTH];

	for (size_t i = 0; i < device_params_count(net->params); i++) {
		struct device_param *param = device_params_at(net->params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		bool scale = strstr(spec->name, "var") || strstr(spec->name, ".weight");

		for (size_t j = 0; j < device_param_elements(param); j++) {
			values[j] = (float)(uniform(i, j) - 0.5) * (spec->shape[1] ? 0.3f : 0.5f);
			values[j] += scale ? 1 : 0;
		}
		assert_int_equal(device_param_write(param, DEVICE_VALUE, values), 0);
	}
}

/*
 * If `differentiated`, the input's gradient is computed too, so that no layer runs as in
 * evaluation.
 */
static void plan(struct net *net, bool differentiated)
{
	struct device_graph_options options = {.mode = DEVICE_TRAIN, .keep_all = differentiated};
	struct device_input_spec input = {.name = "input",
					  .shape = {SAMPLES, SIDE, SIDE, 3},
					  .std = {1, 1, 1},
					  .gradient = differentiated};
	struct device_value *x, *second = NULL;
	char error[DEVICE_ERROR_MAX];

	device_graph_free(net->graph);
	assert_int_equal(device_graph_new(net->params, &options, &net->graph), 0);
	x = net->input = device_input(net->graph, &input);
	for (unsigned i = 0; i < LAYERS; i++) {
		struct device_norm norm = {net->norm[i][0], net->norm[i][1], net->norm[i][2],
					   net->norm[i][3], 1e-5f,           0.1f};
		struct device_conv_spec spec = {
			.name = "conv",
			.weight = net->weight[i],
			.norm = &norm,
			.stride = 1,
			.pad = 1,
			.residual = i == 1   ? x
				    : i == 3 ? second
					     : NULL,
			.activation = i == 1 ? DEVICE_GELU : DEVICE_RELU,
		};

		x = device_conv(net->graph, x, &spec);
		second = i == 1 ? x : second;
	}
	x = device_global_average_pool(net->graph, "pool", x);
	x = device_linear(
		net->graph, x,
		&(struct device_linear_spec){.name = "fc", .weight = net->weight[LAYERS]});
	device_loss(net->graph, x, &(struct device_loss_spec){.name = "loss"});
	if (device_graph_plan(net->graph, error) < 0)
		fail_msg("%s", error);
}

static void net_open(struct net *net, enum device_precision precision,
		     const struct device_optimizer_spec *optimizer, bool differentiated)
{
	memset(net, 0, sizeof(*net));
	net->device = open_device(precision, 0);
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	declare_all(net);
	assert_int_equal(device_params_allocate(net->params, optimizer), 0);
	fill_all(net);
	plan(net, differentiated);
	for (size_t i = 0; i < sizeof(net->images) / sizeof(float); i++)
		net->images[i] = (float)(uniform(77, i) * 2 - 1);
}

static void net_close(struct net *net)
{
	device_graph_free(net->graph);
	device_params_free(net->params);
	device_close(net->device);
}

static double step(struct net *net, const struct device_hyper *hyper)
{
	int32_t labels[SAMPLES] = {0, 3, 1, 4};
	struct device_batch batch = {net->images, labels, SAMPLES, 3, DEVICE_ELEMENT_F32, false};
	struct device_results results;
	uint64_t number;

	assert_int_equal(device_upload(net->graph, &batch, &number), 0);
	assert_int_equal(device_step(net->graph, hyper, &number), 0);
	assert_int_equal(device_results(net->graph, number, true, &results), 0);
	return results.loss;
}

static void forward(struct net *net)
{
	int32_t labels[SAMPLES] = {0, 3, 1, 4};
	struct device_batch batch = {.images = net->images,
				     .labels = labels,
				     .count = SAMPLES,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_F32};
	struct device_results results;
	uint64_t number;

	assert_int_equal(device_upload(net->graph, &batch, &number), 0);
	assert_int_equal(device_forward(net->graph, false, &number), 0);
	assert_int_equal(device_results(net->graph, number, true, &results), 0);
	assert_true(results.loss > 0);
}

/* Relative difference of a parameter between two nets. */
static double difference(const struct net *a, const struct net *b, size_t index)
{
	struct device_param *of_a = device_params_at(a->params, index);
	struct device_param *of_b = device_params_at(b->params, index);
	size_t count = device_param_elements(of_a);
	float *x = malloc(count * sizeof(float)), *y = malloc(count * sizeof(float));
	double apart = 0, size = 0;

	assert_int_equal(device_param_read(of_a, DEVICE_VALUE, x), 0);
	assert_int_equal(device_param_read(of_b, DEVICE_VALUE, y), 0);
	for (size_t i = 0; i < count; i++) {
		apart += pow((double)x[i] - (double)y[i], 2);
		size += pow((double)y[i], 2);
	}
	free(x);
	free(y);
	return sqrt(apart / size);
}

static void check_frozen(enum device_precision precision, double tolerance)
{
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct device_hyper hyper = {.lr = {0.05f}, .momentum = 0.9f};
	struct net frozen, whole, start;

	net_open(&frozen, precision, &optimizer, false);
	net_open(&whole, precision, &optimizer, true);
	net_open(&start, precision, &optimizer, false);
	/* a pass that does not update running statistics, like SAM's second pass */
	forward(&frozen);
	for (unsigned t = 0; t < STEPS; t++) {
		double loss = step(&frozen, &hyper), expected = step(&whole, &hyper);

		if (!(fabs(loss - expected) <= tolerance * expected))
			fail_msg("step %u: loss %g, expected %g", t, loss, expected);
	}
	for (size_t i = 0; i < device_params_count(frozen.params); i++) {
		const char *name = device_param_spec(device_params_at(frozen.params, i))->name;
		bool moves = name[strlen("layer")] - '0' >= FROZEN;

		if (!(difference(&frozen, &whole, i) <= tolerance))
			fail_msg("%s differs by %g", name, difference(&frozen, &whole, i));
		if ((difference(&frozen, &start, i) > 0) != moves)
			fail_msg("%s has %smoved", name, moves ? "not " : "");
	}
	net_close(&frozen);
	net_close(&whole);
	net_close(&start);
}

TEST(fp32)
{
	check_frozen(DEVICE_FP32, 1e-5);
}

TEST(half)
{
	check_frozen(DEVICE_BF16, 3e-2);
}

/* The backward pass ends below the first trained layer. */
TEST(costs_no_backward)
{
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct net net;

	net_open(&net, DEVICE_FP32, &optimizer, false);
	for (uint32_t i = 0; i < 1 + LAYERS; i++) {
		struct device_layer_info info;

		device_graph_layer(net.graph, i, &info);
		/*
		 * expected backward cost: none for the input and the frozen layers; the weight
		 * gradient only for the first trained layer; both gradients for the others
		 */
		if (i <= FROZEN)
			assert_true(info.flops_backward == 0);
		else
			assert_true(info.flops_backward ==
				    (i == 1 + FROZEN ? 1 : 2) * info.flops_forward);
	}
	net_close(&net);
}
