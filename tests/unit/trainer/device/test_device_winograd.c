/*
 * Convolutions that the CPU computes by Winograd. Results and both gradients against sums in double
 * precision, with a tighter tolerance than test_device_ops; layers with norm, residual and
 * activation, in training and evaluation, against oneDNN with the same window zero-padded to a
 * larger one; the same bits with any number of threads, with shared memory and with recomputation.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

/* twice the error of the weight gradients of the last case, whose sums have 17,100 terms */
#define TOLERANCE 3e-6

struct conv_case {
	struct device_shape x;
	uint32_t k, pad;
	bool bias;
};

static const struct conv_case cases[] = {
	{{12, 8, 8, 32}, 32, 1, false}, /* whole tiles */
	{{30, 7, 8, 40}, 44, 1, true},  /* partial tiles and partial blocks of channels */
	{{40, 6, 6, 32},
	 48,
	 0,
	 false},                       /* no padding; the gradient of x then has a padding of two */
	{{15, 5, 6, 48}, 32, 2, true}, /* padding of two; the gradient of x has none */
	{{80, 3, 3, 272}, 64, 1, false}, /* so deep that a panel does not stay in the cache */
	{{52, 4, 4, 33}, 300, 1, true},  /* many output channels */
	{{60, 15, 19, 32}, 32, 1, true}, /* more tiles than a block, with one thread and with all */
};

struct run {
	float *y, *dx, *dw, *db;
};

static float *floats(const struct tensor *tensor)
{
	float *v = malloc(tensor_count(tensor) * sizeof(float));

	tensor_to_float(tensor, v);
	return v;
}

/* Counts the layers that use Winograd. */
static unsigned count_winograd(const struct device_graph *graph)
{
	struct device_layer_info info;
	unsigned count = 0;

	for (uint32_t i = 0; device_graph_layer(graph, i, &info) == 0; i++)
		count += strstr(info.engine, "winograd") != NULL;
	return count;
}

struct fixture {
	const struct conv_case *conv;
	struct tensor x, w, b, g;
};

static struct fixture make(const struct conv_case *conv)
{
	struct device_shape y = {conv->x.n, conv->x.h + 2 * conv->pad - 2,
				 conv->x.w + 2 * conv->pad - 2, conv->k};
	struct fixture f = {
		conv,
		tensor_new(conv->x),
		tensor_new((struct device_shape){conv->k, 3, 3, conv->x.c}),
		tensor_new((struct device_shape){1, 1, 1, conv->k}),
		tensor_new(y),
	};

	tensor_fill(&f.x, 1, false);
	tensor_fill(&f.w, 2, false);
	tensor_fill(&f.b, 3, false);
	tensor_fill(&f.g, 4, false);
	return f;
}

static void drop(struct fixture *f)
{
	tensor_free(&f->x);
	tensor_free(&f->w);
	tensor_free(&f->b);
	tensor_free(&f->g);
}

/* Runs a step of only this layer. */
static struct run run(const struct fixture *f, unsigned threads)
{
	struct device *device = open_device(DEVICE_FP32, threads);
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct device_graph_options options = {.mode = DEVICE_TRAIN, .keep_all = true};
	struct device_input_spec spec = {
		.name = "input", .shape = f->x.shape, .std = {1, 1, 1, 1}, .gradient = true};
	struct device_conv_spec conv = {.name = "conv", .stride = 1, .pad = f->conv->pad};
	float *x = floats(&f->x), *w = floats(&f->w), *b = floats(&f->b), *g = floats(&f->g);
	struct device_batch batch = {.images = x,
				     .count = f->x.shape.n,
				     .channels = f->x.shape.c,
				     .element = DEVICE_ELEMENT_F32};
	struct device_params *params;
	struct device_graph *graph;
	char error[DEVICE_ERROR_MAX];
	uint64_t ticket;
	struct run found = {floats(&f->g), floats(&f->x), floats(&f->w), floats(&f->b)};

