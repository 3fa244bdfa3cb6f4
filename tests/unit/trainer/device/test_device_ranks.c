/*
 * Ranks with one device each against one device that gets the whole batch. Every rank runs both and
 * compares them. Run alone and under mpirun; the batch is divisible by 1, 2, 3 and 4. The
 * environment selects the device, see open_device().
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"
#include "tests/unit/trainer/ranks_test.h"
#include "trainer/device/backend.h"

#include <errno.h>
#include <math.h>

#define BATCH   12
#define SIDE    8
#define PIXELS  (SIDE * SIDE * 3)
#define CLASSES 10
#define HIDDEN  600 /* so that a HIDDEN x HIDDEN matrix is longer than a bucket */
#define STEPS   8

enum norms { NORMS_NONE, NORMS_LOCAL, NORMS_SYNCHRONIZED };

/* What a test varies. */
struct variant {
	enum norms norms;
	bool recompute; /* convolutions and norms form a segment that backward recomputes */
	enum device_shard shard;
	enum device_optimizer_kind optimizer;
	bool perturbs;
};

struct net {
	struct device *device;
	struct device_params *params;
	struct device_graph *graph;
	uint32_t first, count; /* samples of the batch that this net gets */
	double slack;          /* factor on the tolerance: Adam divides by small numbers */
	bool weighted;         /* two labels per sample, with class weights */
};

/*
 * Returns the argument for open_device() that opens the device in the precision that the
 * environment selects.
 */
static enum device_precision precision(void)
{
	const char *chosen = getenv("DEVICE_TEST_PRECISION");

	return chosen && strstr(chosen, "16") ? DEVICE_BF16 : DEVICE_FP32;
}

/*
 * Factor on the tolerance of fp32: because of rounding in sums over ranks, the 16-bit copy of a
 * weight or an activation after a norm may round to the other neighbouring value. bf16 has three
 * bits less than fp16.
 */
static double tolerance_factor(const struct net *net)
{
	switch (device_info(net->device)->precision) {
	case DEVICE_FP16:
		return 25 * net->slack;
	case DEVICE_BF16:
		return 200 * net->slack;
	default:
		return net->slack;
	}
}

static struct device_value *record_conv(struct net *net, const char *name, struct device_value *x,
					struct device_value *residual, enum norms norms)
{
	static const char *const parts[] = {".weight", ".gamma", ".beta", ".mean", ".var"};
	struct device_param *p[5];
	struct device_norm norm;
	struct device_conv_spec spec = {.name = name,
					.stride = 1,
					.pad = 1,
					.residual = residual,
					.activation = DEVICE_RELU};
	char full[32];

	for (unsigned i = 0; i < 5; i++) {
		struct device_shape shape = {8, 3, 3, device_value_shape(x).c};

		snprintf(full, sizeof(full), "%s%s", name, parts[i]);
		p[i] = i ? add_param(net->params, full, i < 3 ? DEVICE_VECTOR : DEVICE_BUFFER,
				     (struct device_shape){1, 1, 1, 8})
			 : add_param(net->params, full, DEVICE_CONV_WEIGHT, shape);
	}
	norm = (struct device_norm){.gamma = p[1],
				    .beta = p[2],
				    .running_mean = p[3],
				    .running_var = p[4],
				    .epsilon = 1e-5f,
				    .momentum = 0.1f,
				    .synchronized = norms == NORMS_SYNCHRONIZED};
	spec.weight = p[0];
	/* without a norm no graph uses gamma and the buffers */
	if (norms == NORMS_NONE)
		spec.bias = p[2];
	else
		spec.norm = &norm;
	return device_conv(net->graph, x, &spec);
}

static struct device_value *record_linear(struct net *net, const char *name, struct device_value *x,
					  uint32_t outputs)
{
	struct device_shape shape = {outputs, 1, 1, device_value_shape(x).c};
	struct device_linear_spec spec = {
		.name = name,
		.weight = add_param(net->params, name, DEVICE_LINEAR_WEIGHT, shape),
		.activation = outputs == HIDDEN ? DEVICE_GELU : DEVICE_IDENTITY};

	return device_linear(net->graph, x, &spec);
}

