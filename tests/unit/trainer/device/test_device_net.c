/*
 * A small residual net end to end: gradients through shared values against central differences,
 * shared memory against separate memory, bitwise repetition, resuming, micro-batches, and
 * evaluation with running statistics and with the EMA.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

#define SAMPLES 6
#define SIDE    9
#define CLASSES 11
#define EPSILON 1e-5
#define PARAMS  24

struct net {
	struct device *device;
	struct device_params *params;
	struct device_param *p[PARAMS];
	struct tensor t[PARAMS]; /* initial values */
	struct device_graph *train, *eval;
	struct device_value *input;
	unsigned count;
	float images[SAMPLES * SIDE * SIDE * 3];
	int32_t labels[SAMPLES];
};

/*
 * [K][R][S][C] of the convolutions: the stem, a block of two with a projection, a block of two
 * without, and one after a plain norm
 */
static const struct {
	const char *name;
	struct device_shape weight;
	uint32_t stride, pad;
} layers[] = {
	{"stem", {8, 3, 3, 3}, 1, 1}, {"down", {12, 1, 1, 8}, 2, 0}, {"a1", {12, 3, 3, 8}, 2, 1},
	{"a2", {12, 3, 3, 12}, 1, 1}, {"b1", {12, 3, 3, 12}, 1, 1},
};

/*
 * Declares the parameters in order: weight, gamma, beta, mean and variance of each layer; then
 * fc.weight and fc.bias.
 */
static void declare(struct net *net)
{
	static const char *const parts[] = {"weight", "gamma", "beta", "mean", "var"};
	struct device_shape shape;
	char name[64];

	for (unsigned i = 0; i < sizeof(layers) / sizeof(*layers); i++) {
		for (unsigned j = 0; j < 5; j++) {
			enum device_param_kind kind = j == 0  ? DEVICE_CONV_WEIGHT
						      : j < 3 ? DEVICE_VECTOR
							      : DEVICE_BUFFER;

			/*
			 * the last layer is a convolution with a bias instead of a norm; the bias
			 * has gamma's index
			 */
			if (i == 4 && j > 1)
				break;
			shape = j ? (struct device_shape){1, 1, 1, layers[i].weight.n}
				  : layers[i].weight;
			strcpy(name, layers[i].name);
			strcat(name, ".");
			strcat(name, parts[j]);
			net->p[net->count] = add_param(net->params, name, kind, shape);
			net->t[net->count] = tensor_new(shape);
			tensor_fill(&net->t[net->count], net->count, false);
			for (size_t k = 0; k < tensor_count(&net->t[net->count]); k++) {
				double *v = &net->t[net->count].v[k];

				if (j == 0)
					*v = (double)(float)(*v /
							     sqrt(shape.h * shape.w * shape.c));
				if (j == 4 || (j == 1 && i != 4))
					*v = (double)(float)(1 + 0.5 * *v);
			}
			net->count++;
		}
	}
	shape = (struct device_shape){CLASSES, 1, 1, 12};
	net->p[net->count] = add_param(net->params, "fc.weight", DEVICE_LINEAR_WEIGHT, shape);
	net->t[net->count] = tensor_new(shape);
	tensor_fill(&net->t[net->count++], 90, false);
	shape = (struct device_shape){1, 1, 1, CLASSES};
	net->p[net->count] = add_param(net->params, "fc.bias", DEVICE_VECTOR, shape);
	net->t[net->count] = tensor_new(shape);
	tensor_fill(&net->t[net->count++], 91, false);
}

static struct device_value *conv(struct net *net, struct device_graph *graph,
				 struct device_value *x, unsigned i, struct device_value *residual,
				 enum device_activation activation)
{
	struct device_param **p = &net->p[5 * i];
	struct device_norm norm = {p[1], p[2], p[3], p[4], (float)EPSILON, 0.1f};
	struct device_conv_spec spec = {.name = layers[i].name,
					.weight = p[0],
					.stride = layers[i].stride,
					.pad = layers[i].pad,
					.residual = residual,
					.activation = activation};

	if (i == 4)
		spec.bias = p[1];
	else
		spec.norm = &norm;
	return device_conv(graph, x, &spec);
}

static struct device_graph *build(struct net *net, enum device_mode mode, bool keep_all)
{
	struct device_graph *graph;
	struct device_input_spec input = {.name = "input",
					  .shape = {SAMPLES, SIDE, SIDE, 3},
					  .std = {1, 1, 1, 1},
					  .gradient = keep_all};
	char error[DEVICE_ERROR_MAX];

