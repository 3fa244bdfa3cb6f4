/*
 * How the CUDA backend runs steps, on the emulated GPU: a small residual net replayed against launched operation by operation, fed
 * while it computes, scaled, skipped, resumed, short of memory; and its losses against the CPU backend's.
 */
#include "emulation/engines.h"
#include "emulation/queue.h"
#include "test_device_reference.h"

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SAMPLES	   4
#define SIDE	   12
#define CLASSES	   10
#define PARAMS_MAX 40
#define IMAGE	   (SIDE * SIDE * 3)
#define ELEMENTS   20000 /* more than the largest parameter has */

struct batch {
	uint8_t images[SAMPLES * IMAGE];
	int32_t labels[SAMPLES];
};

struct net {
	struct device *device;
	struct device_params *params;
	struct device_param *p[PARAMS_MAX];
	unsigned count, used; /* parameters declared; taken while recording */
	struct device_graph *graph;
	struct device_value *stem; /* the first convolution's result */
};

static const struct device_optimizer_spec optimizer = {
	.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true, .ema = true};

/* ---- the net: a stem, a pool, a block that keeps its shape, one that halves it, a classifier ---- */

static void declare(struct net *net, const char *layer, uint32_t k, uint32_t window, uint32_t c)
{
	static const char *const parts[] = {"weight", "gamma", "beta", "mean", "var"};
	char name[64];

	for (unsigned i = 0; i < 5; i++) {
		struct device_shape shape = i ? (struct device_shape){1, 1, 1, k}
					      : (struct device_shape){k, window, window, c};

		snprintf(name, sizeof(name), "%s.%s", layer, parts[i]);
		net->p[net->count++] = add_param(net->params, name,
						 i == 0	 ? DEVICE_CONV_WEIGHT
						 : i < 3 ? DEVICE_VECTOR
							 : DEVICE_BUFFER,
						 shape);
	}
}

static void declare_all(struct net *net)
{
	declare(net, "stem", 8, 3, 3);
	declare(net, "a.conv1", 8, 3, 8);
	declare(net, "a.conv2", 8, 3, 8);
	declare(net, "b.down", 16, 1, 8);
	declare(net, "b.conv1", 16, 3, 8);
	declare(net, "b.conv2", 16, 3, 16);
	net->p[net->count++] = add_param(net->params, "fc.weight", DEVICE_LINEAR_WEIGHT,
					 (struct device_shape){CLASSES, 1, 1, 16});
	net->p[net->count++] = add_param(net->params, "fc.bias", DEVICE_VECTOR,
					 (struct device_shape){1, 1, 1, CLASSES});
}

static struct device_value *conv(struct net *net, struct device_value *x, const char *name,
				 uint32_t stride, uint32_t pad, struct device_value *residual,
				 enum device_activation activation)
{
	struct device_param **p = &net->p[net->used];
	struct device_norm norm = {p[1], p[2], p[3], p[4], 1e-5f, 0.1f};
	struct device_conv_spec spec = {.name = name,
					.weight = p[0],
					.norm = &norm,
					.stride = stride,
					.pad = pad,
					.residual = residual,
					.activation = activation};

	net->used += 5;
	return device_conv(net->graph, x, &spec);
}

static void record(struct net *net)
{
	struct device_input_spec input = {.name = "input",
					  .shape = {SAMPLES, SIDE, SIDE, 3},
					  .mean = {120, 115, 100},
					  .std = {60, 58, 57}};
	struct device_value *x, *y, *shortcut;

	net->used = 0;
	x = conv(net, device_input(net->graph, &input), "stem", 1, 1, NULL, DEVICE_RELU);
	net->stem = x;
	x = device_max_pool(net->graph, x, &(struct device_pool_spec){"pool", 3, 2, 1});
	y = conv(net, x, "a.conv1", 1, 1, NULL, DEVICE_RELU);
	x = conv(net, y, "a.conv2", 1, 1, x, DEVICE_RELU);
	shortcut = conv(net, x, "b.down", 2, 0, NULL, DEVICE_IDENTITY);
	y = conv(net, x, "b.conv1", 2, 1, NULL, DEVICE_RELU);
	x = conv(net, y, "b.conv2", 1, 1, shortcut, DEVICE_RELU);
	x = device_global_average_pool(net->graph, "mean", x);
	x = device_linear(net->graph, x,
			  &(struct device_linear_spec){.name = "fc",
						       .weight = net->p[net->used],
						       .bias = net->p[net->used + 1]});
	device_softmax_loss(net->graph, x,
			    &(struct device_loss_spec){.name = "loss", .smoothing = 0.1f});
}