static void open_variant(struct net *net, struct comm *ranks, const struct variant *variant)
{
	struct device_graph_options graph_options = {.mode = DEVICE_TRAIN,
						     .recompute = variant->recompute};
	struct device_optimizer_spec optimizer = {.kind = variant->optimizer,
						  .ema = true,
						  .slow = variant->shard != DEVICE_SHARD_NONE,
						  .perturbs = variant->perturbs,
						  .shard = ranks ? variant->shard
								 : DEVICE_SHARD_NONE};
	enum norms norms = variant->norms;
	struct device_options options = {.precision = precision(), .threads = 1, .comm = ranks};
	struct device_params_state state = {.loss_scale = 1024};
	float weights[CLASSES];
	char error[DEVICE_ERROR_MAX];

	memset(net, 0, sizeof(*net));
	/* SAM computes twice as much, from values that it moves */
	net->slack = variant->perturbs ? 4 : 1;
	if (variant->optimizer == DEVICE_ADAMW || variant->optimizer == DEVICE_LAMB)
		net->slack = 50;
	net->count = BATCH / (ranks ? ranks->world : 1);
	net->first = ranks ? net->count * ranks->rank : 0;
	net->device = open_device_with(&options);
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	assert_int_equal(device_graph_new(net->params, &graph_options, &net->graph), 0);
	struct device_value *x =
		device_input(net->graph, &(struct device_input_spec){
						 .name = "input",
						 .shape = {net->count, SIDE, SIDE, 3},
						 .std = {1, 1, 1},
					 });
	x = record_conv(net, "a", x, NULL, norms);
	struct device_value *y = record_conv(net, "b", x, x, norms);
	y = device_global_average_pool(net->graph, "pool", y);
	y = device_scale_add(net->graph, y,
			     &(struct device_scale_add_spec){
				     .name = "drop", .drop_path = 0.1f, .dropout = 0.2f});
	device_begin_block(net->graph);
	y = record_linear(net, "h1", y, HIDDEN);
	y = record_linear(net, "h2", y, HIDDEN);
	y = record_linear(net, "fc", y, CLASSES);
	net->weighted = norms == NORMS_NONE;
	for (unsigned i = 0; i < CLASSES; i++)
		weights[i] = (float)(0.1 + 2 * uniform(77, i));
	device_loss(net->graph, y,
		    &(struct device_loss_spec){.name = "loss",
					       .smoothing = 0.1f,
					       .targets = net->weighted ? DEVICE_TWO_LABELS
									: DEVICE_LABELS,
					       .class_weights = net->weighted ? weights : NULL});
	assert_int_equal(device_params_allocate(net->params, &optimizer), 0);
	if (device_graph_plan(net->graph, error) < 0)
		fail_msg("%s", error);
	for (size_t i = 0; i < device_params_count(net->params); i++) {
		struct device_param *param = device_params_at(net->params, i);
		const struct device_param_spec *spec = device_param_spec(param);
		size_t count = device_param_elements(param);
		float *values = malloc(count * sizeof(float));
		double fan = spec->kind == DEVICE_CONV_WEIGHT ? 9.0 * spec->shape[3]
							      : (double)spec->shape[1];

		for (size_t k = 0; k < count; k++)
			values[k] = spec->kind == DEVICE_BUFFER || spec->kind == DEVICE_VECTOR
					    ? (float)uniform(i, k) + 0.5f
					    : (float)((2 * uniform(i, k) - 1) * sqrt(3 / fan));
		assert_int_equal(device_param_write(param, DEVICE_VALUE, values), 0);
		free(values);
	}
	/* start with a loss scale that does not overflow, so that no step is skipped */
	if (device_info(net->device)->precision == DEVICE_FP16)
		assert_int_equal(device_params_set_state(net->params, &state), 0);
}

static void open_net(struct net *net, struct comm *ranks, enum norms norms)
{
	open_variant(net, ranks, &(struct variant){.norms = norms});
}

static void close_net(struct net *net)
{
	device_graph_free(net->graph);
	device_params_free(net->params);
	device_close(net->device);
}

