/*
 * Ranks that divide a transformer among them (device_params_divide()) against one device that has
 * it whole. Every rank runs both and compares them. Run alone and under mpirun: an even number of
 * ranks forms groups of two, and with 4 these share the batch; other ranks form one group. The
 * environment selects the device, see open_device().
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"
#include "tests/unit/trainer/ranks_test.h"
#include "trainer/device/comm/comm.h"

#include <errno.h>
#include <math.h>

enum { BATCH = 4, HEIGHT = 2, WIDTH = 3, TOKENS = HEIGHT * WIDTH, CLASSES = 10 };
enum { HEADS = 6, CHANNELS = 24, HIDDEN = 96, BLOCKS = 2, STEPS = 12 };

static struct comm *group, *data;

struct net {
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;
	uint32_t first, count; /* samples of the batch that this net gets */
};

struct settings {
	enum device_optimizer_kind optimizer;
	uint32_t recompute;
	bool draws;              /* dropout and drop path */
	enum device_shard shard; /* among ranks with the same part */
};

static void form_groups(void)
{
	unsigned size = comm->world % 2 ? comm->world : 2;

	if (group)
		return;
	assert_int_equal(comm_split(comm, comm->rank / size, &group), 0);
	assert_int_equal(comm_split(comm, comm->rank % size, &data), 0);
}

/* Factor on the tolerance of fp32, as in test_device_ranks.c. */
static double tolerance_factor(const struct net *net)
{
	switch (device_info(net->device)->precision) {
	case DEVICE_FP16:
		return 100;
	case DEVICE_BF16:
		return 800;
	default:
		return 1;
	}
}

static struct device_param *vector(struct net *net, const char *name, const char *leaf,
				   uint32_t channels, const struct device_param_spec *split)
{
	struct device_param_spec spec = {.kind = DEVICE_VECTOR, .shape = {channels}, .group = 1};
	struct device_param *param = NULL;
	char full[48];

	snprintf(full, sizeof(full), "%s.%s", name, leaf);
	spec.name = full;
	if (split && split->split_dimension == 1) {
		spec.split_dimension = 1;
		spec.split_ranges = split->split_ranges;
	}
	assert_int_equal(device_param_add(net->params, &spec, &param), 0);
	return param;
}

struct dense {
	const char *name;
	uint32_t outputs, inputs, dimension, ranges;
	enum device_activation activation;
	struct device_value *residual;
};

static struct device_value *dense(struct net *net, struct device_value *x,
				  const struct dense *dense)
{
	struct device_param_spec spec = {.name = dense->name,
					 .kind = DEVICE_LINEAR_WEIGHT,
					 .shape = {dense->outputs, dense->inputs},
					 .split_dimension = dense->dimension,
					 .split_ranges = dense->ranges};
	struct device_linear_spec linear = {.name = dense->name,
					    .by_position = true,
					    .residual = dense->residual,
					    .activation = dense->activation};

	assert_int_equal(device_param_add(net->params, &spec, &linear.weight), 0);
	linear.bias = vector(net, dense->name, "bias", dense->outputs, &spec);
	return device_linear(net->graph, x, &linear);
}

static struct device_value *layer_norm(struct net *net, struct device_value *x, const char *name)
{
	struct device_layer_norm_spec spec = {.name = name,
					      .gamma = vector(net, name, "gamma", CHANNELS, NULL),
					      .beta = vector(net, name, "beta", CHANNELS, NULL)};

	return device_layer_norm(net->graph, x, &spec);
}