	assert_int_equal(device_params_new(device, &params), 0);
	conv.weight = add_param(params, "weight", DEVICE_CONV_WEIGHT, f->w.shape);
	if (f->conv->bias)
		conv.bias = add_param(params, "bias", DEVICE_VECTOR, f->b.shape);
	assert_int_equal(device_params_allocate(params, &optimizer), 0);
	assert_int_equal(device_param_write(conv.weight, DEVICE_VALUE, w), 0);
	if (conv.bias)
		assert_int_equal(device_param_write(conv.bias, DEVICE_VALUE, b), 0);
	assert_int_equal(device_graph_new(params, &options, &graph), 0);
	struct device_value *input = device_input(graph, &spec);
	struct device_value *y = device_conv(graph, input, &conv);
	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	assert_int_equal(count_winograd(graph), 1);
	assert_int_equal(device_value_write(graph, y, DEVICE_GRAD, g), 0);
	assert_int_equal(device_upload(graph, &batch, &ticket), 0);
	assert_int_equal(device_step(graph, NULL, &ticket), 0);
	assert_int_equal(device_value_read(graph, y, DEVICE_VALUE, found.y), 0);
	assert_int_equal(device_value_read(graph, input, DEVICE_GRAD, found.dx), 0);
	assert_int_equal(device_param_read(conv.weight, DEVICE_GRAD, found.dw), 0);
	if (conv.bias)
		assert_int_equal(device_param_read(conv.bias, DEVICE_GRAD, found.db), 0);
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
	free(x);
	free(w);
	free(b);
	free(g);
	return found;
}

static void run_free(struct run *run)
{
	free(run->y);
	free(run->dx);
	free(run->dw);
	free(run->db);
}

/* Adds the contribution of the result's gradient to those of x and w. */
static void differentiate(const struct fixture *f, struct tensor *dx, struct tensor *dw)
{
	struct device_shape x = f->x.shape, y = f->g.shape;

	for (size_t at = 0; at < tensor_count(&f->g); at++) {
		size_t k = at % y.c, q = at / y.c % y.w, p = at / y.c / y.w % y.h,
		       n = at / y.c / y.w / y.h;

		for (size_t tap = 0; tap < 9; tap++) {
			size_t h = p + tap / 3 - f->conv->pad, w = q + tap % 3 - f->conv->pad;
			size_t pixel = ((n * x.h + h) * x.w + w) * x.c;
			size_t weight = (k * 9 + tap) * x.c;

			/*
			 * unsigned wrap-around: positions above or left of the image become very
			 * large
			 */
			for (size_t c = 0; c < x.c && h < x.h && w < x.w; c++) {
				dx->v[pixel + c] += f->g.v[at] * f->w.v[weight + c];
				dw->v[weight + c] += f->g.v[at] * f->x.v[pixel + c];
			}
		}
	}
}

static void compare(const char *what, size_t number, const float *got,
		    const struct tensor *expected)
{
	double error = relative_error(got, expected->v, tensor_count(expected));

	if (!(error <= TOLERANCE))
		fail_msg("%s of case %zu: relative error %g", what, number, error);
}

TEST(against_double)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fixture f = make(&cases[i]);
		struct run found = run(&f, 0);
		struct tensor y = reference_conv(&f.x, &f.w, 1, f.conv->pad, 0);
		struct tensor dx = tensor_new(f.x.shape), dw = tensor_new(f.w.shape),
			      db = tensor_new(f.b.shape);

		if (f.conv->bias)
			reference_bias(&y, &f.b);
		differentiate(&f, &dx, &dw);
		compare("result", i, found.y, &y);
		compare("gradient of x", i, found.dx, &dx);
		compare("gradient of the weights", i, found.dw, &dw);
		for (size_t at = 0; at < tensor_count(&f.g); at++)
			db.v[at % f.b.shape.c] += f.g.v[at];
		if (f.conv->bias)
			compare("gradient of the bias", i, found.db, &db);
		tensor_free(&y);
		tensor_free(&dx);
		tensor_free(&dw);
		tensor_free(&db);
		run_free(&found);
		drop(&f);
	}
}

TEST(threads)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fixture f = make(&cases[i]);
		struct run one = run(&f, 1);

		for (unsigned threads = 2; threads <= 5; threads++) {
			struct run other = run(&f, threads);

			assert_memory_equal(one.y, other.y, tensor_count(&f.g) * sizeof(float));
			assert_memory_equal(one.dx, other.dx, tensor_count(&f.x) * sizeof(float));
			assert_memory_equal(one.dw, other.dw, tensor_count(&f.w) * sizeof(float));
			run_free(&other);
		}
		run_free(&one);
		drop(&f);
	}
}

/* ---- layers of 32 channels, with norm, residual and activation ---- */

enum { BATCH = 12, SIDE = 8, WIDTH = 32, CLASSES = 5 };

/* Parameters of a layer. */
enum part { WEIGHT, BIAS, GAMMA, BETA, MEAN, VARIANCE, PARTS };

