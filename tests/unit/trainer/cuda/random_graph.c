#include "tests/unit/trainer/cuda/random_graph.h"
#include "tests/test.h"
#include "trainer/device/ops.h"

enum { VALUES_MAX = 64 };

struct maker {
	struct device_params *params;
	struct device_graph *graph;
	struct device_value *values[VALUES_MAX];
	unsigned count, params_made;
	uint64_t state;
	bool ghosts; /* norms may use statistics of groups of samples, which few patterns support */
	/* parameters that later operations may share */
	struct device_param *conv_weight;
	struct device_norm norm;
};

/* SplitMix64 (Steele, Lea, Flood 2014) */
static uint64_t draw(struct maker *m)
{
	uint64_t z = m->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* Returns a random number in 0 .. count - 1. */
static uint32_t pick(struct maker *m, uint32_t count)
{
	return (uint32_t)(draw(m) % count);
}

static struct device_param *make_param(struct maker *m, enum device_param_kind kind,
				       const uint32_t shape[4])
{
	struct device_param_spec spec = {.kind = kind, .frozen = pick(m, 6) == 0};
	struct device_param *param;
	char name[32];

	snprintf(name, sizeof(name), "p%u", m->params_made++);
	spec.name = name;
	memcpy(spec.shape, shape, sizeof(spec.shape));
	if (device_param_add(m->params, &spec, &param))
		fail_msg("parameter %s cannot be declared", name);
	return param;
}

static struct device_param *make_vector(struct maker *m, uint32_t channels)
{
	return make_param(m, DEVICE_VECTOR, (uint32_t[4]){channels});
}

static void make_norm(struct maker *m, uint32_t channels, struct device_norm *norm)
{
	/* sometimes reuse the same norm */
	if (m->norm.gamma && device_param_elements(m->norm.gamma) == channels && pick(m, 4) == 0) {
		*norm = m->norm;
		return;
	}
	/* large, because channels that hardly vary over the few positions would amplify rounding */
	*norm = (struct device_norm){.epsilon = 0.1f, .momentum = 0.1f};
	norm->gamma = make_vector(m, channels);
	norm->beta = make_vector(m, channels);
	norm->running_mean = make_param(m, DEVICE_BUFFER, (uint32_t[4]){channels});
	norm->running_var = make_param(m, DEVICE_BUFFER, (uint32_t[4]){channels});
	if (m->ghosts && pick(m, 3))
		norm->ghost = 1 + pick(m, 4);
	if (pick(m, 5) == 0) {
		device_param_freeze(norm->running_mean, true);
		device_param_freeze(norm->running_var, true);
	}
	m->norm = *norm;
}

/* Picks an earlier value, preferring the latest. */
static struct device_value *some_value(struct maker *m)
{
	return m->values[m->count - 1 - pick(m, 1 + pick(m, m->count))];
}

static struct device_value *value_of_shape(struct maker *m, struct device_shape shape)
{
	for (unsigned tries = 0; tries < 4; tries++) {
		struct device_value *value = some_value(m);
		struct device_shape s = device_value_shape(value);

		if (s.n == shape.n && s.h == shape.h && s.w == shape.w && s.c == shape.c)
			return value;
	}
	return NULL;
}

static struct device_value *add_conv(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	struct device_shape shape = device_value_shape(x);
	uint32_t window = shape.h >= 3 && pick(m, 2) ? 3 : 1;
	uint32_t channels = pick(m, 3) ? shape.c : 8 + 8 * pick(m, 2);
	uint32_t groups = channels == shape.c && pick(m, 6) == 0 ? (pick(m, 2) ? shape.c : 2) : 1;
	uint32_t weight[4] = {channels, window, window,
			      shape.c % groups ? shape.c : shape.c / groups};
	struct device_conv_spec spec = {
		.name = name,
		.stride = 1 + (pick(m, 4) == 0 && shape.h > 2),
		.pad = window / 2,
		.activation = (enum device_activation)pick(m, DEVICE_ACTIVATIONS),
	};
	struct device_norm norm;

	spec.pad_extra = window > 1 && pick(m, 8) == 0;
	uint32_t pads = 2 * spec.pad + spec.pad_extra;
	if (m->conv_weight && pick(m, 4) == 0 &&
	    memcmp(device_param_spec(m->conv_weight)->shape, weight, sizeof(weight)) == 0)
		spec.weight = m->conv_weight;
	else
		spec.weight = m->conv_weight = make_param(m, DEVICE_CONV_WEIGHT, weight);
	if (pick(m, 3)) {
		make_norm(m, channels, &norm);
		spec.norm = &norm;
		/* the most common case in models */
		if (pick(m, 2))
			spec.activation = DEVICE_RELU;
	} else if (pick(m, 2)) {
		spec.bias = make_vector(m, channels);
	}
	shape.h = (shape.h + pads - window) / spec.stride + 1;
	shape.w = (shape.w + pads - window) / spec.stride + 1;
	shape.c = channels;
	if (pick(m, 2))
		spec.residual = value_of_shape(m, shape);
	return device_conv(m->graph, x, &spec);
}

static struct device_value *add_linear(struct maker *m, const char *name, uint32_t outputs,
				       bool logits)
{
	struct device_value *x = logits ? m->values[m->count - 1] : some_value(m);
	struct device_shape shape = device_value_shape(x);
	bool by_position = !logits && pick(m, 2);
	struct device_linear_spec spec = {
		.name = name,
		.by_position = by_position,
		.weight = make_param(m, DEVICE_LINEAR_WEIGHT,
				     (uint32_t[4]){outputs, by_position
								    ? shape.c
								    : shape.h * shape.w * shape.c}),
		.bias = pick(m, 2) ? make_vector(m, outputs) : NULL,
		.activation = (enum device_activation)pick(m, DEVICE_ACTIVATIONS),
	};

	if (!by_position)
		shape.h = shape.w = 1;
	shape.c = outputs;
	if (pick(m, 2))
		spec.residual = value_of_shape(m, shape);
	return device_linear(m->graph, x, &spec);
}

static struct device_value *add_norm(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	struct device_norm norm;

	make_norm(m, device_value_shape(x).c, &norm);
	return device_norm(m->graph, name, x, &norm,
			   pick(m, 3) ? NULL : value_of_shape(m, device_value_shape(x)),
			   (enum device_activation)pick(m, DEVICE_ACTIVATIONS));
}

static struct device_value *add_layer_norm(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	uint32_t channels = device_value_shape(x).c;
	struct device_layer_norm_spec spec = {
		.name = name,
		.gamma = make_vector(m, channels),
		.beta = make_vector(m, channels),
		.epsilon = 0.1f,
	};

	return device_layer_norm(m->graph, x, &spec);
}

/* q, k and v come from a convolution. */
static struct device_value *add_attention(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	struct device_attention_spec spec = {.name = name, .heads = 1 + pick(m, 2)};
	uint32_t channels = 3 * spec.heads * (8 - 3 * pick(m, 2));
	char qkv[40];
	struct device_conv_spec conv = {
		.name = qkv,
		.weight = make_param(m, DEVICE_CONV_WEIGHT,
				     (uint32_t[4]){channels, 1, 1, device_value_shape(x).c}),
		.stride = 1,
	};

	spec.dropout = pick(m, 2) ? 0 : 0.3f;
	snprintf(qkv, sizeof(qkv), "%s qkv", name);
	return device_attention(m->graph, device_conv(m->graph, x, &conv), &spec);
}

static struct device_value *add_tokens(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	struct device_shape shape = device_value_shape(x);
	uint32_t classes = pick(m, 2);
	struct device_pos_embed_spec spec = {.name = name,
					     .grid_side = pick(m, 2) ? 1 + pick(m, 4) : 0};
	uint32_t places = spec.grid_side ? spec.grid_side * spec.grid_side : shape.h * shape.w;

	spec.positions = make_param(m, DEVICE_EMBEDDING, (uint32_t[4]){places + classes, shape.c});
	if (classes)
		spec.class_token = make_param(m, DEVICE_EMBEDDING, (uint32_t[4]){1, shape.c});
	return device_pos_embed(m->graph, x, &spec);
}

static struct device_value *add_take(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	struct device_shape shape = device_value_shape(x);

	return device_select_token(m->graph, name, x, pick(m, shape.h * shape.w));
}

/*
 * Adds a residual of x's shape, and a gate that is a global average or another value of its shape.
 */
static struct device_value *add_scale(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	struct device_shape shape = device_value_shape(x);
	struct device_scale_add_spec spec = {
		.name = name,
		.residual = pick(m, 2) ? value_of_shape(m, shape) : NULL,
		.gamma = pick(m, 2) ? make_vector(m, shape.c) : NULL,
		.drop_path = pick(m, 3) ? 0 : 0.3f,
		.dropout = pick(m, 3) ? 0 : 0.2f,
		.activation = pick(m, 2) ? DEVICE_RELU : DEVICE_IDENTITY,
	};
	char pool[48];

	snprintf(pool, sizeof(pool), "%s pool", name);
	if (pick(m, 3) == 0)
		spec.gate = device_global_average_pool(m->graph, pool, x);
	else if (pick(m, 2))
		spec.gate = value_of_shape(m, (struct device_shape){shape.n, 1, 1, shape.c});
	return device_scale_add(m->graph, x, &spec);
}

static struct device_value *add_pool(struct maker *m, const char *name)
{
	struct device_value *x = some_value(m);
	struct device_shape shape = device_value_shape(x);
	struct device_pool_spec spec = {.name = name, .window = shape.h >= 2 ? 2 : 1, .stride = 1};

	if (shape.h >= 3 && pick(m, 2)) {
		spec.window = 3;
		spec.pad = 1;
		spec.stride = 1 + pick(m, 2);
	}
	return pick(m, 3) ? device_max_pool(m->graph, x, &spec)
			  : device_average_pool(m->graph, x, &spec);
}

static struct device_value *add_node(struct maker *m, const char *name)
{
	switch (pick(m, 34)) {
	case 0:
		return add_norm(m, name);
	case 1:
		return add_norm(m, name);
	case 2:
		return add_pool(m, name);
	case 3:
		return pick(m, 2) ? device_global_average_pool(m->graph, name, some_value(m))
				  : device_global_max_pool(m->graph, name, some_value(m));
	case 4:
		return add_linear(m, name, 8, false);
	case 5:
		return add_layer_norm(m, name);
	case 6:
		return add_attention(m, name);
	case 7:
		return add_tokens(m, name);
	case 8:
		return add_take(m, name);
	case 9:
		return add_scale(m, name);
	default:
		return add_conv(m, name);
	}
}

static void push(struct maker *m, struct device_value *value)
{
	assert_non_null(value);
	m->values[m->count++] = value;
}

void random_graph_new(struct device *device, const struct random_graph_options *options,
		      struct random_graph *ret_random)
{
	const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD, .shard = options->shard};
	struct device_graph_options graph_options = {options->mode, options->keep_all,
						     options->recompute};
	struct maker m = {.state = options->seed, .ghosts = options->seed % 5 == 0};
	struct device_input_spec input = {
		.name = "input",
		.shape = {options->samples, 6, 6, 3},
		.mean = {120, 110, 100, 100},
		.std = {60, 55, 50, 50},
	};
	char name[32];

	assert_int_equal(device_params_new(device, &m.params), 0);
	assert_int_equal(device_graph_new(m.params, &graph_options, &m.graph), 0);
	input.shape.c = pick(&m, 2) ? 3 : 8;
	input.gradient = pick(&m, 3) == 0;
	push(&m, device_input(m.graph, &input));
	for (unsigned i = 0; i < options->nodes && m.count < VALUES_MAX - 1; i++) {
		snprintf(name, sizeof(name), "node%u", i);
		if (i % 2)
			device_begin_block(m.graph);
		push(&m, add_node(&m, name));
	}
	if (options->loss) {
		static const float weights[5] = {1, 0.5f, 2, 0.25f, 1};
		struct device_loss_spec loss = {.name = "loss", .smoothing = 0.1f};
		struct device_value *logits = add_linear(&m, "logits", 5, true);

		if (pick(&m, 3) == 0)
			loss.kind = DEVICE_SIGMOID;
		if (pick(&m, 3) == 0)
			loss.class_weights = weights;
		assert_non_null(device_loss(m.graph, logits, &loss));
	}
	assert_int_equal(device_params_allocate(m.params, &sgd), 0);
	ret_random->params = m.params;
	ret_random->graph = m.graph;
}

void random_graph_free(struct random_graph *random)
{
	device_graph_free(random->graph);
	device_params_free(random->params);
}