/* A block; its second branch has its residual and a scale per channel in another operation. */
static struct device_value *block(struct net *net, struct device_value *input, unsigned number,
				  bool draws)
{
	char name[6][16];
	static const char *const parts[] = {"norm1", "qkv", "proj", "norm2", "fc1", "fc2"};

	for (int i = 0; i < 6; i++)
		snprintf(name[i], sizeof(name[i]), "%u.%s", number, parts[i]);
	struct device_value *x = layer_norm(net, input, name[0]);
	x = dense(net, x, &(struct dense){name[1], 3 * CHANNELS, CHANNELS, 1, 3});
	x = device_attention(
		net->graph, x,
		&(struct device_attention_spec){
			"attention", HEADS / device_params_group(net->params), draws ? 0.2f : 0});
	input = dense(net, x, &(struct dense){name[2], CHANNELS, CHANNELS, 2, .residual = input});
	x = layer_norm(net, input, name[3]);
	x = dense(net, x, &(struct dense){name[4], HIDDEN, CHANNELS, 1, .activation = DEVICE_GELU});
	x = dense(net, x, &(struct dense){name[5], CHANNELS, HIDDEN, 2});
	return device_scale_add(net->graph, x,
				&(struct device_scale_add_spec){
					.name = name[5],
					.residual = input,
					.gamma = vector(net, name[5], "scale", CHANNELS, NULL),
					.drop_path = draws ? 0.3f : 0});
}

static void fill(struct net *net)
{
	for (size_t i = 0; i < device_params_count(net->params); i++) {
		struct device_param *param = device_params_at(net->params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		size_t count = device_param_elements(param);
		float *values = malloc(count * sizeof(float));

		for (size_t k = 0; k < count; k++)
			values[k] = spec->kind == DEVICE_VECTOR
					    ? (float)uniform(i, k) + 0.2f
					    : (float)((2 * uniform(i, k) - 1) *
						      sqrt(3.0 / spec->shape[1]));
		assert_int_equal(device_param_write(param, DEVICE_VALUE, values), 0);
		free(values);
	}
}

static void open_net(struct net *net, bool divided, const struct settings *settings)
{
	const char *chosen = getenv("DEVICE_TEST_PRECISION");
	struct device_options options = {.precision = chosen && strstr(chosen, "16") ? DEVICE_BF16
										     : DEVICE_FP32,
					 .threads = 1};
	struct device_graph_options graph_options = {.mode = DEVICE_TRAIN,
						     .recompute = settings->recompute};
	struct device_optimizer_spec optimizer = {
		.kind = settings->optimizer, .ema = true, .shard = settings->shard};
	struct device_params_state state = {.loss_scale = 1024};
	char error[DEVICE_ERROR_MAX];

	form_groups();
	options.comm = divided ? data : NULL;
	options.group = divided ? group : NULL;
	memset(net, 0, sizeof(*net));
	net->count = BATCH / (divided ? data->world : 1);
	net->first = divided ? net->count * data->rank : 0;
	net->device = open_device_with(&options);
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	device_params_divide(net->params);
	assert_int_equal(device_graph_new(net->params, &graph_options, &net->graph), 0);
	struct device_value *x =
		device_input(net->graph, &(struct device_input_spec){
						 .name = "input",
						 .shape = {net->count, HEIGHT, WIDTH, 3},
						 .std = {1, 1, 1},
					 });
	x = dense(net, x, &(struct dense){"embed", CHANNELS, 3});
	for (unsigned i = 0; i < BLOCKS; i++) {
		device_begin_block(net->graph);
		x = block(net, x, i, settings->draws);
	}
	x = device_select_token(net->graph, "token", layer_norm(net, x, "norm"), 1);
	x = dense(net, x, &(struct dense){"head", CLASSES, CHANNELS});
	device_loss(net->graph, x, &(struct device_loss_spec){.name = "loss", .smoothing = 0.1f});
	assert_int_equal(device_params_allocate(net->params, &optimizer), 0);
	if (device_graph_plan(net->graph, error) < 0)
		fail_msg("%s", error);
	fill(net);
	/* start with a loss scale that does not overflow, so that no step is skipped */
	if (device_info(net->device)->precision == DEVICE_FP16)
		assert_int_equal(device_params_set_state(net->params, &state), 0);
}

static void close_net(struct net *net)
{
	device_graph_free(net->graph);
	device_params_free(net->params);
	device_close(net->device);
}

static struct device_hyper hyper_of(unsigned number)
{
	struct device_hyper hyper = {.momentum = 0.9f,
				     .beta1 = 0.9f,
				     .beta2 = 0.99f,
				     .epsilon = 1e-3f,
				     .ema_decay = number ? 0.7f : 0,
				     .grad_scale = number % 3 == 2 ? 0.5f : 1,
				     .clip_norm = number % 2 ? 0.3f : 0};

	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.01f;
		hyper.weight_decay[i] = 1e-3f;
	}
	return hyper;
}