	assert_int_equal(device_graph_new(net->params,
					  &(struct device_graph_options){mode, keep_all}, &graph),
			 0);
	net->input = device_input(graph, &input);
	struct device_value *x = conv(net, graph, net->input, 0, NULL, DEVICE_RELU);
	struct device_value *shortcut = conv(net, graph, x, 1, NULL, DEVICE_IDENTITY);
	struct device_value *y = conv(net, graph, x, 2, NULL, DEVICE_RELU);
	x = conv(net, graph, y, 3, shortcut, DEVICE_RELU);
	/* x has three readers, so three gradients are summed */
	y = conv(net, graph, x, 4, x, DEVICE_GELU);
	y = conv(net, graph, y, 4, x, DEVICE_IDENTITY);
	x = device_global_average_pool(graph, "pool", y);
	x = device_linear(graph, x,
			  &(struct device_linear_spec){
				  .name = "fc", .weight = net->p[22], .bias = net->p[23]});
	device_loss(graph, x, &(struct device_loss_spec){.name = "loss", .smoothing = 0.1f});
	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	return graph;
}

static void reference_post(struct net *net, struct tensor *y, unsigned i,
			   const struct tensor *residual, enum device_activation activation,
			   bool eval)
{
	struct tensor *t = &net->t[5 * i];

	if (i == 4)
		reference_bias(y, &t[1]);
	else if (eval)
		reference_affine(y, &t[1], &t[2], &t[3], &t[4], EPSILON);
	else
		reference_norm(y, &t[1], &t[2], EPSILON, NULL, NULL);
	if (residual)
		reference_add(y, residual);
	reference_activate(y, activation);
}

static struct tensor reference_layer(struct net *net, const struct tensor *x, unsigned i,
				     const struct tensor *residual,
				     enum device_activation activation, bool eval)
{
	struct tensor y = reference_conv(x, &net->t[5 * i], layers[i].stride, layers[i].pad, 0);

	reference_post(net, &y, i, residual, activation, eval);
	return y;
}

static struct tensor reference_logits(struct net *net, const struct tensor *x, bool eval)
{
	struct tensor s = reference_layer(net, x, 0, NULL, DEVICE_RELU, eval);
	struct tensor down = reference_layer(net, &s, 1, NULL, DEVICE_IDENTITY, eval);
	struct tensor a1 = reference_layer(net, &s, 2, NULL, DEVICE_RELU, eval);
	struct tensor a2 = reference_layer(net, &a1, 3, &down, DEVICE_RELU, eval);
	struct tensor b1 = reference_layer(net, &a2, 4, &a2, DEVICE_GELU, eval);
	struct tensor b2 = reference_layer(net, &b1, 4, &a2, DEVICE_IDENTITY, eval);
	struct tensor pooled = reference_pool(&b2, b2.shape.h, b2.shape.w, 1, 0, 0, true);
	struct tensor logits = reference_conv(&pooled, &net->t[22], 1, 0, 0);

	reference_bias(&logits, &net->t[23]);
	tensor_free(&s);
	tensor_free(&down);
	tensor_free(&a1);
	tensor_free(&a2);
	tensor_free(&b1);
	tensor_free(&b2);
	tensor_free(&pooled);
	return logits;
}

static double reference_of(struct net *net, const struct tensor *x)
{
	struct tensor logits = reference_logits(net, x, false);
	double loss = reference_loss(&logits, net->labels, 0.1f, 1);

	tensor_free(&logits);
	return loss;
}

static void write_values(struct net *net)
{
	for (unsigned i = 0; i < net->count; i++) {
		float *values = malloc(tensor_count(&net->t[i]) * sizeof(float));

		tensor_to_float(&net->t[i], values);
		assert_int_equal(device_param_write(net->p[i], DEVICE_VALUE, values), 0);
		free(values);
	}
}