static void fill(struct net *net)
{
	float *values = malloc(ELEMENTS * sizeof(float));

	for (unsigned i = 0; i < net->count; i++) {
		const struct device_param_spec *spec = device_param_spec(net->p[i]);
		size_t elements = device_param_elements(net->p[i]);
		double fan = spec->shape[1] ? (double)elements / spec->shape[0] : 1;
		bool one = strstr(spec->name, "gamma") || strstr(spec->name, "var");

		for (size_t j = 0; j < elements; j++)
			values[j] = one ? 1
				    : spec->shape[1]
					    ? (float)((uniform(i, j) * 2 - 1) * sqrt(6 / fan))
					    : 0;
		assert_int_equal(device_param_write(net->p[i], DEVICE_VALUE, values), 0);
	}
	free(values);
}

static int open_net(struct net *net, const char *backend, const struct device_options *options,
		    char *error)
{
	struct device_graph_options training = {.mode = DEVICE_TRAIN};

	memset(net, 0, sizeof(*net));
	assert_int_equal(device_open(backend, options, &net->device, error), 0);
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	declare_all(net);
	assert_int_equal(device_params_allocate(net->params, &optimizer), 0);
	fill(net);
	assert_int_equal(device_graph_new(net->params, &training, &net->graph), 0);
	record(net);
	return device_graph_plan(net->graph, error);
}

static void open_emulated(struct net *net, enum device_precision precision,
			  enum device_fusion fusion, bool eager)
{
	struct device_options options = {.precision = precision, .fusion = fusion, .eager = eager};
	char error[DEVICE_ERROR_MAX];

	if (open_net(net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
}

static void close_net(struct net *net)
{
	device_graph_free(net->graph);
	device_params_free(net->params);
	device_close(net->device);
}

/* ---- steps ---- */

static void make_batch(struct batch *batch, uint64_t seed)
{
	for (size_t i = 0; i < sizeof(batch->images); i++)
		batch->images[i] = (uint8_t)(uniform(1000 + seed, i) * 256);
	for (int32_t i = 0; i < SAMPLES; i++)
		batch->labels[i] = (int32_t)((seed * 7 + (uint64_t)i * 3) % CLASSES);
}

static struct device_batch view(const struct batch *batch)
{
	return (struct device_batch){.images = batch->images,
				     .labels = batch->labels,
				     .count = SAMPLES,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_U8};
}

static struct device_hyper hyper_at(unsigned t)
{
	struct device_hyper hyper = {.momentum = 0.9f, .ema_decay = t ? 0.9f : 0, .clip_norm = 5};

	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.02f + 0.001f * (float)t;
		hyper.weight_decay[i] = i ? 0 : 1e-3f;
	}
	return hyper;
}

static uint64_t step(struct net *net, unsigned t, bool update)
{
	struct device_hyper hyper = hyper_at(t);
	struct batch batch;
	struct device_batch images = view(&batch);
	uint64_t number;

	make_batch(&batch, t);
	images.flip = t % 3 == 1;
	assert_int_equal(device_feed(net->graph, &images, &number), 0);
	assert_int_equal(device_fed(net->graph, number, true), 0);
	assert_int_equal(device_step(net->graph, update ? &hyper : NULL, &number), 0);
	return number;
}

static struct device_results results_of(struct net *net, uint64_t number)
{
	struct device_results results;