/* Returns the step's number, for device_results(). */
static uint64_t begin_step(struct net *net, unsigned number, const struct device_hyper *hyper)
{
	static float images[BATCH * PIXELS];
	int32_t labels[BATCH], labels2[BATCH];
	float shares[BATCH];
	struct device_batch batch = {.images = images + (size_t)net->first * PIXELS,
				     .labels = labels + net->first,
				     .count = net->count,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_F32,
				     .draws = {.seed = 7, .step = number, .first = net->first}};
	uint64_t ticket, id;

	for (size_t i = 0; i < BATCH * PIXELS; i++)
		images[i] = (float)(3 * uniform(1000 + number, i) - 1);
	/* most unlabelled samples belong to the first ranks */
	for (uint32_t i = 0; i < BATCH; i++)
		labels[i] = i == 1 || i == 2 || i == 3 || i == 11
				    ? -1
				    : (int32_t)((i * 7 + number) % CLASSES);
	for (uint32_t i = 0; i < BATCH; i++) {
		labels2[i] = (int32_t)((i * 3 + number) % CLASSES);
		shares[i] = (float)uniform(2000 + number, i);
	}
	if (net->weighted) {
		batch.labels2 = labels2 + net->first;
		batch.shares = shares + net->first;
	}
	assert_int_equal(device_upload(net->graph, &batch, &ticket), 0);
	if (device_step(net->graph, hyper, &id) < 0)
		fail_msg("%s", device_error(net->device));
	return id;
}

static void step(struct net *net, unsigned number, const struct device_hyper *hyper,
		 struct device_results *ret_results)
{
	uint64_t id = begin_step(net, number, hyper);

	assert_int_equal(device_results(net->graph, id, true, ret_results), 0);
}

static struct device_hyper hyper_of(unsigned number)
{
	struct device_hyper hyper = {.momentum = 0.9f,
				     .beta1 = 0.9f,
				     .beta2 = 0.99f,
				     .epsilon = 1e-3f,
				     .trust_coefficient = 0.1f,
				     .slow = number % 4 == 3 ? 0.5f : 0,
				     .ema_decay = number ? 0.7f : 0,
				     .grad_scale = number % 3 == 2 ? 0.5f : 1};

	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.05f;
		hyper.weight_decay[i] = 1e-3f;
	}
	hyper.clip_norm = number % 2 ? 0.3f : 0;
	return hyper;
}

static float *read_slot(const struct net *net, size_t index, enum device_slot slot)
{
	struct device_param *param = device_params_at(net->params, index);
	float *values = malloc(device_param_elements(param) * sizeof(float));

	assert_int_equal(device_param_read(param, slot, values), 0);
	return values;
}

/*
 * Largest difference divided by the largest value, for a slot of all parameters; includes buffers
 * only if `buffers`.
 */
static double difference(const struct net *a, const struct net *b, enum device_slot slot,
			 bool buffers)
{
	double worst = 0;

	for (size_t i = 0; i < device_params_count(a->params); i++) {
		struct device_param *param = device_params_at(a->params, i);
		double largest = 1e-3, apart = 0;

		if (device_param_spec(param)->kind == DEVICE_BUFFER && !buffers)
			continue;
		float *x = read_slot(a, i, slot);
		float *y = read_slot(b, i, slot);
		for (size_t k = 0; k < device_param_elements(param); k++) {
			largest = fmax(largest, fabs((double)y[k]));
			apart = fmax(apart, fabs((double)x[k] - (double)y[k]));
		}
		worst = fmax(worst, apart / largest);
		free(x);
		free(y);
	}
	return worst;
}

/* Asserts that the parameters have the same bits on every rank. */
static void check_same(const struct net *net, bool buffers)
{
	for (size_t i = 0; i < device_params_count(net->params); i++) {
		struct device_param *param = device_params_at(net->params, i);
		size_t size = device_param_elements(param) * sizeof(float);
		float *mine = read_slot(net, i, DEVICE_VALUE), *all = malloc(size * comm->world);

		assert_int_equal(comm_gather(comm, mine, size, all), 0);
		for (unsigned rank = 0; rank < comm->world; rank++)
			if (buffers || device_param_spec(param)->kind != DEVICE_BUFFER)
				assert_memory_equal((char *)all + rank * size, mine, size);
		free(mine);
		free(all);
	}
}

static bool near(const struct net *net, double a, double b)
{
	return fabs(a - b) <= 2e-5 * tolerance_factor(net) * (1e-3 + fabs(b));
}