static void net_open(struct net *net, enum device_precision precision, unsigned threads,
		     bool keep_all)
{
	struct device_optimizer_spec optimizer = {
		.kind = DEVICE_SGD, .nesterov = true, .ema = true, .perturbs = true};

	memset(net, 0, sizeof(*net));
	net->device = open_device(precision, threads);
	assert_int_equal(device_params_new(net->device, &net->params), 0);
	declare(net);
	assert_int_equal(net->count, PARAMS);
	assert_int_equal(device_params_allocate(net->params, &optimizer), 0);
	write_values(net);
	net->eval = build(net, DEVICE_EVAL, false);
	net->train = build(net, DEVICE_TRAIN, keep_all);
	for (size_t i = 0; i < sizeof(net->images) / sizeof(float); i++)
		net->images[i] = (float)(uniform(77, i) * 2 - 1);
	for (int32_t i = 0; i < SAMPLES; i++)
		net->labels[i] = i * 5 % CLASSES;
}

static void net_close(struct net *net)
{
	device_graph_free(net->train);
	device_graph_free(net->eval);
	device_params_free(net->params);
	device_close(net->device);
	for (unsigned i = 0; i < net->count; i++)
		tensor_free(&net->t[i]);
}

static double step(struct net *net, const struct device_hyper *hyper)
{
	struct device_batch batch = {net->images, net->labels,        SAMPLES,
				     3,           DEVICE_ELEMENT_F32, false};
	struct device_results results;
	uint64_t number;

	assert_int_equal(device_upload(net->train, &batch, &number), 0);
	assert_int_equal(device_upload_done(net->train, number, true), 0);
	assert_int_equal(device_step(net->train, hyper, &number), 0);
	assert_int_equal(device_results(net->train, number, true, &results), 0);
	return results.loss;
}

static struct device_hyper hyper_at(unsigned t)
{
	struct device_hyper hyper = {.momentum = 0.9f, .ema_decay = t ? 0.5f : 0};

	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.05f;
		hyper.weight_decay[i] = i ? 0 : 0.01f;
	}
	return hyper;
}

static struct tensor images_of(const struct net *net)
{
	struct tensor x = tensor_new((struct device_shape){SAMPLES, SIDE, SIDE, 3});

	for (size_t i = 0; i < tensor_count(&x); i++)
		x.v[i] = (double)net->images[i];
	return x;
}

/* Compares the device's gradients with central differences of the loss for some elements of t. */
static void check_gradient(struct net *net, struct tensor *x, struct tensor *t, const float *got,
			   double tolerance, const char *name)
{
	size_t count = tensor_count(t), stride = count > 30 ? count / 23 : 1, used = 0;
	float some[64];
	double expected[64], h = 1e-6;

	for (size_t i = 0; i < count && used < 64; i += stride) {
		double v = t->v[i];

		t->v[i] = v + h;
		double up = reference_of(net, x);
		t->v[i] = v - h;
		expected[used] = (up - reference_of(net, x)) / (2 * h);
		t->v[i] = v;
		some[used++] = got[i];
	}
	if (!(relative_error(some, expected, used) <= tolerance))
		fail_msg("gradient of %s: relative error %g above %g", name,
			 relative_error(some, expected, used), tolerance);
}

static void check_gradients(enum device_precision precision, double tolerance)
{
	struct net net;

	net_open(&net, precision, 0, true); /* may skip the test */
	tolerance = half_tolerance(net.device, tolerance);
	float *got = malloc(20000 * sizeof(float));
	struct tensor x = images_of(&net);
	double loss = step(&net, NULL);
	double expected = reference_of(&net, &x);
	assert_true(fabs(loss - expected) < tolerance * expected);
	assert_int_equal(device_value_read(net.train, net.input, DEVICE_GRAD, got), 0);
	check_gradient(&net, &x, &x, got, tolerance, "the input");
	for (unsigned i = 0; i < net.count; i++) {
		const struct device_param_spec *spec = device_param_spec(net.p[i]);

		if (spec->kind == DEVICE_BUFFER)
			continue;
		assert_int_equal(device_param_read(net.p[i], DEVICE_GRAD, got), 0);
		check_gradient(&net, &x, &net.t[i], got, tolerance, spec->name);
	}
	tensor_free(&x);
	free(got);
	net_close(&net);
}

TEST(gradients)
{
	check_gradients(DEVICE_FP32, 5e-5);
}

TEST(gradients_half)
{
	check_gradients(DEVICE_BF16, 0.2);
}

static void assert_same_slots(struct net *a, struct net *b, enum device_slot slot)
{
	float *x = malloc(20000 * sizeof(float)), *y = malloc(20000 * sizeof(float));

	for (unsigned i = 0; i < a->count; i++) {
		int r = device_param_read(a->p[i], slot, x);

		assert_int_equal(r, device_param_read(b->p[i], slot, y));
		if (r == 0 && memcmp(x, y, device_param_elements(a->p[i]) * sizeof(float)) != 0)
			fail_msg("slot %d of %s differs", slot, device_param_spec(a->p[i])->name);
	}
	free(x);
	free(y);
}