	assert_int_equal(device_results(net->graph, number, true, &results), 0);
	return results;
}

static void assert_same(struct net *a, struct net *b)
{
	float *x = malloc(ELEMENTS * sizeof(float)), *y = malloc(ELEMENTS * sizeof(float));
	struct device_params_state own = {0}, other = {0};

	for (int slot = DEVICE_VALUE; slot <= DEVICE_EMA; slot++) {
		for (unsigned i = 0; i < a->count; i++) {
			int r = device_param_read(a->p[i], (enum device_slot)slot, x);

			assert_int_equal(r, device_param_read(b->p[i], (enum device_slot)slot, y));
			if (r == 0 && memcmp(x, y, device_param_elements(a->p[i]) * sizeof(float)))
				fail_msg("slot %d of %s differs", slot,
					 device_param_spec(a->p[i])->name);
		}
	}
	assert_int_equal(device_params_get_state(a->params, &own), 0);
	assert_int_equal(device_params_get_state(b->params, &other), 0);
	assert_memory_equal(&own, &other, sizeof(own));
	free(x);
	free(y);
}

static void assert_same_results(const struct device_results *a, const struct device_results *b)
{
	assert_int_equal(a->step, b->step);
	assert_int_equal(a->samples, b->samples);
	assert_int_equal(a->top1, b->top1);
	assert_int_equal(a->top5, b->top5);
	assert_memory_equal(&a->loss, &b->loss, sizeof(double));
	assert_memory_equal(&a->grad_norm, &b->grad_norm, sizeof(double));
	assert_memory_equal(&a->loss_scale, &b->loss_scale, sizeof(double));
	assert_int_equal(a->updated, b->updated);
	assert_int_equal(a->skipped, b->skipped);
}

static const struct {
	enum device_precision precision;
	enum device_fusion fusion;
} forms[] = {
	{DEVICE_FP32, DEVICE_FUSION_NONE}, {DEVICE_FP32, DEVICE_FUSION_C},
	{DEVICE_BF16, DEVICE_FUSION_B},	   {DEVICE_FP16, DEVICE_FUSION_NONE},
	{DEVICE_FP16, DEVICE_FUSION_C},
};

#define FORMS (sizeof(forms) / sizeof(*forms))

/* Every variant of a step, launched and replayed: the same bits. Once both places for batches are made, nothing is allocated. */
static void test_replay(void **state)
{
	static const bool updates[] = {true,  false, true,  false, false, true, true,
				       false, false, false, true,  true,  true};
	const unsigned steps = sizeof(updates) / sizeof(*updates);

	for (size_t form = 0; form < FORMS; form++) {
		struct net eager, replayed;
		uint64_t launches, allocations = 0;

		open_emulated(&eager, forms[form].precision, forms[form].fusion, true);
		open_emulated(&replayed, forms[form].precision, forms[form].fusion, false);
		launches = emulation_launches();
		for (unsigned t = 0; t < steps; t++) {
			struct device_results a, b;

			if (t == 2)
				allocations = emulation_allocations();
			a = results_of(&eager, step(&eager, t, updates[t]));
			b = results_of(&replayed, step(&replayed, t, updates[t]));
			assert_same_results(&a, &b);
			assert_int_equal(a.updated, updates[t]);
		}
		assert_int_equal(emulation_allocations(), allocations);
		/* each of the four variants is run once before it is captured */
		assert_int_equal(emulation_launches() - launches, steps - 4);
		assert_same(&eager, &replayed);
		close_net(&eager);
		close_net(&replayed);
	}
}

/* Losses of 20 steps follow the CPU's. */
static void test_against_cpu(void **state)
{
	struct device_options options = {.precision = DEVICE_FP32};
	char error[DEVICE_ERROR_MAX];
	struct net cpu;
	double losses[20];

	if (open_net(&cpu, "cpu", &options, error) < 0)
		fail_msg("%s", error);
	for (unsigned t = 0; t < 20; t++)
		losses[t] = results_of(&cpu, step(&cpu, t % 4, true)).loss;
	close_net(&cpu);
	assert_true(losses[19] < 0.8 * losses[0]);
	for (size_t form = 0; form < FORMS; form++) {
		bool half = forms[form].precision != DEVICE_FP32;
		struct net net;

		open_emulated(&net, forms[form].precision, forms[form].fusion, false);
		for (unsigned t = 0; t < 20; t++) {
			double loss = results_of(&net, step(&net, t % 4, true)).loss;
			double tolerance = half ? 0.02 + 0.004 * t : 1e-4;

			if (!(fabs(loss - losses[t]) < tolerance * losses[t]))
				fail_msg("precision %d, fusion %d, step %u: loss %g, the CPU's %g",
					 forms[form].precision, forms[form].fusion, t, loss,
					 losses[t]);
		}
		close_net(&net);
	}
}

static void test_resume(void **state)
{
	float *x = malloc(ELEMENTS * sizeof(float));
	struct device_params_state counters;
	struct net a, b;

	open_emulated(&a, DEVICE_FP16, DEVICE_FUSION_C, false);
	for (unsigned t = 0; t < 3; t++)
		step(&a, t, true);
	open_emulated(&b, DEVICE_FP16, DEVICE_FUSION_C, false);
	for (int slot = DEVICE_VALUE; slot <= DEVICE_EMA; slot++)
		for (unsigned i = 0; i < a.count; i++)
			if (slot != DEVICE_GRAD &&
			    device_param_read(a.p[i], (enum device_slot)slot, x) == 0)
				assert_int_equal(
					device_param_write(b.p[i], (enum device_slot)slot, x), 0);
	assert_int_equal(device_params_get_state(a.params, &counters), 0);
	assert_int_equal(device_params_set_state(b.params, &counters), 0);
	for (unsigned t = 3; t < 7; t++) {
		struct device_results own = results_of(&a, step(&a, t, true)),
				      other = results_of(&b, step(&b, t, true));

		assert_int_equal(own.step, other.step + 3);
		own.step = other.step;
		assert_same_results(&own, &other);
	}
	assert_same(&a, &b);
	close_net(&a);
	close_net(&b);
	free(x);
}

/* ---- evaluation ---- */

/* The loss of one batch, and how many kernels it took. */
static double evaluate(struct net *net, struct device_graph *graph, enum device_slot weights,
		       uint64_t *ret_works)
{
	struct device_results results;
	struct batch batch;
	struct device_batch images = view(&batch);
	uint64_t number;

	make_batch(&batch, 50);
	assert_int_equal(device_synchronize(net->device), 0);
	*ret_works = emulation_works();
	assert_int_equal(device_feed(graph, &images, &number), 0);
	assert_int_equal(device_evaluate(graph, weights, &number), 0);
	assert_int_equal(device_results(graph, number, true, &results), 0);
	assert_int_equal(device_synchronize(net->device), 0);
	*ret_works = emulation_works() - *ret_works;
	return results.loss;
}

static struct device_graph *plan_another(struct net *net, enum device_mode mode)
{
	struct device_graph_options options = {.mode = mode};
	struct net own = *net;
	char error[DEVICE_ERROR_MAX];