static void step(struct net *net, unsigned number, const struct device_hyper *hyper,
		 struct device_results *ret_results)
{
	static float images[BATCH * TOKENS * 3];
	int32_t labels[BATCH];
	struct device_batch batch = {.images = images + (size_t)net->first * TOKENS * 3,
				     .labels = labels + net->first,
				     .count = net->count,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_F32,
				     .draws = {.seed = 7, .step = number, .first = net->first}};
	uint64_t ticket, id;

	for (size_t i = 0; i < BATCH * TOKENS * 3; i++)
		images[i] = (float)(3 * uniform(1000 + number, i) - 1);
	for (uint32_t i = 0; i < BATCH; i++)
		labels[i] = (int32_t)((i * 7 + number) % CLASSES);
	assert_int_equal(device_upload(net->graph, &batch, &ticket), 0);
	if (device_step(net->graph, hyper, &id) < 0)
		fail_msg("%s", device_error(net->device));
	assert_int_equal(device_results(net->graph, id, true, ret_results), 0);
}

static float *read_slot(const struct net *net, size_t index, enum device_slot slot)
{
	struct device_param *param = device_params_at(net->params, index);
	float *values = malloc(device_param_elements(param) * sizeof(float));

	assert_int_equal(device_param_read(param, slot, values), 0);
	return values;
}

/* Compares a slot of both nets, in whole tensors. */
static void check_slot(const struct net *a, const struct net *b, enum device_slot slot,
		       double tolerance)
{
	for (size_t i = 0; i < device_params_count(a->params); i++) {
		struct device_param *param = device_params_at(a->params, i);
		double largest = 1e-3, apart = 0;
		float *x = read_slot(a, i, slot), *y = read_slot(b, i, slot);

		for (size_t k = 0; k < device_param_elements(param); k++) {
			largest = fmax(largest, fabs((double)y[k]));
			apart = fmax(apart, fabs((double)x[k] - (double)y[k]));
		}
		free(x);
		free(y);
		if (apart / largest > tolerance)
			fail_msg("slot %d of %s is %g apart", slot, device_param_spec(param)->name,
				 apart / largest);
	}
}

/* Asserts that all ranks read the same bits, of whole tensors and of divided ones. */
static void check_same(const struct net *net)
{
	for (size_t i = 0; i < device_params_count(net->params); i++) {
		size_t size =
			device_param_elements(device_params_at(net->params, i)) * sizeof(float);
		float *mine = read_slot(net, i, DEVICE_VALUE), *all = malloc(size * comm->world);

		assert_int_equal(comm_gather(comm, mine, size, all), 0);
		for (unsigned rank = 0; rank < comm->world; rank++)
			assert_memory_equal((char *)all + rank * size, mine, size);
		free(mine);
		free(all);
	}
}

static bool near(const struct net *net, double a, double b)
{
	return fabs(a - b) <= 2e-5 * tolerance_factor(net) * (1e-3 + fabs(b));
}