/* Runs two trainings that must be equal bit for bit. */
static void compare_trainings(enum device_precision precision, bool keep_all)
{
	struct net a, b;

	net_open(&a, precision, 2, false);
	net_open(&b, precision, 2, keep_all);
	for (unsigned t = 0; t < 5; t++) {
		struct device_hyper hyper = hyper_at(t);
		double loss = step(&a, &hyper), other = step(&b, &hyper);

		assert_memory_equal(&loss, &other, sizeof(loss));
		for (int slot = DEVICE_VALUE; slot <= DEVICE_EMA; slot++)
			assert_same_slots(&a, &b, (enum device_slot)slot);
	}
	net_close(&a);
	net_close(&b);
}

TEST(repeats)
{
	compare_trainings(DEVICE_FP32, false);
}

TEST(repeats_half)
{
	compare_trainings(DEVICE_BF16, false);
}

/* Memory shared by lifetime gives the same results as separate memory, and is smaller. */
TEST(sharing)
{
	struct net net;
	struct device_graph_info info;

	compare_trainings(DEVICE_FP32, true);
	net_open(&net, DEVICE_FP32, 0, false);
	device_graph_info(net.train, &info);
	assert_true(info.arena_bytes < info.unshared_bytes * 3 / 4);
	assert_true(info.flops_forward > 0 && info.flops_backward > info.flops_forward);
	net_close(&net);
}

static void copy_slots(struct net *to, struct net *from)
{
	float *x = malloc(20000 * sizeof(float));
	struct device_params_state state;

	for (int slot = DEVICE_VALUE; slot <= DEVICE_EMA; slot++) {
		if (slot == DEVICE_GRAD)
			continue;
		for (unsigned i = 0; i < from->count; i++)
			if (device_param_read(from->p[i], (enum device_slot)slot, x) == 0)
				assert_int_equal(
					device_param_write(to->p[i], (enum device_slot)slot, x), 0);
	}
	assert_int_equal(device_params_get_state(from->params, &state), 0);
	assert_int_equal(device_params_set_state(to->params, &state), 0);
	free(x);
}

TEST(resume)
{
	struct net a, b;
	struct device_params_state counters;

	net_open(&a, DEVICE_FP32, 2, false);
	net_open(&b, DEVICE_FP32, 2, false);
	for (unsigned t = 0; t < 6; t++) {
		struct device_hyper hyper = hyper_at(t);
		double loss = step(&a, &hyper);

		if (t == 2)
			copy_slots(&b, &a);
		if (t <= 2)
			continue;
		double other = step(&b, &hyper);
		assert_memory_equal(&loss, &other, sizeof(loss));
	}
	assert_same_slots(&a, &b, DEVICE_VALUE);
	assert_same_slots(&a, &b, DEVICE_EMA);
	assert_int_equal(device_params_get_state(b.params, &counters), 0);
	assert_int_equal(counters.updates, 6);
	net_close(&a);
	net_close(&b);
}

/* The net overfits six random images. */
static void check_learns(enum device_precision precision)
{
	struct net net;
	double last = 0;

	net_open(&net, precision, 0, false);
	double first = step(&net, NULL);
	for (unsigned t = 0; t < 40; t++) {
		struct device_hyper hyper = hyper_at(t);

		last = step(&net, &hyper);
	}
	if (!(last < 0.5 * first && last < 1.2))
		fail_msg("loss went from %g to %g", first, last);
	net_close(&net);
}

TEST(learns)
{
	check_learns(DEVICE_FP32);
}

TEST(learns_half)
{
	check_learns(DEVICE_BF16);
}

static double forward(struct net *net, bool moves_statistics)
{
	struct device_batch batch = {net->images, net->labels,        SAMPLES,
				     3,           DEVICE_ELEMENT_F32, false};
	struct device_results results;
	uint64_t number;

	assert_int_equal(device_upload(net->train, &batch, &number), 0);
	assert_int_equal(device_forward(net->train, moves_statistics, &number), 0);
	assert_int_equal(device_results(net->train, number, true, &results), 0);
	return results.loss;
}

/*
 * device_forward() gives the loss of a step; with moves_statistics it also updates the running
 * statistics as a step does.
 */