	assert_int_equal(device_graph_new(net->params, &options, &own.graph), 0);
	record(&own);
	if (device_graph_plan(own.graph, error) < 0)
		fail_msg("%s", error);
	return own.graph;
}

/* Folded weights and the scales of norms are made for the first batch, and anew whenever what they follow from has changed: by a step, from outside, or because others are read. */
static void expect_folded(struct net *net, unsigned folds)
{
	struct device_graph *graph = plan_another(net, DEVICE_EVAL);
	float beta[8] = {0.5f, -1, 1};
	uint64_t first, again;

	for (unsigned t = 0; t < 5; t++) {
		struct device_graph *fresh = plan_another(net, DEVICE_EVAL);
		enum device_slot weights = t % 2 ? DEVICE_EMA : DEVICE_VALUE;
		double loss = evaluate(net, graph, weights, &first);

		assert_true(loss == evaluate(net, fresh, weights, &again));
		assert_int_equal(again, first);
		for (unsigned i = 0; i < 3; i++) {
			assert_true(loss == evaluate(net, graph, weights, &again));
			assert_int_equal(again, first - folds);
		}
		assert_true(loss !=
			    evaluate(net, graph, t % 2 ? DEVICE_VALUE : DEVICE_EMA, &again));
		assert_int_equal(again, first);
		device_graph_free(fresh);
		if (t < 3)
			step(net, t + 1, t != 1);
		else
			assert_int_equal(device_param_write(net->p[2], DEVICE_VALUE, beta), 0);
	}
	device_graph_free(graph);
}

static void test_evaluation(void **state)
{
	struct net net;

	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
	step(&net, 0, true);
	step(&net, 1, true);
	expect_folded(&net, 7); /* six convolutions and the classifier */
	close_net(&net);
	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_NONE, false);
	step(&net, 0, true);
	step(&net, 1, true);
	expect_folded(&net, 6); /* norms */
	close_net(&net);
}

/* ---- loss scaling ---- */

static void set_scale(struct net *net, double scale, uint64_t age)
{
	struct device_params_state counters = {.loss_scale = scale, .scale_age = age};

	assert_int_equal(device_params_set_state(net->params, &counters), 0);
}

