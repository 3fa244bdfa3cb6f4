/*
 * Stores whose weights are divided among ranks, and the gathers of these: what is sent and what
 * memory is taken, exactly, and results bit for bit those of stores of which only gradients are
 * divided. Runs under mpirun, and alone for the planning. The environment selects the device, see
 * open_device().
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"
#include "tests/unit/trainer/ranks_test.h"
#include "trainer/device/gathers.h"

#define BATCH   12
#define SIDE    8
#define WIDTH   (SIDE * SIDE * 3)
#define DEPTH   8
#define CLASSES 10

/* A perceptron of square matrices, each of which is as long as a bucket. */
struct net {
	struct device *device;
	struct device_params *params;
	struct device_param *weights[DEPTH + 1];
	struct device_graph *train, *eval;
	uint32_t count;
	bool shares; /* the last of them is the first */
};

static enum device_precision precision(void)
{
	const char *chosen = getenv("DEVICE_TEST_PRECISION");

	return chosen && strstr(chosen, "16") ? DEVICE_BF16 : DEVICE_FP32;
}

static struct device_graph *record(struct net *net, const struct device_graph_options *options)
{
	struct device_graph *graph;
	char error[DEVICE_ERROR_MAX], name[16];

	assert_int_equal(device_graph_new(net->params, options, &graph), 0);
	struct device_value *x = device_input(
		graph, &(struct device_input_spec){.name = "input",
						   .shape = {net->count, SIDE, SIDE, 3},
						   .std = {1, 1, 1}});
	for (unsigned i = 0; i <= DEPTH; i++) {
		snprintf(name, sizeof(name), "fc%u", i);
		if (i % 2 == 0)
			device_begin_block(graph);
		x = device_linear(
			graph, x,
			&(struct device_linear_spec){
				.name = name,
				.weight = net->weights[net->shares && i == DEPTH - 1 ? 0 : i],
				.activation = i < DEPTH ? DEVICE_GELU : DEVICE_IDENTITY});
	}
	device_loss(graph, x, &(struct device_loss_spec){.name = "loss"});
	assert_true(net->params->allocated);
	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	return graph;
}

/* recompute: blocks in a segment, each of two layers. */
static void net_open(struct net *net, enum device_shard shard, uint32_t recompute, bool shares)
{
	struct device_options options = {.precision = precision(), .threads = 1, .comm = comm};
	struct device_optimizer_spec optimizer = {
		.kind = DEVICE_ADAMW, .ema = true, .shard = shard};
	float values[WIDTH * WIDTH];
	char name[16];

	*net = (struct net){.count = BATCH / comm->world, .shares = shares};
	net->device = open_device_with(&options);
	/* like the buckets of DEVICE_SHARD_PARAMETERS, for equal sums of parts */
	if (shard < DEVICE_SHARD_PARAMETERS)
		net->device->bucket_elements = WIDTH * WIDTH;
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	for (unsigned i = 0; i <= DEPTH; i++) {
		snprintf(name, sizeof(name), "fc%u", i);
		net->weights[i] =
			add_param(net->params, name, DEVICE_LINEAR_WEIGHT,
				  (struct device_shape){i < DEPTH ? WIDTH : CLASSES, 1, 1, WIDTH});
	}
	assert_int_equal(device_params_allocate(net->params, &optimizer), 0);
	for (unsigned i = 0; i <= DEPTH; i++) {
		for (size_t k = 0; k < device_param_elements(net->weights[i]); k++)
			values[k] = (float)(0.25 * (uniform(i, k) - 0.5));
		assert_int_equal(device_param_write(net->weights[i], DEVICE_VALUE, values), 0);
	}
	net->train = record(
		net, &(struct device_graph_options){.mode = DEVICE_TRAIN, .recompute = recompute});
	net->eval = record(net, &(struct device_graph_options){.mode = DEVICE_EVAL});
}

static void net_close(struct net *net)
{
	device_graph_free(net->train);
	device_graph_free(net->eval);
	device_params_free(net->params);
	device_close(net->device);
}

static void upload(struct net *net, struct device_graph *graph, unsigned number)
{
	float images[BATCH * WIDTH];
	int32_t labels[BATCH];
	uint32_t first = net->count * comm->rank;
	uint64_t ticket;

	for (size_t i = 0; i < BATCH * WIDTH; i++)
		images[i] = (float)(2 * uniform(100 + number, i) - 1);
	for (uint32_t i = 0; i < BATCH; i++)
		labels[i] = (int32_t)((i * 7 + number) % CLASSES);
	struct device_batch batch = {.images = images + first * WIDTH,
				     .labels = labels + first,
				     .count = net->count,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_F32};
	assert_int_equal(device_upload(graph, &batch, &ticket), 0);
	assert_int_equal(device_upload_done(graph, ticket, true), 0);
}

static struct device_results results_of(struct device_graph *graph, uint64_t step)
{
	struct device_results results;

	assert_int_equal(device_results(graph, step, true, &results), 0);
	return results;
}