TEST(forward)
{
	struct net a, b;

	net_open(&a, DEVICE_FP32, 2, false);
	net_open(&b, DEVICE_FP32, 2, false);
	for (unsigned t = 0; t < 4; t++) {
		struct device_hyper hyper = hyper_at(t);
		double held = forward(&a, false);

		assert_same_slots(&a, &b, DEVICE_VALUE);
		double moved = forward(&a, true);
		double loss = step(&b, NULL);
		device_params_drop_gradients(b.params);
		assert_memory_equal(&held, &loss, sizeof(loss));
		assert_memory_equal(&moved, &loss, sizeof(loss));
		assert_same_slots(&a, &b, DEVICE_VALUE);
		/* device_forward() between a micro-batch and its update */
		step(&a, NULL);
		forward(&a, false);
		step(&b, NULL);
		step(&a, &hyper);
		step(&b, &hyper);
		assert_same_slots(&a, &b, DEVICE_VALUE);
		assert_same_slots(&a, &b, DEVICE_STATE);
	}
	net_close(&a);
	net_close(&b);
}

static void write_slot(struct net *net, unsigned i, enum device_slot slot, float *values)
{
	assert_int_equal(device_param_write(net->p[i], slot, values), 0);
}

/*
 * A perturbation has the given norm and raises the loss. Running statistics move only once. An
 * update with rate 0 restores the original values.
 */
static void check_perturbed(struct net *a, struct net *b, const struct device_hyper *hyper)
{
	struct device_hyper perturbs = *hyper, rests = *hyper;
	float *x = malloc(20000 * sizeof(float)), *y = malloc(20000 * sizeof(float));
	double squares = 0;

	perturbs.perturb = 0.25f;
	memset(rests.lr, 0, sizeof(rests.lr));
	step(b, NULL);
	device_params_drop_gradients(b->params);
	double first = step(a, &perturbs);
	for (unsigned i = 0; i < a->count; i++) {
		assert_int_equal(device_param_read(a->p[i], DEVICE_VALUE, x), 0);
		assert_int_equal(device_param_read(b->p[i], DEVICE_VALUE, y), 0);
		for (size_t k = 0; k < device_param_elements(a->p[i]); k++)
			squares += pow((double)x[k] - (double)y[k], 2);
	}
	assert_true(fabs(sqrt(squares) - 0.25) < 1e-5);
	step(a, NULL);
	device_params_drop_gradients(a->params);
	double again = step(a, &rests);
	assert_true(again > first);
	assert_same_slots(a, b, DEVICE_VALUE);
	for (unsigned i = 0; i < a->count; i++)
		if (device_param_read(a->p[i], DEVICE_STATE, x) == 0)
			write_slot(b, i, DEVICE_STATE, x);
	step(a, hyper);
	step(b, hyper);
	assert_same_slots(a, b, DEVICE_VALUE);
	free(x);
	free(y);
}

TEST(perturbed)
{
	struct net a, b;

	net_open(&a, DEVICE_FP32, 2, false);
	net_open(&b, DEVICE_FP32, 2, false);
	for (unsigned t = 1; t < 5; t++) {
		struct device_hyper hyper = hyper_at(t);

		hyper.ema_decay = 1;
		check_perturbed(&a, &b, &hyper);
	}
	net_close(&a);
	net_close(&b);
}

/*
 * With a gradient that is not finite, the perturbation leaves the values unchanged and the update
 * is skipped.
 */
TEST(perturbed_not_finite)
{
	struct net a, b;
	struct device_hyper hyper = hyper_at(1);

	net_open(&a, DEVICE_FP32, 2, false);
	net_open(&b, DEVICE_FP32, 2, false);
	step(&b, NULL);
	device_params_drop_gradients(b.params);
	float *x = malloc(20000 * sizeof(float));
	for (unsigned i = 0; i < 20000; i++)
		x[i] = NAN;
	write_slot(&a, 0, DEVICE_GRAD, x);
	hyper.perturb = 1;
	step(&a, &hyper);
	assert_same_slots(&a, &b, DEVICE_VALUE);
	hyper.perturb = 0;
	write_slot(&a, 0, DEVICE_GRAD, x);
	step(&a, &hyper);
	assert_same_slots(&a, &b, DEVICE_VALUE);
	net_close(&a);
	net_close(&b);
	free(x);
}