static void test_overflow(void **state)
{
	float *before = malloc(ELEMENTS * sizeof(float)), *after = malloc(ELEMENTS * sizeof(float));
	struct device_params_state counters;
	struct device_results results;
	struct net net;
	unsigned skips = 0;

	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_true(counters.loss_scale == 65536);
	set_scale(&net, 0x1p24, 5);
	assert_int_equal(device_param_read(net.p[0], DEVICE_VALUE, before), 0);
	do {
		results = results_of(&net, step(&net, 0, true));
		if (results.updated)
			break;
		assert_true(results.skipped && isfinite(results.loss));
		assert_true(results.loss_scale == 0x1p24 / (double)(1u << skips));
		skips++;
		assert_int_equal(device_param_read(net.p[0], DEVICE_VALUE, after), 0);
		assert_memory_equal(before, after, device_param_elements(net.p[0]) * sizeof(float));
		assert_int_equal(device_params_get_state(net.params, &counters), 0);
		assert_int_equal(counters.skipped, skips);
		assert_int_equal(counters.updates, 0);
		assert_int_equal(counters.scale_age, 0);
		assert_true(counters.loss_scale == 0x1p24 / (double)(1u << skips));
	} while (skips < 24);
	assert_true(skips > 0 && results.updated && isfinite(results.grad_norm));
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_int_equal(counters.updates, 1);
	close_net(&net);
	free(before);
	free(after);
}

/* The scale takes no part in what is learned: powers of two come out again exactly. */
static void test_scale(void **state)
{
	struct device_params_state counters;
	struct device_results one, other;
	struct net net, grown;

	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_NONE, false);
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_true(counters.loss_scale == 1);
	set_scale(&net, 4096, 0); /* of a run in fp16 */
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_true(counters.loss_scale == 1);
	close_net(&net);
	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
	open_emulated(&grown, DEVICE_FP16, DEVICE_FUSION_C, false);
	set_scale(&net, 1024, 0);
	set_scale(&grown, 1024, 1999);
	for (unsigned t = 0; t < 3; t++) {
		one = results_of(&net, step(&net, t, true));
		other = results_of(&grown, step(&grown, t, true));
		assert_true(one.loss_scale == 1024);
		assert_true(other.loss_scale == (t ? 2048 : 1024));
		assert_true(fabs(one.loss - other.loss) < 1e-3);
		assert_true(fabs(one.grad_norm - other.grad_norm) < 0.01 * one.grad_norm);
	}
	assert_int_equal(device_params_get_state(grown.params, &counters), 0);
	assert_int_equal(counters.scale_age, 2);
	close_net(&net);
	close_net(&grown);
}

/* ---- feeding ---- */

/* The losses of a run whose batches all come from one place, which is overwritten as soon as the device lets go of it. seen: the place as the device has it. */
static void feed_ahead(struct net *net, struct batch *place, const struct batch *seen,
		       unsigned steps, double *ret_losses)
{
	struct device_hyper hyper = hyper_at(0);
	struct device_batch images;
	struct device_results results;
	uint64_t number, ticket;

	for (unsigned t = 0; t < steps; t++) {
		make_batch(&place[t % 2], t);
		images = view(&seen[t % 2]);
		assert_int_equal(device_feed(net->graph, &images, &ticket), 0);
		assert_int_equal(device_feed(net->graph, &images, &number), -EBUSY);
		assert_int_equal(device_step(net->graph, &hyper, &number), 0);
		assert_int_equal(number, t + 1);
		/* the copy may still run: of this step nothing has been waited for */
		while (device_fed(net->graph, ticket, t % 4 == 3) == -EAGAIN)
			;
		memset(&place[t % 2], 0xee, sizeof(place[0]));
	}
	for (unsigned t = 0; t < steps; t++) {
		assert_int_equal(device_results(net->graph, t + 1, true, &results), 0);
		assert_int_equal(results.samples, SAMPLES);
		ret_losses[t] = results.loss;
	}
}

static void test_feeding(void **state)
{
	enum { BYTES = 8192 };
	int fd = memfd_create("batches", MFD_CLOEXEC);
	double expected[9], losses[9];
	struct batch *place;
	char *seen;
	struct net net;

	assert_true(2 * sizeof(*place) <= BYTES);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	place = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, true);
	feed_ahead(&net, place, place, 9, expected);
	close_net(&net);
	/* read-only, writable, not at all */
	for (unsigned way = 0; way < 3; way++) {
		int r;

		seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
		emulation_allow_registering(way < 1, way < 2);
		open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_C, false);
		r = device_register_host(net.device, seen, BYTES, false);
		assert_int_equal(r, way < 1 ? 0 : DEVICE_WANTS_WRITABLE);
		if (way) {
			assert_non_null(strstr(device_error(net.device), "mapped read-only"));
			assert_int_equal(mprotect(seen, BYTES, PROT_READ | PROT_WRITE), 0);
			r = device_register_host(net.device, seen, BYTES, true);
			assert_int_equal(r, way < 2 ? 0 : DEVICE_STAGED);
		}
		if (way == 2)
			assert_non_null(
				strstr(device_error(net.device), "could not be registered"));
		assert_int_equal(device_register_host(net.device, seen + 4096, 4096, way), -EEXIST);
		feed_ahead(&net, place, (const struct batch *)seen, 9, losses);
		assert_memory_equal(losses, expected, sizeof(losses));
		device_unregister_host(net.device, seen);
		/* and the memory can be announced again */
		assert_int_equal(device_register_host(net.device, seen, BYTES, way), r);
		device_unregister_host(net.device, seen);
		close_net(&net);
		munmap(seen, BYTES);
	}
	emulation_allow_registering(true, true);
	munmap(place, BYTES);
	close(fd);
}