/* A ring sends 2 (n - 1) / n of the gradients; the rest is loss, labels and norms. */
static void check_sent(const struct net *net, uint64_t sent)
{
	uint64_t gradients = 0;

	for (size_t i = 0; i < device_params_count(net->params); i++) {
		struct device_param *param = device_params_at(net->params, i);

		if (device_param_spec(param)->kind != DEVICE_BUFFER)
			gradients += device_param_elements(param) * sizeof(float);
	}
	gradients = 2 * gradients * (comm->world - 1) / comm->world;
	assert_in_range(sent, gradients, gradients + gradients / 100);
}

/* A step of both nets, with a perturbation first if the variant has them. */
static void step_both(struct net *ranks, struct net *whole, unsigned number,
		      const struct variant *variant)
{
	struct device_hyper hyper = hyper_of(number), perturbs = hyper;
	struct device_results a, b;

	perturbs.perturb = 0.05f;
	if (variant->perturbs) {
		step(ranks, number, &perturbs, &a);
		step(whole, number, &perturbs, &b);
	}
	step(ranks, number, &hyper, &a);
	step(whole, number, &hyper, &b);
	assert_true(a.updated && b.updated);
	assert_int_equal(a.samples, b.samples);
	assert_int_equal(a.top1, b.top1);
	assert_int_equal(a.top5, b.top5);
	if (!near(ranks, a.loss, b.loss) || !near(ranks, a.grad_norm, b.grad_norm))
		fail_msg("step %u: loss %.9g and %.9g, norm %.9g and %.9g", number, a.loss, b.loss,
			 a.grad_norm, b.grad_norm);
}

/*
 * Runs steps with clipping and averages, every third one after a micro-batch. Labelled samples are
 * not spread evenly.
 */
static void compare(const struct variant *variant)
{
	struct net ranks, whole;
	uint64_t sent = 0;

	open_variant(&ranks, comm, variant);
	open_variant(&whole, NULL, variant);
	for (unsigned i = 0; i < STEPS; i++) {
		struct device_results a, b;
		uint64_t before;

		if (i % 3 == 2 && !variant->perturbs) {
			step(&ranks, 100 + i, NULL, &a);
			step(&whole, 100 + i, NULL, &b);
			assert_true(near(&ranks, a.loss, b.loss));
			assert_int_equal(a.samples, 8);
		}
		before = comm->sent.sums;
		step_both(&ranks, &whole, i, variant);
		if (i == 0)
			sent = comm->sent.sums - before;
		/* also if steps are captured and replayed */
		assert_int_equal(comm->sent.sums - before, sent);
	}
	if (!variant->shard && !variant->perturbs)
		check_sent(&ranks, sent);
	check_same(&ranks, variant->norms == NORMS_SYNCHRONIZED);
	double apart = difference(&ranks, &whole, DEVICE_VALUE, true);
	if (apart >= 2e-5 * tolerance_factor(&ranks))
		fail_msg("optimizer %d, shard %d: values differ by %g", (int)variant->optimizer,
			 (int)variant->shard, apart);
	assert_true(difference(&ranks, &whole, DEVICE_EMA, true) < 2e-5 * tolerance_factor(&ranks));
	assert_true(difference(&ranks, &whole, DEVICE_STATE, false) <
		    2e-4 * tolerance_factor(&ranks));
	close_net(&ranks);
	close_net(&whole);
}

TEST(without_norms)
{
	compare(&(struct variant){.norms = NORMS_NONE});
}

TEST(synchronized)
{
	compare(&(struct variant){.norms = NORMS_SYNCHRONIZED});
}

/* Sharded stores do what whole ones do, with each kind of optimizer, recomputation and SAM. */
TEST(sharded)
{
	static const struct variant variants[] = {
		{.norms = NORMS_NONE, .shard = DEVICE_SHARD_OPTIMIZER},
		{.norms = NORMS_NONE, .shard = DEVICE_SHARD_GRADIENTS},
		{NORMS_SYNCHRONIZED, true, DEVICE_SHARD_GRADIENTS, DEVICE_ADAMW, false},
		{NORMS_SYNCHRONIZED, false, DEVICE_SHARD_OPTIMIZER, DEVICE_LAMB, false},
		{NORMS_NONE, false, DEVICE_SHARD_GRADIENTS, DEVICE_LARS, false},
		{NORMS_SYNCHRONIZED, false, DEVICE_SHARD_GRADIENTS, DEVICE_SGD, true},
		{NORMS_SYNCHRONIZED, true, DEVICE_SHARD_PARAMETERS, DEVICE_ADAMW, false},
		{NORMS_NONE, false, DEVICE_SHARD_PARAMETERS, DEVICE_LAMB, false},
		{NORMS_SYNCHRONIZED, false, DEVICE_SHARD_PARAMETERS, DEVICE_SGD, true},
	};

	for (unsigned i = 0; i < sizeof(variants) / sizeof(*variants); i++)
		compare(&variants[i]);
}