/* Two halves as micro-batches: their gradients are summed, and cleared after the update. */
TEST(micro_batches)
{
	struct net a, b;
	float x[CLASSES], y[CLASSES];
	struct device_hyper hyper = hyper_at(0);

	net_open(&a, DEVICE_FP32, 2, false);
	net_open(&b, DEVICE_FP32, 2, false);
	step(&a, NULL);
	device_param_read(a.p[23], DEVICE_GRAD, x);
	step(&a, NULL);
	device_param_read(a.p[23], DEVICE_GRAD, y);
	for (unsigned i = 0; i < CLASSES; i++)
		assert_float_equal(y[i], 2 * x[i], 1e-6);
	device_params_drop_gradients(a.params);
	step(&a, NULL);
	device_param_read(a.p[23], DEVICE_GRAD, y);
	assert_memory_equal(x, y, sizeof(x));
	net_close(&a);
	/* two micro-batches of the same samples with grad_scale 1/2 equal one step */
	net_open(&a, DEVICE_FP32, 2, false);
	step(&b, &hyper);
	step(&a, NULL);
	hyper.grad_scale = 0.5f;
	step(&a, &hyper);
	device_param_read(a.p[23], DEVICE_VALUE, x);
	device_param_read(b.p[23], DEVICE_VALUE, y);
	for (unsigned i = 0; i < CLASSES; i++)
		assert_float_equal(x[i], y[i], 1e-6);
	net_close(&a);
	net_close(&b);
}

static void evaluate(struct net *net, enum device_slot slot, uint32_t count, float *ret_logits,
		     struct device_results *results)
{
	struct device_batch batch = {net->images, net->labels, count, 3, DEVICE_ELEMENT_F32, false};
	uint64_t number;

	assert_int_equal(device_upload(net->eval, &batch, &number), 0);
	assert_int_equal(device_evaluate(net->eval, slot, &number), 0);
	assert_int_equal(device_results(net->eval, number, true, results), 0);
	assert_int_equal(device_logits(net->eval, ret_logits), 0);
}

static void check_logits(struct net *net, enum device_slot slot, double tolerance)
{
	struct tensor x = images_of(net);
	struct device_results results;
	float got[SAMPLES * CLASSES], values[20000];

	for (unsigned i = 0; i < net->count; i++) {
		assert_int_equal(device_param_read(net->p[i], slot, values), 0);
		for (size_t j = 0; j < tensor_count(&net->t[i]); j++)
			net->t[i].v[j] = (double)values[j];
	}
	struct tensor logits = reference_logits(net, &x, true);
	evaluate(net, slot, SAMPLES, got, &results);
	assert_true(relative_error(got, logits.v, SAMPLES * CLASSES) < tolerance);
	double loss = reference_loss(&logits, net->labels, 0.1f, 1);
	if (!(fabs(results.loss - loss) < tolerance * loss))
		fail_msg("loss is %.9g, not %.9g", results.loss, loss);
	assert_int_equal(results.samples, SAMPLES);
	/* a short batch gives the same logits for its samples */
	evaluate(net, slot, 2, values, &results);
	assert_int_equal(results.samples, 2);
	assert_memory_equal(values, got, 2 * CLASSES * sizeof(float));
	tensor_free(&x);
	tensor_free(&logits);
}

static void check_evaluation(enum device_precision precision, double tolerance)
{
	struct net net;

	net_open(&net, precision, 0, false);
	tolerance = half_tolerance(net.device, tolerance);
	check_logits(&net, DEVICE_VALUE, tolerance);
	for (unsigned t = 0; t < 3; t++) {
		struct device_hyper hyper = hyper_at(t);

		step(&net, &hyper);
	}
	check_logits(&net, DEVICE_VALUE, tolerance);
	check_logits(&net, DEVICE_EMA, tolerance);
	check_logits(&net, DEVICE_VALUE, tolerance);
	/*
	 * a micro-batch changes only running statistics; the next evaluation must use the new ones
	 */
	step(&net, NULL);
	check_logits(&net, DEVICE_VALUE, tolerance);
	net_close(&net);
}

TEST(evaluation)
{
	check_evaluation(DEVICE_FP32, 1e-5);
}

TEST(evaluation_half)
{
	check_evaluation(DEVICE_BF16, 0.05);
}

/*
 * Images of bytes, floats and 16-bit floats give the same normalised input, even if mirrored or
 * with a fourth channel.
 */