/* A batch of wider elements than the last is the one thing that takes memory. */
static void test_elements(void **state)
{
	static float floats[SAMPLES * IMAGE];
	struct batch batch;
	struct device_batch images;
	struct device_results bytes, wide;
	struct net net;
	uint64_t number, allocations;

	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_B, false);
	bytes = results_of(&net, step(&net, 0, false));
	device_params_drop_gradients(net.params);
	make_batch(&batch, 0);
	for (unsigned i = 0; i < SAMPLES * IMAGE; i++)
		floats[i] = ((float)batch.images[i] - (float[]){120, 115, 100}[i % 3]) /
			    (float[]){60, 58, 57}[i % 3];
	images = view(&batch);
	images.images = floats;
	images.element = DEVICE_ELEMENT_F32;
	for (unsigned i = 0; i < 3; i++) {
		allocations = emulation_allocations();
		assert_int_equal(device_feed(net.graph, &images, &number), 0);
		assert_int_equal(device_step(net.graph, NULL, &number), 0);
		wide = results_of(&net, number);
		assert_true(fabs(wide.loss - bytes.loss) < 1e-5);
		device_params_drop_gradients(net.params);
	}
	assert_int_equal(emulation_allocations(), allocations);
	close_net(&net);
}

static void test_results(void **state)
{
	struct device_results results;
	struct net net;
	uint64_t number = 0;

	open_emulated(&net, DEVICE_FP32, DEVICE_FUSION_C, false);
	for (unsigned t = 0; t < DEVICE_RESULTS_MAX + 6; t++)
		number = step(&net, t, true);
	assert_int_equal(number, DEVICE_RESULTS_MAX + 6);
	assert_int_equal(device_results(net.graph, number, false, &results), -EAGAIN);
	assert_int_equal(device_results(net.graph, 6, true, &results), -ERANGE);
	assert_int_equal(device_results(net.graph, number + 1, true, &results), -ERANGE);
	assert_int_equal(device_results(net.graph, number, true, &results), 0);
	for (uint64_t i = 7; i <= number; i++) {
		assert_int_equal(device_results(net.graph, i, false, &results), 0);
		assert_int_equal(results.step, i);
		assert_true(results.updated);
	}
	number = step(&net, 0, true);
	assert_int_equal(device_synchronize(net.device), 0);
	assert_int_equal(device_results(net.graph, number, false, &results), 0);
	close_net(&net);
}

/* ---- what goes wrong ---- */

