#include "tests/unit/trainer/cuda/cuda_run_test.h"

#include <math.h>

static const struct device_optimizer_spec optimizer = {
	.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true, .ema = true};

static void declare(struct net *net, const char *layer, uint32_t k, uint32_t window, uint32_t c)
{
	static const char *const parts[] = {"weight", "gamma", "beta", "mean", "var"};
	char name[64];

	for (unsigned i = 0; i < 5; i++) {
		struct device_shape shape = i ? (struct device_shape){1, 1, 1, k}
					      : (struct device_shape){k, window, window, c};

		snprintf(name, sizeof(name), "%s.%s", layer, parts[i]);
		net->p[net->count++] = add_param(net->params, name,
						 i == 0  ? DEVICE_CONV_WEIGHT
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

void record_net(struct net *net)
{
	struct device_input_spec input = {.name = "input",
					  .shape = {SAMPLES, SIDE, SIDE, 3},
					  .mean = {120, 115, 100},
					  .std = {60, 58, 57}};

	net->used = 0;
	struct device_value *x =
		conv(net, device_input(net->graph, &input), "stem", 1, 1, NULL, DEVICE_RELU);
	net->stem = x;
	x = device_max_pool(net->graph, x, &(struct device_pool_spec){"pool", 3, 2, 1});
	struct device_value *y = conv(net, x, "a.conv1", 1, 1, NULL, DEVICE_RELU);
	x = conv(net, y, "a.conv2", 1, 1, x, DEVICE_RELU);
	struct device_value *shortcut = conv(net, x, "b.down", 2, 0, NULL, DEVICE_IDENTITY);
	y = conv(net, x, "b.conv1", 2, 1, NULL, DEVICE_RELU);
	x = conv(net, y, "b.conv2", 1, 1, shortcut, DEVICE_RELU);
	x = device_global_average_pool(net->graph, "mean", x);
	x = device_linear(net->graph, x,
			  &(struct device_linear_spec){.name = "fc",
						       .weight = net->p[net->used],
						       .bias = net->p[net->used + 1]});
	device_loss(net->graph, x, &(struct device_loss_spec){.name = "loss", .smoothing = 0.1f});
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

int open_net(struct net *net, const char *backend, const struct device_options *options,
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
	record_net(net);
	return device_graph_plan(net->graph, error);
}

void open_emulated(struct net *net, enum device_precision precision, enum device_fusion fusion,
		   bool eager)
{
	struct device_options options = {.precision = precision, .fusion = fusion, .eager = eager};
	char error[DEVICE_ERROR_MAX];

	if (open_net(net, "cuda-emulated", &options, error) < 0)
		fail_msg("%s", error);
}

void close_net(struct net *net)
{
	device_graph_free(net->graph);
	device_params_free(net->params);
	device_close(net->device);
}

struct device_graph *plan_another(struct net *net, enum device_mode mode)
{
	struct device_graph_options options = {.mode = mode};
	struct net own = *net;
	char error[DEVICE_ERROR_MAX];

	assert_int_equal(device_graph_new(net->params, &options, &own.graph), 0);
	record_net(&own);
	if (device_graph_plan(own.graph, error) < 0)
		fail_msg("%s", error);
	return own.graph;
}

void make_batch(struct batch *batch, uint64_t seed)
{
	for (size_t i = 0; i < sizeof(batch->images); i++)
		batch->images[i] = (uint8_t)(uniform(1000 + seed, i) * 256);
	for (int32_t i = 0; i < SAMPLES; i++)
		batch->labels[i] = (int32_t)((seed * 7 + (uint64_t)i * 3) % CLASSES);
}

struct device_batch view(const struct batch *batch)
{
	return (struct device_batch){.images = batch->images,
				     .labels = batch->labels,
				     .count = SAMPLES,
				     .channels = 3,
				     .element = DEVICE_ELEMENT_U8};
}

struct device_hyper hyper_at(unsigned t)
{
	struct device_hyper hyper = {.momentum = 0.9f, .ema_decay = t ? 0.9f : 0, .clip_norm = 5};

	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.02f + 0.001f * (float)t;
		hyper.weight_decay[i] = i ? 0 : 1e-3f;
	}
	return hyper;
}

uint64_t step(struct net *net, unsigned t, bool update)
{
	struct device_hyper hyper = hyper_at(t);
	struct batch batch;
	struct device_batch images = view(&batch);
	uint64_t number;

	make_batch(&batch, t);
	images.flip = t % 3 == 1;
	assert_int_equal(device_upload(net->graph, &images, &number), 0);
	assert_int_equal(device_upload_done(net->graph, number, true), 0);
	assert_int_equal(device_step(net->graph, update ? &hyper : NULL, &number), 0);
	return number;
}

struct device_results results_of(struct net *net, uint64_t number)
{
	struct device_results results;

	assert_int_equal(device_results(net->graph, number, true, &results), 0);
	return results;
}

void set_scale(struct net *net, double scale, uint64_t age)
{
	struct device_params_state counters = {.loss_scale = scale, .scale_age = age};

	assert_int_equal(device_params_set_state(net->params, &counters), 0);
}

void assert_same(struct net *a, struct net *b)
{
	float *x = malloc(ELEMENTS * sizeof(float)), *y = malloc(ELEMENTS * sizeof(float));
	struct device_params_state own = {0}, other = {0};

	for (int slot = DEVICE_VALUE; slot <= DEVICE_EMA; slot++) {
		for (unsigned i = 0; i < a->count; i++) {
			int r = device_param_read(a->p[i], (enum device_slot)slot, x);

			assert_int_equal(r, device_param_read(b->p[i], (enum device_slot)slot, y));
			if (r == 0 &&
			    memcmp(x, y, device_param_elements(a->p[i]) * sizeof(float)) != 0)
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

void assert_same_results(const struct device_results *a, const struct device_results *b)
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