struct layer {
	const char *name;
	uint32_t window;
	bool norm, fixed, bias;
	enum device_activation activation;
	struct device_param *parts[PARTS];
};

static struct device_param *add_part(struct device_params *params, const struct layer *layer,
				     enum part part)
{
	static const char *const names[] = {"weight", "bias", "gamma", "beta", "mean", "variance"};
	struct device_shape vector = {1, 1, 1, WIDTH},
			    weight = {WIDTH, layer->window, layer->window, WIDTH};
	char name[32];

	snprintf(name, sizeof(name), "%s.%s", layer->name, names[part]);
	return add_param(params, name,
			 part == WEIGHT ? DEVICE_CONV_WEIGHT
			 : part >= MEAN ? DEVICE_BUFFER
					: DEVICE_VECTOR,
			 part == WEIGHT ? weight : vector);
}

static void add_layer(struct device_params *params, struct layer *layer)
{
	layer->parts[WEIGHT] = add_part(params, layer, WEIGHT);
	if (layer->bias)
		layer->parts[BIAS] = add_part(params, layer, BIAS);
	for (enum part part = GAMMA; layer->norm && part <= VARIANCE; part++) {
		layer->parts[part] = add_part(params, layer, part);
		if (layer->fixed && part >= MEAN)
			device_param_freeze(layer->parts[part], true);
	}
}

/*
 * Returns the index of weight i of the 3 x 3 window in the layer's window. A larger window has
 * zeros around the 3 x 3 one.
 */
static size_t place_of(const struct layer *layer, size_t i)
{
	size_t margin = (layer->window - 3) / 2, row = layer->window, c = i % WIDTH,
	       s = i / WIDTH % 3, r = i / WIDTH / 3 % 3, k = i / WIDTH / 9;

	return ((k * row + r + margin) * row + s + margin) * WIDTH + c;
}

static void write_layer(const struct layer *layer, uint64_t seed)
{
	for (enum part part = 0; part < PARTS; part++) {
		struct device_param *param = layer->parts[part];

		if (!param)
			continue;
		float *values = calloc(device_param_elements(param), sizeof(float));
		for (size_t i = 0; part != WEIGHT && i < WIDTH; i++)
			values[i] = (float)(uniform(seed + part, i) + (part == VARIANCE ? 0.5 : 0));
		for (size_t i = 0; part == WEIGHT && i < (size_t)WIDTH * 9 * WIDTH; i++)
			values[place_of(layer, i)] = (float)(uniform(seed, i) - 0.5) / 8;
		assert_int_equal(device_param_write(param, DEVICE_VALUE, values), 0);
		free(values);
	}
}

static struct device_value *record_layer(struct device_graph *graph, struct device_value *x,
					 const struct layer *layer, struct device_value *residual)
{
	struct device_norm norm = {.gamma = layer->parts[GAMMA],
				   .beta = layer->parts[BETA],
				   .running_mean = layer->parts[MEAN],
				   .running_var = layer->parts[VARIANCE],
				   .epsilon = 1e-5f,
				   .momentum = 0.1f};

	return device_conv(graph, x,
			   &(struct device_conv_spec){.name = layer->name,
						      .weight = layer->parts[WEIGHT],
						      .bias = layer->parts[BIAS],
						      .norm = layer->norm ? &norm : NULL,
						      .stride = 1,
						      .pad = layer->window / 2,
						      .residual = residual,
						      .activation = layer->activation});
}

static void feed(struct device_graph *graph)
{
	static float images[BATCH * SIDE * SIDE * WIDTH];
	int32_t labels[BATCH];
	struct device_batch batch = {.images = images,
				     .labels = labels,
				     .count = BATCH,
				     .channels = WIDTH,
				     .element = DEVICE_ELEMENT_F32};
	uint64_t ticket;

	for (size_t i = 0; i < sizeof(images) / sizeof(*images); i++)
		images[i] = (float)(uniform(100, i) * 2 - 1);
	for (int32_t i = 0; i < BATCH; i++)
		labels[i] = i * 3 % CLASSES;
	assert_int_equal(device_upload(graph, &batch, &ticket), 0);
}

static struct device_value *record_input(struct device_graph *graph, bool gradient)
{
	return device_input(graph, &(struct device_input_spec){.name = "input",
							       .shape = {BATCH, SIDE, SIDE, WIDTH},
							       .std = {1, 1, 1, 1},
							       .gradient = gradient});
}