static void test_anomaly(void **state)
{
	struct device_options options = {
		.precision = DEVICE_FP16, .fusion = DEVICE_FUSION_C, .detect_anomaly = true};
	struct device_hyper hyper = hyper_at(0);
	float beta[8] = {0};
	char error[DEVICE_ERROR_MAX];
	struct batch batch;
	struct device_batch images = view(&batch);
	struct device_params_state counters;
	struct net net;
	uint64_t number;

	if (open_net(&net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
	assert_true(results_of(&net, step(&net, 0, true)).updated);
	/* gradients that overflow are what the scale is for */
	set_scale(&net, 0x1p24, 0);
	assert_true(results_of(&net, step(&net, 1, true)).skipped);
	set_scale(&net, 256, 0);
	beta[3] = INFINITY;
	assert_int_equal(device_param_write(net.p[7], DEVICE_VALUE, beta), 0); /* a.conv1.beta */
	make_batch(&batch, 2);
	assert_int_equal(device_feed(net.graph, &images, &number), 0);
	assert_int_equal(device_step(net.graph, &hyper, &number), -EDOM);
	assert_non_null(strstr(device_error(net.device), "a.conv1"));
	assert_non_null(strstr(device_error(net.device), "is not finite"));
	/* no update was made of it */
	assert_int_equal(device_params_get_state(net.params, &counters), 0);
	assert_int_equal(counters.updates + counters.skipped, 0);
	close_net(&net);
}

/* Whatever it is that does not fit, the plan's largest tensors are named, those of one size too. */
static void test_memory(void **state)
{
	struct device_graph_options training = {.mode = DEVICE_TRAIN};
	struct device_graph_info info;
	char error[DEVICE_ERROR_MAX];
	uint64_t limit;
	unsigned failures = 0;
	struct net net;
	int r;

	open_emulated(&net, DEVICE_FP16, DEVICE_FUSION_B, false);
	device_graph_info(net.graph, &info);
	assert_true(info.arena_bytes > 0 && info.bytes_forward > 0 && info.bytes_backward > 0);
	device_graph_free(net.graph);
	/* the parameters have taken some of it */
	for (limit = info.arena_bytes;; limit += 256) {
		emulation_limit_memory(limit);
		assert_int_equal(device_graph_new(net.params, &training, &net.graph), 0);
		record(&net);
		r = device_graph_plan(net.graph, error);
		if (r == 0)
			break;
		assert_int_equal(r, -ENOMEM);
		assert_non_null(strstr(error, "out of emulated memory"));
		assert_non_null(
			strstr(error, "smaller batch. Largest: stem raw (0.0 MiB), stem ("));
		device_graph_free(net.graph);
		failures++;
	}
	/* weights, batches, labels, results and more besides the arena */
	assert_true(failures > 20 && limit > info.arena_bytes);
	emulation_limit_memory(0);
	close_net(&net);
}

/* What no step has written is no number, whatever the memory held before. */
static void test_unwritten(void **state)
{
	struct device_graph_options training = {.mode = DEVICE_TRAIN, .keep_all = true};
	const size_t elements = (size_t)SAMPLES * SIDE * SIDE * 8;
	float *values = malloc(elements * sizeof(float));
	char error[DEVICE_ERROR_MAX];
	struct net net;

	open_emulated(&net, DEVICE_BF16, DEVICE_FUSION_NONE, false);
	device_graph_free(net.graph);
	emulation_fresh_memory(0);
	assert_int_equal(device_graph_new(net.params, &training, &net.graph), 0);
	record(&net);
	assert_int_equal(device_graph_plan(net.graph, error), 0);
	assert_int_equal(device_value_read(net.graph, net.stem, DEVICE_VALUE, values), 0);
	for (size_t i = 0; i < elements; i++)
		assert_true(isnan(values[i]));
	results_of(&net, step(&net, 0, true));
	assert_int_equal(device_value_read(net.graph, net.stem, DEVICE_VALUE, values), 0);
	for (size_t i = 0; i < elements; i++)
		assert_true(isfinite(values[i]));
	emulation_fresh_memory(0xff);
	close_net(&net);
	free(values);
}

static void test_profile(void **state)
{
	struct device_options options = {
		.precision = DEVICE_FP32, .fusion = DEVICE_FUSION_B, .profile = true};
	struct device_layer_info layer;
	uint64_t forward = 0, backward = 0;
	char error[DEVICE_ERROR_MAX];
	struct net net;
	uint32_t i;

	if (open_net(&net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
	for (unsigned t = 0; t < 3; t++)
		step(&net, t, true);
	for (i = 0; device_graph_layer(net.graph, i, &layer) == 0; i++) {
		assert_int_equal(layer.runs, 3);
		forward += layer.forward_ns;
		backward += layer.backward_ns;
		if (!strcmp(layer.name, "stem")) {
			assert_string_equal(layer.kind, "conv+norm+relu");
			assert_true(*layer.engine && layer.flops_forward > 0 &&
				    layer.bytes_backward > 0 && layer.forward_ns > 0);
		}
	}
	assert_int_equal(i, 11);
	assert_true(forward > 0 && backward > 0);
	close_net(&net);
}

/* ---- tuning ---- */

#define AGES 1e9 /* ms: whatever the emulated GPU takes for a pass is less */

static bool is_fused(const struct conv_problem *problem)
{
	return problem->prologue != CONV_PLAIN || problem->epilogue != CONV_STORE;
}

static double fused_is_fast(const struct conv_problem *problem)
{
	return is_fused(problem) ? 1e-9 : AGES;
}

static double fused_is_slow(const struct conv_problem *problem)
{
	return is_fused(problem) ? AGES : 1e-9;
}

/* The forward pass would do better without, and the weight gradient loses more. */
static double gradients_want_prologues(const struct conv_problem *problem)
{
	bool prologue = problem->prologue != CONV_PLAIN;

	if (problem->direction == CONV_WEIGHTS)
		return prologue ? 1e-9 : 3 * AGES;
	return prologue ? AGES : 1e-9;
}

/* And the other way round. */
static double gradients_want_none(const struct conv_problem *problem)
{
	bool prologue = problem->prologue != CONV_PLAIN;

	if (problem->direction == CONV_WEIGHTS)
		return prologue ? 3 * AGES : 1e-9;
	return problem->direction == CONV_FORWARD && !prologue ? AGES : 1e-9;
}

/* Opens a net tuned by what plans take, and returns what was taken apart. */
static const char *open_tuned(struct net *net, emulation_ms *ms)
{
	struct device_options options = {
		.precision = DEVICE_FP16, .fusion = DEVICE_FUSION_C, .autotune = true};
	struct device_graph_info info;
	char error[DEVICE_ERROR_MAX];

	emulation_time_plans(ms);
	/* too little for the workspace that tuning would like to have */
	emulation_limit_memory(16 << 20);
	if (open_net(net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
	emulation_limit_memory(0);
	device_graph_info(net->graph, &info);
	return info.fallback_log;
}

static void test_tuned_fused(void **state)
{
	struct net net;

	assert_string_equal(open_tuned(&net, fused_is_fast), "");
	close_net(&net);
	assert_string_equal(open_tuned(&net, gradients_want_prologues), "");
	close_net(&net);
	emulation_time_plans(NULL);
}

/* What is slower than its parts is taken apart, and computes what it does where nothing else has a plan. */
static void test_tuned_apart(void **state)
{
	static const char *const patterns[] = {" statistics;", " scale-bias-relu;", " relu-norm;",
					       " relu-norm-add-shortcut;", " add;"};
	struct net tuned, plain;
	const char *log = open_tuned(&tuned, fused_is_slow);

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!strstr(log, patterns[i]))
			fail_msg("not taken apart:%s\n%s", patterns[i], log);
	emulation_time_plans(NULL);
	setenv(EMULATION_PLANS, "plain", 1);
	open_emulated(&plain, DEVICE_FP16, DEVICE_FUSION_C, false);
	unsetenv(EMULATION_PLANS);
	for (unsigned t = 0; t < 3; t++)
		assert_true(results_of(&tuned, step(&tuned, t, true)).loss ==
			    results_of(&plain, step(&plain, t, true)).loss);
	close_net(&plain);
	close_net(&tuned);
}

static void test_tuned_for_gradients(void **state)
{
	struct net net;
	const char *log = open_tuned(&net, gradients_want_none);

	assert_non_null(strstr(log, " scale-bias-relu"));
	assert_null(strstr(log, "relu-norm"));
	close_net(&net);
	emulation_time_plans(NULL);
}

/* Tuning writes to the arena alone: not to weights, nor to gradients that are summed up already when another graph is planned. */
static void test_tuned_between(void **state)
{
	struct net tuned, plain;

	open_emulated(&plain, DEVICE_FP16, DEVICE_FUSION_C, false);
	assert_string_equal(open_tuned(&tuned, fused_is_fast), "");
	for (unsigned t = 0; t < 6; t++) {
		struct device_results own = results_of(&plain, step(&plain, t, t % 3 == 2)),
				      other = results_of(&tuned, step(&tuned, t, t % 3 == 2));

		assert_same_results(&own, &other);
		device_graph_free(plan_another(&tuned, t % 2 ? DEVICE_TRAIN : DEVICE_EVAL));
		assert_same(&plain, &tuned);
	}
	close_net(&plain);
	close_net(&tuned);
	emulation_time_plans(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replay),	      cmocka_unit_test(test_against_cpu),
		cmocka_unit_test(test_evaluation),    cmocka_unit_test(test_resume),
		cmocka_unit_test(test_overflow),      cmocka_unit_test(test_scale),
		cmocka_unit_test(test_feeding),	      cmocka_unit_test(test_elements),
		cmocka_unit_test(test_results),	      cmocka_unit_test(test_anomaly),
		cmocka_unit_test(test_memory),	      cmocka_unit_test(test_unwritten),
		cmocka_unit_test(test_profile),	      cmocka_unit_test(test_tuned_fused),
		cmocka_unit_test(test_tuned_apart),   cmocka_unit_test(test_tuned_for_gradients),
		cmocka_unit_test(test_tuned_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