TEST(input)
{
	struct device *device = open_device(DEVICE_FP32, 0);
	struct device_params *params;
	struct device_graph *graph;
	struct device_input_spec spec = {.name = "input",
					 .shape = {2, 3, 5, 3},
					 .mean = {120, 110, 100},
					 .std = {60, 50, 40}};
	uint8_t bytes[2 * 3 * 5 * 4];
	uint16_t halves[2 * 3 * 5 * 3], brains[2 * 3 * 5 * 3];
	float floats[2 * 3 * 5 * 3], got[2 * 3 * 5 * 3];
	static const uint16_t half_values[] = {0x0000, 0x3c00, 0xc000, 0x3555,
					       0x7bff, 0x0001, 0x83ff};
	static const float half_floats[] = {0,     1,        -2,           0.333251953125f,
					    65504, 0x1p-24f, -0x1.ff8p-15f};
	uint64_t number;

	assert_int_equal(device_params_new(device, &params), 0);
	assert_int_equal(device_params_allocate(params, NULL), 0);
	assert_int_equal(
		device_graph_new(params, &(struct device_graph_options){DEVICE_EVAL, true}, &graph),
		0);
	struct device_value *input = device_input(graph, &spec);
	device_global_average_pool(graph, "pool", input);
	assert_int_equal(device_graph_plan(graph, NULL), 0);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 89);
	for (unsigned i = 0; i < 90; i++) {
		halves[i] = half_values[i % 7];
		floats[i] = half_floats[i % 7];
		brains[i] = (uint16_t)(0x3f80 + i);
	}
	for (unsigned flip = 0; flip < 2; flip++) {
		for (unsigned form = 0; form < 5; form++) {
			const void *const images[] = {bytes, bytes, floats, halves, brains};
			static const enum device_element elements[] = {
				DEVICE_ELEMENT_U8, DEVICE_ELEMENT_U8, DEVICE_ELEMENT_F32,
				DEVICE_ELEMENT_F16, DEVICE_ELEMENT_BF16};
			uint32_t channels = form == 1 ? 4 : 3;
			struct device_batch batch = {images[form], NULL,           2,
						     channels,     elements[form], flip};

			assert_int_equal(device_upload(graph, &batch, &number), 0);
			assert_int_equal(device_upload(graph, &batch, &number), -EBUSY);
			assert_int_equal(device_evaluate(graph, DEVICE_VALUE, &number), 0);
			assert_int_equal(device_value_read(graph, input, DEVICE_VALUE, got), 0);
			for (unsigned i = 0; i < 90; i++) {
				unsigned c = i % 3, x = i / 3 % 5, row = i / 15;
				unsigned from = row * 5 + (flip ? 4 - x : x);
				uint32_t bits = (uint32_t)brains[from * 3 + c] << 16;
				float expected = floats[from * 3 + c];

				if (form < 2)
					expected =
						((float)bytes[from * channels + c] - spec.mean[c]) /
						spec.std[c];
				if (form == 4)
					memcpy(&expected, &bits, sizeof(expected));
				if (fabsf(got[i] - expected) > 1e-6f * (1 + fabsf(expected)))
					fail_msg("form %u, flip %u, element %u: %g, not %g", form,
						 flip, i, (double)got[i], (double)expected);
			}
		}
	}
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
}

/* The error names the first tensor that is not finite. */
TEST(anomaly)
{
	struct net net;
	uint64_t number;
	float bias[12] = {0};

	memset(&net, 0, sizeof(net));
	net.device = open_device_with(
		&(struct device_options){.precision = DEVICE_FP32, .detect_anomaly = true});
	assert_int_equal(device_params_new(net.device, &net.params), 0);
	declare(&net);
	assert_int_equal(device_params_allocate(
				 net.params, &(struct device_optimizer_spec){.kind = DEVICE_SGD}),
			 0);
	write_values(&net);
	net.train = build(&net, DEVICE_TRAIN, false);
	step(&net, NULL);
	bias[5] = INFINITY;
	assert_int_equal(device_param_write(net.p[12], DEVICE_VALUE, bias), 0); /* a1.beta */
	struct device_batch batch = {net.images, net.labels, SAMPLES, 3, DEVICE_ELEMENT_F32, false};
	assert_int_equal(device_upload(net.train, &batch, &number), 0);
	assert_int_equal(device_step(net.train, NULL, &number), -EDOM);
	assert_non_null(strstr(device_error(net.device), "a1"));
	net_close(&net);
}