static void plan(struct device_graph *graph, unsigned by_winograd)
{
	char error[DEVICE_ERROR_MAX];

	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	assert_int_equal(count_winograd(graph), by_winograd);
}

#define VALUES ((size_t)BATCH * SIDE * SIDE * WIDTH)

/* Results of a layer. */
struct outcome {
	float y[VALUES], dx[VALUES], evaluated[VALUES];
	float dw[WIDTH * 9 * WIDTH];
	float vectors[PARTS][WIDTH]; /* gradients of parameters, values of running statistics */
};

static void read_outcome(const struct layer *layer, struct outcome *outcome)
{
	for (enum part part = 0; part < PARTS; part++) {
		struct device_param *param = layer->parts[part];

		if (!param)
			continue;
		float *values = malloc(device_param_elements(param) * sizeof(float));
		assert_int_equal(
			device_param_read(param, part < MEAN ? DEVICE_GRAD : DEVICE_VALUE, values),
			0);
		if (part != WEIGHT)
			memcpy(outcome->vectors[part], values, sizeof(outcome->vectors[part]));
		for (size_t i = 0; part == WEIGHT && i < sizeof(outcome->dw) / sizeof(float); i++)
			outcome->dw[i] = values[place_of(layer, i)];
		free(values);
	}
}

/* Runs two steps whose gradients are summed, and an evaluation. */
static void try_layer(const struct layer *model, uint32_t window, bool residual,
		      struct outcome *outcome)
{
	struct device *device = open_device(DEVICE_FP32, 0);
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct layer layer = *model;
	struct device_params *params;
	float *g = malloc(VALUES * sizeof(float));
	uint64_t ticket;

	layer.window = window;
	assert_int_equal(device_params_new(device, &params), 0);
	add_layer(params, &layer);
	assert_int_equal(device_params_allocate(params, &optimizer), 0);
	write_layer(&layer, 7);
	for (size_t i = 0; i < VALUES; i++)
		g[i] = (float)(uniform(8, i) - 0.5);
	for (int evaluates = 0; evaluates < 2; evaluates++) {
		struct device_graph_options options = {
			.mode = evaluates ? DEVICE_EVAL : DEVICE_TRAIN, .keep_all = true};
		struct device_graph *graph;

		assert_int_equal(device_graph_new(params, &options, &graph), 0);
		struct device_value *x = record_input(graph, true);
		struct device_value *y = record_layer(graph, x, &layer, residual ? x : NULL);
		plan(graph, window == 3);
		if (!evaluates)
			assert_int_equal(device_value_write(graph, y, DEVICE_GRAD, g), 0);
		for (int i = 0; i < 2 && !evaluates; i++) {
			feed(graph);
			assert_int_equal(device_step(graph, NULL, &ticket), 0);
		}
		if (evaluates) {
			feed(graph);
			assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &ticket), 0);
		} else {
			assert_int_equal(device_value_read(graph, x, DEVICE_GRAD, outcome->dx), 0);
			read_outcome(&layer, outcome);
		}
		assert_int_equal(device_value_read(graph, y, DEVICE_VALUE,
						   evaluates ? outcome->evaluated : outcome->y),
				 0);
		device_graph_free(graph);
	}
	free(g);
	device_params_free(params);
	device_close(device);
}

static void compare_floats(const char *what, size_t number, const float *got, const float *expected,
			   size_t count)
{
	double *wide = malloc(count * sizeof(double));

	for (size_t i = 0; i < count; i++)
		wide[i] = (double)expected[i];
	double error = relative_error(got, wide, count);
	free(wide);
	/* a ReLU may flip where the sum is nearly 0 */
	if (!(error <= 3e-5))
		fail_msg("%s of layer %zu: relative error %g", what, number, error);
}

TEST(what_follows)
{
	static const struct layer layers[] = {
		{.name = "relu", .bias = true, .activation = DEVICE_RELU},
		{.name = "gelu", .bias = true, .activation = DEVICE_GELU},
		{.name = "norm", .norm = true, .activation = DEVICE_RELU},
		{.name = "fixed", .norm = true, .fixed = true, .activation = DEVICE_GELU},
		{.name = "plain"},
	};
	struct outcome *got = calloc(2, sizeof(*got)), *expected = got + 1;

	for (size_t i = 0; i < 2 * sizeof(layers) / sizeof(*layers); i++) {
		bool residual = i % 2;

		try_layer(&layers[i / 2], 3, residual, got);
		try_layer(&layers[i / 2], 5, residual, expected);
		compare_floats("result", i, got->y, expected->y, VALUES);
		compare_floats("result in evaluation", i, got->evaluated, expected->evaluated,
			       VALUES);
		compare_floats("gradient of x", i, got->dx, expected->dx, VALUES);
		compare_floats("gradient of the weights", i, got->dw, expected->dw,
			       sizeof(got->dw) / sizeof(float));
		for (enum part part = BIAS; part < PARTS; part++)
			if (layers[i / 2].norm ? part >= GAMMA : part == BIAS && layers[i / 2].bias)
				compare_floats("a vector", i, got->vectors[part],
					       expected->vectors[part], WIDTH);
	}
	free(got);
}