/* Bytes that a ring sends once around of all divided weights, in elements of `size` bytes. */
static uint64_t sent_once(const struct net *net, size_t size)
{
	const struct device_shards *shards = &net->params->shards;

	return shards->divided * size / shards->world * (shards->world - 1);
}

/*
 * What a sharded store sends in a step: each weight's gradient once, each weight once, and twice as
 * much of what is not divided. What it takes: the parts of divided slots. GPUs keep and exchange
 * weights in 16 bits if they compute in these; the fp32 values are divided, too.
 */
TEST(sharded_costs)
{
	for (enum device_shard shard = 1; shard <= DEVICE_SHARD_GRADIENTS && comm->world > 1;
	     shard++) {
		struct device_hyper hyper = hyper_of(1);
		struct device_results results;
		struct net net;

		open_variant(&net, comm,
			     &(struct variant){.norms = NORMS_NONE,
					       .shard = shard,
					       .optimizer = DEVICE_ADAMW});
		const struct device_shards *shards = &net.params->shards;
		size_t whole = shards->elements - shards->divided;
		size_t part = shards->divided / shards->world;
		size_t size = shards->divides_values ? 2 : 4;
		/* values and gradients; momentum, variance, EMA and Lookahead's weights */
		uint64_t bytes = (shards->divides_values ? part : shards->divided) + whole +
				 4 * (part + whole) + whole +
				 (shard == DEVICE_SHARD_GRADIENTS ? part : shards->divided);
		struct comm_sent before = comm->sent;

		step(&net, 1, NULL, &results);
		bool scattered = shard == DEVICE_SHARD_GRADIENTS;
		assert_int_equal(comm->sent.reduce_scatters - before.reduce_scatters,
				 scattered * sent_once(&net, sizeof(float)));
		assert_int_equal(comm->sent.all_gathers, before.all_gathers);
		step(&net, 1, &hyper, &results);
		assert_int_equal(comm->sent.reduce_scatters - before.reduce_scatters,
				 (1 + scattered) * sent_once(&net, sizeof(float)));
		assert_int_equal(comm->sent.all_gathers - before.all_gathers,
				 sent_once(&net, size));
		assert_int_equal(device_params_bytes(net.params) - net.params->copies_bytes,
				 bytes * sizeof(float));
		/* with biases, and the first weight with its channels padded to 8 */
		if (shards->divides_values)
			assert_in_range(net.params->copies_bytes, 2 * shards->divided,
					2 * shards->divided + 2048);
		/* buckets: as few elements of padding as the parts need to be equally long */
		size_t weights = 8 * 27 + 8 * 72 + HIDDEN * 8 + HIDDEN * HIDDEN + CLASSES * HIDDEN;
		assert_in_range(shards->divided, weights,
				weights + 16 * (5 + (size_t)comm->world * shards->count));
		close_net(&net);
	}
}

/* Averages are evaluated in the place of the values, and put back bit for bit. */
TEST(exchanged)
{
	struct device_hyper hyper = hyper_of(1);
	struct device_results results;
	struct net net;

	open_variant(&net, comm, &(struct variant){.shard = DEVICE_SHARD_OPTIMIZER});
	for (unsigned i = 0; i < 2; i++)
		step(&net, i, &hyper, &results);
	for (size_t i = 0; i < device_params_count(net.params); i++) {
		struct device_param *param = device_params_at(net.params, i);
		size_t size = device_param_elements(param) * sizeof(float);
		float *value = read_slot(&net, i, DEVICE_VALUE);
		float *average = read_slot(&net, i, DEVICE_EMA);

		assert_int_equal(device_params_exchange(net.params, DEVICE_EMA), 0);
		float *exchanged = read_slot(&net, i, DEVICE_VALUE);
		assert_int_equal(device_params_exchange(net.params, DEVICE_EMA), 0);
		float *restored = read_slot(&net, i, DEVICE_VALUE);
		assert_memory_equal(exchanged, average, size);
		assert_memory_equal(restored, value, size);
		free(value);
		free(average);
		free(exchanged);
		free(restored);
	}
	assert_int_equal(device_params_exchange(net.params, DEVICE_SWA), -EINVAL);
	close_net(&net);
}