/* A step; without hyperparameters one of a micro-batch. */
static struct device_results step(struct net *net, unsigned number, bool updates)
{
	struct device_hyper hyper = {.beta1 = 0.9f,
				     .beta2 = 0.99f,
				     .epsilon = 1e-3f,
				     .ema_decay = 0.7f,
				     .grad_scale = 1,
				     .clip_norm = 0.5f};
	uint64_t id;

	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++)
		hyper.lr[i] = 0.01f;
	upload(net, net->train, number);
	if (device_step(net->train, updates ? &hyper : NULL, &id) < 0)
		fail_msg("%s", device_error(net->device));
	return results_of(net->train, id);
}

static struct device_results evaluate(struct net *net, unsigned number)
{
	uint64_t id;

	upload(net, net->eval, number);
	assert_int_equal(device_evaluate(net->eval, DEVICE_VALUE, &id), 0);
	return results_of(net->eval, id);
}

static struct device_results forward(struct net *net, unsigned number)
{
	uint64_t id;

	upload(net, net->train, number);
	assert_int_equal(device_forward(net->train, false, &id), 0);
	return results_of(net->train, id);
}

/* ---- planning ---- */

/* A store of four weights in a bucket each, the last weight in the first bucket. */
struct store {
	struct device_params params;
	struct device_param weights[4];
};

static void store_init(struct store *store)
{
	*store = (struct store){.params = {.shards = {.world = 2, .count = 4, .gathers = true}}};
	for (uint32_t i = 0; i < 4; i++) {
		store->params.shards.buckets[i] = (struct device_range){32 * i, 32};
		store->weights[3 - i] = (struct device_param){.store = &store->params,
							      .spec.kind = DEVICE_LINEAR_WEIGHT,
							      .shape = {4, 8},
							      .elements = 32,
							      .offset = 32 * i};
	}
}

static void check_gathers(const struct gathers *gathers, const struct gather *expected,
			  uint32_t count)
{
	assert_int_equal(gathers->count, count);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(gathers->items[i].bucket, expected[i].bucket);
		assert_int_equal(gathers->items[i].start, expected[i].start);
		assert_int_equal(gathers->items[i].first, expected[i].first);
		assert_int_equal(gathers->items[i].last, expected[i].last);
	}
}

/* Forward in steps 1 to 4, backward in 5 to 7: the first weight is not read there. */
TEST(planned)
{
	struct gathers gathers;
	struct store store;

	store_init(&store);
	gathers_init(&gathers, 5);
	for (uint32_t i = 0; i < 4; i++) {
		gathers_add_read(&gathers, &store.weights[i], 1 + i);
		if (i)
			gathers_add_read(&gathers, &store.weights[i], 8 - i);
	}
	gathers_order(&gathers);
	/* the last one stays for backward */
	check_gathers(&gathers,
		      (struct gather[]){{3, 0, 1, 1},
					{2, 1, 2, 2},
					{1, 2, 3, 3},
					{0, 3, 4, 5},
					{1, 5, 6, 6},
					{2, 6, 7, 7}},
		      6);
}

/* A weight that two operations share, and weights whose results are recomputed. */
TEST(planned_again)
{
	struct gathers gathers;
	struct store store;

	store_init(&store);
	gathers_init(&gathers, 10);
	/* any order */
	gathers_add_read(&gathers, &store.weights[1], 14);
	gathers_add_read(&gathers, &store.weights[0], 12);
	gathers_add_read(&gathers, &store.weights[1], 11);
	gathers_add_read(&gathers, &store.weights[0], 3);
	gathers_add_read(&gathers, &store.weights[1], 2);
	gathers_add_read(&gathers, &store.weights[0], 1);
	gathers_add_read(&gathers, &store.weights[0], 15);
	gathers_order(&gathers);
	check_gathers(&gathers, (struct gather[]){{3, 0, 1, 3}, {2, 1, 2, 14}, {3, 10, 12, 15}}, 3);
	/* vectors are whole, as is everything in another store */
	gathers_init(&gathers, 10);
	store.weights[0].spec.kind = DEVICE_VECTOR;
	store.weights[0].shape[1] = 0;
	gathers_add_read(&gathers, &store.weights[0], 1);
	store.params.shards.gathers = false;
	gathers_add_read(&gathers, &store.weights[1], 1);
	gathers_order(&gathers);
	assert_int_equal(gathers.count, 0);
}

/* ---- what it costs ---- */

/* Bytes that a ring sends once around of a number of elements. */
static uint64_t once(uint64_t elements)
{
	return elements * sizeof(float) / comm->world * (comm->world - 1);
}

/*
 * Each pass gathers each weight once, but backward not that of the first layer, whose input needs
 * no gradient, nor that of the last, which is still there. Recomputation needs the first one.
 */
