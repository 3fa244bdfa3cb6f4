/*
 * Random draws of operations: the same bits as in test_device_reference.c, an independent
 * implementation, on every device, for every division of the global batch, and in every step, even
 * replayed.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#define SAMPLES  8
#define CHANNELS 7 /* not a multiple of 4, so that a sample ends inside a block of random words */
#define SIDE     3
#define COUNT    ((size_t)SAMPLES * SIDE * SIDE * CHANNELS)

struct net {
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;
	struct device_value *x, *y, *z;
	uint32_t samples;
};

/*
 * The net applies dropout and then drop-path to ones, so its result is the product of the dropout
 * factors.
 */
static void open_net(struct net *net, uint32_t samples, float drop_path, float dropout)
{
	static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	struct device_graph_options options = {.mode = DEVICE_TRAIN, .keep_all = true};
	char error[DEVICE_ERROR_MAX];

	*net = (struct net){.device = open_device(DEVICE_FP32, 0), .samples = samples};
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	assert_int_equal(device_params_allocate(net->params, &sgd), 0);
	assert_int_equal(device_graph_new(net->params, &options, &net->graph), 0);
	net->x = device_input(net->graph, &(struct device_input_spec){
						  .name = "input",
						  .shape = {samples, SIDE, SIDE, CHANNELS},
						  .std = {1, 1, 1, 1},
						  .gradient = true,
					  });
	net->y = device_scale_add(net->graph, net->x,
				  &(struct device_scale_add_spec){.name = "a", .dropout = dropout});
	net->z = device_scale_add(
		net->graph, net->y,
		&(struct device_scale_add_spec){.name = "b", .drop_path = drop_path});
	if (device_graph_plan(net->graph, error) < 0)
		fail_msg("%s", error);
}

static void close_net(struct net *net)
{
	device_graph_free(net->graph);
	device_params_free(net->params);
	device_close(net->device);
}

/* Runs a step on ones; returns its results and the input's gradients. */
static void step(struct net *net, const struct device_draws *draws, float *ret_z, float *ret_dx)
{
	static float ones[COUNT];
	struct device_batch batch = {.images = ones,
				     .count = net->samples,
				     .channels = CHANNELS,
				     .element = DEVICE_ELEMENT_F32,
				     .draws = *draws};
	uint64_t ticket;

	for (size_t i = 0; i < COUNT; i++)
		ones[i] = 1;
	assert_int_equal(device_value_write(net->graph, net->z, DEVICE_GRAD, ones), 0);
	assert_int_equal(device_upload(net->graph, &batch, &ticket), 0);
	assert_int_equal(device_step(net->graph, &(struct device_hyper){.clip_norm = 0}, &ticket),
			 0);
	assert_int_equal(device_value_read(net->graph, net->z, DEVICE_VALUE, ret_z), 0);
	assert_int_equal(device_value_read(net->graph, net->x, DEVICE_GRAD, ret_dx), 0);
}

static void expected(const struct device_draws *draws, double drop_path, double dropout,
		     float *ret_values)
{
	struct tensor t = tensor_new((struct device_shape){SAMPLES, SIDE, SIDE, CHANNELS});

	for (size_t i = 0; i < COUNT; i++)
		t.v[i] = 1;
	reference_drop(&t, draws, "a", 0, dropout);
	reference_drop(&t, draws, "b", drop_path, 0);
	tensor_to_float(&t, ret_values);
	tensor_free(&t);
}

/* Probabilities whose factors are exact in fp32. */
static const float path = 0.5f, out = 0.75f;

TEST(as_defined)
{
	float wanted[COUNT], z[COUNT], dx[COUNT], before[COUNT];
	unsigned zeros = 0;
	struct net net;

	open_net(&net, SAMPLES, path, out);
	/* from the third step on, devices that capture steps replay them */
	for (uint64_t number = 1; number <= 5; number++) {
		struct device_draws draws = {0xfedcba9876543210, number << 31, 21};

		step(&net, &draws, z, dx);
		expected(&draws, (double)path, (double)out, wanted);
		assert_memory_equal(z, wanted, sizeof(z));
		assert_memory_equal(dx, wanted, sizeof(dx));
		if (number > 1)
			assert_memory_not_equal(z, before, sizeof(z));
		memcpy(before, z, sizeof(z));
		for (size_t i = 0; i < COUNT; i++)
			zeros += z[i] == 0;
	}
	/* seven in eight are dropped on average */
	assert_in_range(zeros, 5 * COUNT * 3 / 4, 5 * COUNT - 1);
	close_net(&net);
}

/* Draws also depend on the seed and on the layer. */
TEST(depend)
{
	struct device_draws draws = {1, 1, 0}, others = {2, 1, 0};
	float z[COUNT], again[COUNT], dx[COUNT];
	struct net net;

	open_net(&net, SAMPLES, path, out);
	step(&net, &draws, z, dx);
	step(&net, &others, again, dx);
	assert_memory_not_equal(z, again, sizeof(z));
	step(&net, &draws, again, dx);
	assert_memory_equal(z, again, sizeof(z));
	close_net(&net);
}

/* Two half batches, as of two ranks or micro-batches, get the same draws as the whole batch. */
TEST(cut)
{
	struct device_draws draws = {7, 3, 100};
	float whole[COUNT], halves[COUNT], dx[COUNT];
	struct net net;

	open_net(&net, SAMPLES, path, out);
	step(&net, &draws, whole, dx);
	close_net(&net);
	open_net(&net, SAMPLES / 2, path, out);
	for (uint32_t half = 0; half < 2; half++) {
		step(&net, &draws, halves + half * COUNT / 2, dx);
		draws.first += SAMPLES / 2;
	}
	close_net(&net);
	assert_memory_equal(whole, halves, sizeof(whole));
}

TEST(refused)
{
	static const float bad[][2] = {{1, 0}, {0, 1}, {-0.1f, 0}, {0, 1.5f}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct device_scale_add_spec spec = {
			.name = "a", .drop_path = bad[i][0], .dropout = bad[i][1]};
		char error[DEVICE_ERROR_MAX];
		struct net net;

		open_net(&net, SAMPLES, 0, 0);
		device_graph_free(net.graph);
		assert_int_equal(device_graph_new(net.params,
						  &(struct device_graph_options){DEVICE_TRAIN},
						  &net.graph),
				 0);
		net.x = device_input(net.graph, &(struct device_input_spec){
							.name = "input",
							.shape = {2, 1, 1, 3},
							.std = {1, 1, 1},
						});
		assert_null(device_scale_add(net.graph, net.x, &spec));
		assert_true(device_graph_plan(net.graph, error) < 0);
		assert_non_null(strstr(error, "below 1"));
		close_net(&net);
	}
}