/* Rank 0 alone reads and writes whole tensors of divided slots. */
TEST(led)
{
	struct device_hyper hyper = hyper_of(1);
	struct device_results results;
	struct net net;

	open_variant(&net, comm, &(struct variant){.shard = DEVICE_SHARD_GRADIENTS});
	step(&net, 0, &hyper, &results);
	struct device_param *fc = device_params_find(net.params, "fc");
	size_t index = device_params_count(net.params) - 1, count = device_param_elements(fc);
	float *before = read_slot(&net, index, DEVICE_EMA);
	assert_ptr_equal(device_params_at(net.params, index), fc);
	if (comm->rank) {
		assert_int_equal(device_params_follow(net.params), 0);
	} else {
		device_params_lead(net.params);
		float *read = read_slot(&net, index, DEVICE_EMA);
		assert_memory_equal(read, before, count * sizeof(float));
		for (size_t i = 0; i < count; i++)
			read[i] += 1;
		assert_int_equal(device_param_write(fc, DEVICE_EMA, read), 0);
		assert_int_equal(device_params_dismiss(net.params), 0);
		free(read);
	}
	float *after = read_slot(&net, index, DEVICE_EMA);
	for (size_t i = 0; i < count; i++)
		assert_true(after[i] == before[i] + 1);
	free(before);
	free(after);
	close_net(&net);
}

/* Methods that need whole gradients are refused by name. */
TEST(refused)
{
	struct device_options options = {.precision = precision(), .threads = 1, .comm = comm};
	struct device_optimizer_spec muon = {
		.kind = DEVICE_MUON, .ns_steps = 5, .shard = DEVICE_SHARD_OPTIMIZER};
	struct device_optimizer_spec centered = {.centralize = true,
						 .shard = DEVICE_SHARD_OPTIMIZER};
	struct device *device = open_device_with(&options);
	struct device_params *params;

	assert_int_equal(device_params_new(device, &params), 0);
	if (comm->world > 1) {
		assert_int_equal(device_params_allocate(params, &muon), -ENOTSUP);
		assert_string_equal(device_error(device),
				    "muon needs whole gradients, of which a sharded store has "
				    "parts");
		assert_int_equal(device_params_allocate(params, &centered), -ENOTSUP);
	}
	assert_int_equal(device_params_allocate(params, comm->world > 1 ? NULL : &muon), 0);
	device_params_free(params);
	device_close(device);
}

/*
 * With local norms the training differs from that of the whole batch, but is the same on every
 * rank.
 */
TEST(local_norms)
{
	struct net ranks, whole;
	struct device_results a, b;

	open_net(&ranks, comm, NORMS_LOCAL);
	open_net(&whole, NULL, NORMS_LOCAL);
	for (unsigned i = 0; i < STEPS; i++) {
		struct device_hyper hyper = hyper_of(i);

		step(&ranks, i, &hyper, &a);
		step(&whole, i, &hyper, &b);
		assert_true(a.updated);
	}
	check_same(&ranks, false);
	assert_int_equal(a.loss == b.loss, comm->world == 1);
	close_net(&ranks);
	close_net(&whole);
}

/* With recomputed activations, sums over ranks equal those of the first computation bit for bit. */
TEST(anew)
{
	static const enum norms norms[] = {NORMS_SYNCHRONIZED, NORMS_LOCAL};

	for (unsigned k = 0; k < 2; k++) {
		struct net kept, anew;
		struct device_results a, b;

		open_net(&kept, comm, norms[k]);
		open_variant(&anew, comm, &(struct variant){.norms = norms[k], .recompute = true});
		for (unsigned i = 0; i < STEPS; i++) {
			struct device_hyper hyper = hyper_of(i);

			step(&kept, i, &hyper, &a);
			step(&anew, i, &hyper, &b);
			assert_true(a.updated && b.updated);
			assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
		}
		assert_true(difference(&kept, &anew, DEVICE_VALUE, true) == 0);
		close_net(&kept);
		close_net(&anew);
	}
}