/* Runs steps with clipping and averages, every third one after a micro-batch. */
static void compare(const struct settings *settings)
{
	struct net ranks, whole;

	open_net(&ranks, true, settings);
	open_net(&whole, false, settings);
	for (unsigned i = 0; i < STEPS; i++) {
		struct device_hyper hyper = hyper_of(i);
		struct device_results a, b;

		if (i % 3 == 2) {
			step(&ranks, 100 + i, NULL, &a);
			step(&whole, 100 + i, NULL, &b);
			assert_true(near(&ranks, a.loss, b.loss));
		}
		step(&ranks, i, &hyper, &a);
		step(&whole, i, &hyper, &b);
		assert_true(a.updated && b.updated);
		assert_int_equal(a.samples, b.samples);
		if (!near(&ranks, a.loss, b.loss) || !near(&ranks, a.grad_norm, b.grad_norm))
			fail_msg("step %u: loss %.9g and %.9g, norm %.9g and %.9g", i, a.loss,
				 b.loss, a.grad_norm, b.grad_norm);
	}
	check_same(&ranks);
	/* AdamW divides by gradients, small ones too, whose rounding of 16 bits it magnifies */
	double wide = tolerance_factor(&ranks) > 1 ? 10 : 1;
	check_slot(&ranks, &whole, DEVICE_VALUE, wide * 2e-5 * tolerance_factor(&ranks));
	check_slot(&ranks, &whole, DEVICE_EMA, wide * 2e-5 * tolerance_factor(&ranks));
	close_net(&ranks);
	close_net(&whole);
}

TEST(like_one_device)
{
	compare(&(struct settings){DEVICE_SGD});
	compare(&(struct settings){DEVICE_ADAMW, .draws = true});
	compare(&(struct settings){DEVICE_ADAMW, .recompute = 1, .draws = true});
}

/* Ranks with the same part of the network divide its store among them. */
TEST(sharded)
{
	form_groups();
	if (data->world == 1)
		return;
	compare(&(struct settings){DEVICE_SGD, .shard = DEVICE_SHARD_OPTIMIZER});
	compare(&(struct settings){DEVICE_ADAMW, 1, true, DEVICE_SHARD_PARAMETERS});
}

/* Recomputation repeats sums, to the same bits. */
TEST(recomputed)
{
	struct net kept, again;
	struct device_hyper hyper = hyper_of(1);
	struct device_results a, b;

	open_net(&kept, true, &(struct settings){DEVICE_SGD, .draws = true});
	open_net(&again, true, &(struct settings){DEVICE_SGD, .recompute = 1, .draws = true});
	for (unsigned i = 0; i < 3; i++) {
		step(&kept, i, &hyper, &a);
		step(&again, i, &hyper, &b);
		assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
	}
	check_slot(&kept, &again, DEVICE_VALUE, 0);
	close_net(&kept);
	close_net(&again);
}

/*
 * A block sums its tokens four times a step, in the device's precision; an update sums one double
 * for its norm.
 */
TEST(bytes)
{
	struct net ranks;
	struct device_hyper hyper = hyper_of(0);
	struct device_results results;

	open_net(&ranks, true, &(struct settings){DEVICE_SGD});
	uint64_t before = group->sent.sums, n = group->world;
	uint64_t element = device_info(ranks.device)->precision == DEVICE_FP32 ? 4 : 2;
	step(&ranks, 0, NULL, &results);
	uint64_t tokens = 2 * (uint64_t)ranks.count * TOKENS * CHANNELS * element * (n - 1) / n;
	assert_int_equal(group->sent.sums - before, 4 * BLOCKS * tokens);
	before = group->sent.sums;
	step(&ranks, 1, &hyper, &results);
	assert_int_equal(group->sent.sums - before,
			 4 * BLOCKS * tokens + 2 * sizeof(double) * (n - 1) / n);
	/* the sums of all communicators, also if steps are captured and replayed */
	uint64_t all = 0;
	for (unsigned i = 2; i < 6; i++) {
		before = comm->sent.sums;
		step(&ranks, i, &hyper, &results);
		assert_true(i == 2 || comm->sent.sums - before == all);
		all = comm->sent.sums - before;
		assert_true(n == 1 || all > 4 * BLOCKS * tokens);
	}
	close_net(&ranks);
}