TEST(sent)
{
	for (uint32_t recompute = 0; recompute < 2 && comm->world > 1; recompute++) {
		struct net net;
		uint64_t before = 0, scattered = comm->sent.reduce_scatters;

		net_open(&net, DEVICE_SHARD_PARAMETERS, recompute, false);
		const struct device_shards *shards = &net.params->shards;
		uint64_t size = net.device->copies_weights ? 2 : 4;
		uint64_t all = once(shards->divided) * size / 4;
		uint64_t last = once(shards->buckets[0].count) * size / 4;
		uint64_t first = once(shards->buckets[DEPTH].count) * size / 4;
		uint64_t both = 2 * all - last - (recompute ? 0 : first);
		assert_int_equal(shards->count, DEPTH + 1);
		for (unsigned i = 0; i < 3; i++) {
			before = comm->sent.all_gathers;
			step(&net, i, i > 0);
			assert_int_equal(comm->sent.all_gathers - before, both);
			assert_int_equal(comm->sent.reduce_scatters - scattered,
					 (i + 1) * once(shards->divided));
		}
		before = comm->sent.all_gathers;
		evaluate(&net, 1);
		assert_int_equal(comm->sent.all_gathers - before, all);
		forward(&net, 2);
		assert_int_equal(comm->sent.all_gathers - before, 2 * all);
		/* nothing is exchanged for an average, but by its evaluation */
		assert_int_equal(device_params_exchange(net.params, DEVICE_EMA), 0);
		assert_int_equal(comm->sent.all_gathers - before, 2 * all);
		assert_int_equal(comm->sent.reduce_scatters - scattered, 3 * once(shards->divided));
		net_close(&net);
	}
}

static void check_near(uint64_t bytes, double formula)
{
	if ((double)bytes < 0.95 * formula || (double)bytes > 1.05 * formula)
		fail_msg("%.0f bytes, by the formula %.0f", (double)bytes, formula);
}

/*
 * A rank keeps an n-th of values, gradients, two moments and an average. The CPU's arena has, in
 * the backward pass of a layer: its bucket and the next one, the weight and its gradient in the
 * formats of primitives, and gradients of its bucket and of the one before; and what each layer
 * keeps. Evaluation has two buckets and a weight in the format of a primitive. A GPU's arena has
 * two buckets in its own precision, and activations.
 */
TEST(memory)
{
	double weights = WIDTH * WIDTH * DEPTH + CLASSES * WIDTH;
	bool gpu = getenv("DEVICE_TEST_BACKEND");
	struct device_graph_info info;
	struct net net;

	if (comm->world < 2)
		return;
	net_open(&net, DEVICE_SHARD_PARAMETERS, 0, false);
	check_near(device_params_bytes(net.params), 4 * 5 * weights / comm->world);
	double size = net.device->copies_weights ? 2 : sizeof(float);
	double bucket = WIDTH * WIDTH * size, activation = net.count * WIDTH * size;
	device_graph_info(net.train, &info);
	check_near(info.arena_bytes, (gpu ? 2 : 6) * bucket + 2 * (DEPTH + 1) * activation);
	device_graph_info(net.eval, &info);
	check_near(info.arena_bytes, (gpu ? 2 : 3) * bucket + 3 * activation);
	net_close(&net);
}

/* ---- results ---- */

static void check_equal(struct device_results a, struct device_results b)
{
	assert_true(a.loss == b.loss);
	assert_true(a.grad_norm == b.grad_norm);
	assert_int_equal(a.top1, b.top1);
}

/*
 * Bit for bit as with divided gradients: the same operations on the same numbers. Also evaluation,
 * of the average too, micro-batches and forward passes alone, and with a weight that two layers
 * read.
 */
TEST(same)
{
	for (uint32_t recompute = 0; recompute < 3 && comm->world > 1; recompute++) {
		struct net whole, parts;

		net_open(&whole, DEVICE_SHARD_GRADIENTS, recompute, recompute == 1);
		net_open(&parts, DEVICE_SHARD_PARAMETERS, recompute, recompute == 1);
		for (unsigned i = 0; i < 6; i++)
			check_equal(step(&whole, i, i % 3), step(&parts, i, i % 3));
		check_equal(evaluate(&whole, 7), evaluate(&parts, 7));
		check_equal(forward(&whole, 8), forward(&parts, 8));
		double values = evaluate(&parts, 7).loss;
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(device_params_exchange(whole.params, DEVICE_EMA), 0);
			assert_int_equal(device_params_exchange(parts.params, DEVICE_EMA), 0);
			check_equal(evaluate(&whole, 7), evaluate(&parts, 7));
			assert_int_equal(evaluate(&parts, 7).loss == values, i);
		}
		check_equal(step(&whole, 9, true), step(&parts, 9, true));
		net_close(&whole);
		net_close(&parts);
	}
}

/* A warm-up is a rank's own: it neither sends nor changes anything. */
TEST(warm)
{
	struct net warm, cold;

	if (comm->world < 2)
		return;
	net_open(&warm, DEVICE_SHARD_PARAMETERS, 1, false);
	net_open(&cold, DEVICE_SHARD_PARAMETERS, 1, false);
	uint64_t before = comm->sent.all_gathers;
	if (comm->rank == 0) {
		upload(&warm, warm.train, 5);
		assert_int_equal(device_warmup(warm.train), 0);
	}
	assert_int_equal(comm->sent.all_gathers, before);
	for (unsigned i = 0; i < 2; i++)
		check_equal(step(&warm, i, true), step(&cold, i, true));
	net_close(&warm);
	net_close(&cold);
}