/*
 * A value that is not finite on the last rank makes all ranks skip that step, and only that step.
 */
TEST(not_finite)
{
	struct net ranks;
	struct device_results results;
	struct device_hyper hyper = hyper_of(1);
	struct device_params_state counters;
	float gradient[CLASSES * HIDDEN] = {[77] = NAN};

	open_net(&ranks, comm, NORMS_NONE);
	step(&ranks, 0, &hyper, &results);
	if (comm->rank == comm->world - 1)
		assert_int_equal(device_param_write(device_params_find(ranks.params, "fc"),
						    DEVICE_GRAD, gradient),
				 0);
	step(&ranks, 1, &hyper, &results);
	assert_true(results.skipped && !results.updated);
	step(&ranks, 2, &hyper, &results);
	assert_true(results.updated);
	assert_int_equal(device_params_get_state(ranks.params, &counters), 0);
	assert_int_equal(counters.updates, 2);
	assert_int_equal(counters.skipped, 1);
	check_same(&ranks, false);
	close_net(&ranks);
}

/*
 * A net without a loss has no sums over ranks before an update, whether steps are run, captured or
 * replayed.
 */
TEST(nothing_to_sum)
{
	struct device_options options = {.precision = precision(), .threads = 1, .comm = comm};
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct net net = {.count = BATCH / comm->world, .first = BATCH / comm->world * comm->rank};
	struct device_results results;
	char error[DEVICE_ERROR_MAX];

	net.device = open_device_with(&options);
	assert_int_equal(device_params_new(net.device, &net.params), 0);
	assert_int_equal(device_graph_new(net.params, &(struct device_graph_options){DEVICE_TRAIN},
					  &net.graph),
			 0);
	struct device_value *x =
		device_input(net.graph, &(struct device_input_spec){
						.name = "input",
						.shape = {net.count, SIDE, SIDE, 3},
						.std = {1, 1, 1},
					});
	record_linear(&net, "fc", device_global_average_pool(net.graph, "pool", x), CLASSES);
	assert_int_equal(device_params_allocate(net.params, &optimizer), 0);
	if (device_graph_plan(net.graph, error) < 0)
		fail_msg("%s", error);
	for (unsigned i = 0; i < 4; i++) {
		step(&net, i, NULL, &results);
		assert_false(results.updated);
	}
	close_net(&net);
}

/*
 * All ranks agree on whether a step's results are available. If a later step's are, so are the
 * earlier ones', and they cover all ranks.
 */
TEST(late_results)
{
	enum { LATE = 4 };
	struct net ranks, whole;
	struct device_results expected[LATE], results;
	uint64_t ids[LATE];

	open_net(&ranks, comm, NORMS_SYNCHRONIZED);
	open_net(&whole, NULL, NORMS_SYNCHRONIZED);
	for (unsigned i = 0; i < LATE; i++) {
		struct device_hyper hyper = hyper_of(i);
		int *all = malloc(comm->world * sizeof(*all));

		step(&whole, i, &hyper, &expected[i]);
		ids[i] = begin_step(&ranks, i, &hyper);
		int r = device_results(ranks.graph, ids[i], false, &results);
		assert_true(r == 0 || r == -EAGAIN);
		if (i == LATE - 1)
			assert_int_equal(device_results(ranks.graph, ids[i], true, &results), 0);
		assert_int_equal(comm_gather(comm, &r, sizeof(r), all), 0);
		for (unsigned rank = 0; rank < comm->world; rank++)
			assert_int_equal(all[rank], r);
		free(all);
	}
	for (unsigned i = 0; i < LATE; i++) {
		assert_int_equal(device_results(ranks.graph, ids[i], false, &results), 0);
		assert_int_equal(results.samples, expected[i].samples);
		assert_int_equal(results.top1, expected[i].top1);
		assert_true(near(&ranks, results.loss, expected[i].loss));
		assert_true(near(&ranks, results.grad_norm, expected[i].grad_norm));
	}
	close_net(&ranks);
	close_net(&whole);
}