/* What rank 0 writes, the others take their parts of; what it reads, they contribute to. */
TEST(leads)
{
	struct net ranks;

	open_net(&ranks, true, &(struct settings){DEVICE_ADAMW});
	struct device_param *param = device_params_find(ranks.params, "1.qkv");
	size_t count = device_param_elements(param);
	float *values = malloc(count * sizeof(float)), *read = calloc(count, sizeof(float));

	assert_int_equal(count, 3 * CHANNELS * CHANNELS);
	assert_int_equal(device_param_is_divided(param, DEVICE_STATE), group->world > 1);
	for (size_t i = 0; i < count; i++)
		values[i] = (float)i;
	if (comm->rank == 0) {
		device_params_lead(ranks.params);
		assert_int_equal(device_param_write(param, DEVICE_STATE + 1, values), 0);
		assert_int_equal(device_param_read(param, DEVICE_STATE + 1, read), 0);
		assert_memory_equal(read, values, count * sizeof(float));
		assert_int_equal(device_params_dismiss(ranks.params), 0);
	} else {
		assert_int_equal(device_params_follow(ranks.params), 0);
	}
	if (comm->rank == 0 || group->world > 1) {
		assert_int_equal(device_param_read(param, DEVICE_STATE + 1, read), 0);
		assert_memory_equal(read, values, count * sizeof(float));
	}
	free(values);
	free(read);
	close_net(&ranks);
}

/* A gradient of one rank that is not finite makes all ranks skip the update. */
TEST(not_finite)
{
	struct net ranks;
	struct device_results results;
	struct device_hyper hyper = hyper_of(1);

	open_net(&ranks, true, &(struct settings){DEVICE_SGD});
	struct device_param *param = device_params_find(ranks.params, "0.fc2");
	float *gradient = calloc(device_param_elements(param), sizeof(float));

	gradient[HIDDEN - 1] = NAN; /* of the last rank */
	step(&ranks, 0, &hyper, &results);
	assert_int_equal(device_param_write(param, DEVICE_GRAD, gradient), 0);
	step(&ranks, 1, &hyper, &results);
	assert_true(results.skipped && !results.updated);
	step(&ranks, 2, &hyper, &results);
	assert_true(results.updated);
	free(gradient);
	close_net(&ranks);
}

TEST(refused)
{
	struct net net;
	struct device_param *param = NULL;
	struct device_param_spec spec = {.name = "w",
					 .kind = DEVICE_LINEAR_WEIGHT,
					 .shape = {7, 6 * 35},
					 .split_dimension = 1,
					 .split_ranges = 7};

	open_net(&net, true, &(struct settings){DEVICE_SGD});
	struct device_params *params;
	assert_int_equal(device_params_new(net.device, &params), 0);
	device_params_divide(params);
	if (group->world > 1) {
		assert_int_equal(device_param_add(params, &spec, &param), -EINVAL);
		assert_non_null(strstr(device_error(net.device),
				       "parameter w: dimension 1 of length 7 cannot be split into "
				       "7 ranges for each of"));
	}
	spec.split_dimension = 2;
	assert_int_equal(device_param_add(params, &spec, &param), 0);
	assert_int_equal(device_param_elements(param), 7 * 6 * 35);
	struct device_graph *graph;
	assert_int_equal(
		device_graph_new(params, &(struct device_graph_options){DEVICE_TRAIN}, &graph), 0);
	struct device_value *x =
		device_input(graph, &(struct device_input_spec){
					    .name = "input",
					    .shape = {1, 1, 1, 210 / device_params_group(params)},
					    .std = {1, 1, 1, 1},
				    });
	device_linear(graph, x,
		      &(struct device_linear_spec){
			      .name = "l", .weight = param, .activation = DEVICE_GELU});
	const char *text;
	assert_int_equal(device_graph_failure(graph, &text), group->world > 1 ? -EINVAL : 0);
	if (group->world > 1)
		assert_non_null(strstr(text, "l: a layer split by inputs has no activation"));
	device_graph_free(graph);
	device_params_free(params);
	close_net(&net);
}