/*
 * Returns the gradients of a net of such layers and its running statistics, [*ret_count]; the
 * caller frees them.
 */
static float *try_net(struct device_graph_options options, bool frozen, size_t *ret_count)
{
	struct layer layers[] = {
		{.name = "a",
		 .window = 3,
		 .norm = true,
		 .fixed = frozen,
		 .activation = DEVICE_RELU},
		{.name = "b", .window = 3, .norm = true, .activation = DEVICE_RELU},
		{.name = "c", .window = 3, .bias = true, .activation = DEVICE_RELU},
		{.name = "d", .window = 3, .norm = true, .activation = DEVICE_GELU},
	};
	struct device *device = open_device(DEVICE_FP32, 0);
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	struct device_params *params;
	struct device_graph *graph;
	float weights[CLASSES * WIDTH];
	uint64_t ticket;

	options.mode = DEVICE_TRAIN;
	assert_int_equal(device_params_new(device, &params), 0);
	for (size_t i = 0; i < 4; i++)
		add_layer(params, &layers[i]);
	struct device_param *head = add_param(params, "head", DEVICE_LINEAR_WEIGHT,
					      (struct device_shape){CLASSES, 1, 1, WIDTH});
	for (enum part part = 0; frozen && part < MEAN; part++)
		if (layers[0].parts[part])
			device_param_freeze(layers[0].parts[part], true);
	assert_int_equal(device_params_allocate(params, &optimizer), 0);
	for (size_t i = 0; i < 4; i++)
		write_layer(&layers[i], 7 + 10 * i);
	for (size_t i = 0; i < CLASSES * WIDTH; i++)
		weights[i] = (float)uniform(9, i) - 0.5f;
	assert_int_equal(device_param_write(head, DEVICE_VALUE, weights), 0);

	assert_int_equal(device_graph_new(params, &options, &graph), 0);
	struct device_value *x = record_input(graph, false);
	x = record_layer(graph, x, &layers[0], NULL);
	device_begin_block(graph);
	struct device_value *inner = record_layer(graph, x, &layers[1], NULL);
	x = record_layer(graph, inner, &layers[2], x);
	device_begin_block(graph);
	x = record_layer(graph, x, &layers[3], NULL);
	device_begin_block(graph);
	x = device_global_average_pool(graph, "pool", x);
	x = device_linear(graph, x, &(struct device_linear_spec){.name = "fc", .weight = head});
	device_loss(graph, x, &(struct device_loss_spec){.name = "loss"});
	plan(graph, 4);
	for (int i = 0; i < 2; i++) {
		feed(graph);
		assert_int_equal(device_step(graph, NULL, &ticket), 0);
	}
	*ret_count = 0;
	float *gradients = calloc(5 * WIDTH * WIDTH * 9, sizeof(float));
	for (size_t i = 0; i < device_params_count(params); i++) {
		struct device_param *param = device_params_at(params, i);
		bool buffer = device_param_spec(param)->kind == DEVICE_BUFFER;

		if (frozen && i < PARTS - 1) /* parameters of the first layer */
			continue;
		assert_int_equal(device_param_read(param, buffer ? DEVICE_VALUE : DEVICE_GRAD,
						   gradients + *ret_count),
				 0);
		*ret_count += device_param_elements(param);
	}
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
	return gradients;
}

TEST(memory)
{
	for (int frozen = 0; frozen < 2; frozen++) {
		size_t count;
		float *kept =
			try_net((struct device_graph_options){.keep_all = true}, frozen, &count);

		for (uint32_t recompute = 0; recompute < 3; recompute++) {
			float *other =
				try_net((struct device_graph_options){.recompute = recompute},
					frozen, &count);

			assert_memory_equal(kept, other, count * sizeof(float));
			free(other);
		}
		free(kept);
	}
}
