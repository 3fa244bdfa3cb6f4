/*
 * Each optimizer over 20 steps against PyTorch or timm (results from
 * tests/golden/optimizers/make.py).
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

enum { STEPS = 20, SAMPLES = 16, TENSORS = 5, VECTORS_GROUP = 1 };

/* as in make.py */
static const struct {
	const char *name;
	enum device_param_kind kind;
	uint32_t shape[4];
} tensors[TENSORS] = {
	{"conv", DEVICE_CONV_WEIGHT, {24, 3, 3, 16}}, {"linear", DEVICE_LINEAR_WEIGHT, {41, 601}},
	{"zero", DEVICE_LINEAR_WEIGHT, {7, 5}},       {"vector", DEVICE_VECTOR, {33}},
	{"tall", DEVICE_LINEAR_WEIGHT, {57, 11}},
};

struct bench {
	struct device *device;
	struct device_params *params;
	struct device_param *tensors[TENSORS];
	struct device_graph *graph;
	float *values; /* room for the largest tensor */
};

/* As in make.py. */
static void fill(struct bench *b, unsigned tensor, uint64_t seed, double scale, double shift)
{
	for (size_t i = 0; i < device_param_elements(b->tensors[tensor]); i++)
		b->values[i] = (float)((uniform(seed, i) - shift) * scale);
}

static void fill_first(struct bench *b, unsigned tensor)
{
	fill(b, tensor, tensor, strcmp(tensors[tensor].name, "zero") == 0 ? 0 : 0.2, 0.5);
}

/* Opens the tensors and a tiny net whose gradient is zero, without which no step can run. */
static void bench_open(struct bench *b, const struct device_optimizer_spec *optimizer,
		       enum device_precision precision, const char *head)
{
	struct device_input_spec input = {.name = "input", .shape = {2, 1, 1, 1}, .std = {1}};
	char error[DEVICE_ERROR_MAX];

	memset(b, 0, sizeof(*b));
	b->device = open_device(precision, 0);
	assert_int_equal(device_params_new(b->device, &b->params), 0);
	for (unsigned i = 0; i < TENSORS; i++) {
		struct device_param_spec spec = {.name = tensors[i].name, .kind = tensors[i].kind};

		memcpy(spec.shape, tensors[i].shape, sizeof(spec.shape));
		spec.group = spec.kind == DEVICE_VECTOR ? VECTORS_GROUP : 0;
		spec.outer = head && strcmp(spec.name, head) == 0;
		assert_int_equal(device_param_add(b->params, &spec, &b->tensors[i]), 0);
	}
	struct device_param *fc =
		add_param(b->params, "fc", DEVICE_LINEAR_WEIGHT, (struct device_shape){2, 1, 1, 1});
	assert_int_equal(device_params_allocate(b->params, optimizer), 0);
	b->values = malloc(device_params_largest(b->params) * sizeof(float));
	for (unsigned i = 0; i < TENSORS; i++) {
		fill_first(b, i);
		assert_int_equal(device_param_write(b->tensors[i], DEVICE_VALUE, b->values), 0);
		if (optimizer->slow)
			assert_int_equal(device_param_write(b->tensors[i], DEVICE_SLOW, b->values),
					 0);
	}
	assert_int_equal(device_graph_new(b->params, &(struct device_graph_options){DEVICE_TRAIN},
					  &b->graph),
			 0);
	device_loss(b->graph,
		    device_linear(b->graph, device_input(b->graph, &input),
				  &(struct device_linear_spec){.name = "fc", .weight = fc}),
		    &(struct device_loss_spec){.name = "loss"});
	if (device_graph_plan(b->graph, error) < 0)
		fail_msg("%s", error);
}

static void bench_close(struct bench *b)
{
	free(b->values);
	device_graph_free(b->graph);
	device_params_free(b->params);
	device_close(b->device);
}

/* As gradients() in make.py. */
static void write_gradients(struct bench *b, unsigned step, float curvature)
{
	for (unsigned i = 0; i < TENSORS; i++) {
		size_t count = device_param_elements(b->tensors[i]);
		float *w = malloc(count * sizeof(float));

		assert_int_equal(device_param_read(b->tensors[i], DEVICE_VALUE, w), 0);
		fill(b, i, 100 * step + i, 0.1, 0.4);
		for (size_t k = 0; k < count; k++)
			b->values[k] += curvature * w[k];
		assert_int_equal(device_param_write(b->tensors[i], DEVICE_GRAD, b->values), 0);
		free(w);
	}
}

static void bench_step(struct bench *b, unsigned step, float curvature,
		       const struct device_hyper *hyper)
{
	uint8_t images[2] = {0};
	int32_t labels[2] = {0, 1};
	struct device_batch batch = {images, labels, 2, 1, DEVICE_ELEMENT_U8, false};
	struct device_results results;
	uint64_t number;

	write_gradients(b, step, curvature);
	assert_int_equal(device_upload(b->graph, &batch, &number), 0);
	assert_int_equal(device_step(b->graph, hyper, &number), 0);
	assert_int_equal(device_results(b->graph, number, true, &results), 0);
	assert_true(results.updated == !(hyper->perturb > 0));
	assert_false(results.skipped);
}

static double largest; /* largest deviation, relative to the mean distance that elements move */
static double tolerance;

static void near(double value, double expected, double moved, const char *name, const char *what)
{
	largest = fmax(largest, fabs(value - expected) / moved);
	if (!(fabs(value - expected) <= tolerance * moved))
		fail_msg("%s: %s: %.9g, expected %.9g", name, what, value, expected);
}

/* `moved`: norm of the tensor's displacement; `samples`: expected values of some elements. */
static void compare_tensor(struct bench *b, unsigned i, enum device_slot slot, const char *name,
			   double moved, const double *samples)
{
	size_t count = device_param_elements(b->tensors[i]);
	float *values = malloc(count * sizeof(float));
	double squares = 0, mean = moved / sqrt((double)count);

	assert_int_equal(device_param_read(b->tensors[i], slot, values), 0);
	fill_first(b, i);
	for (size_t k = 0; k < count; k++)
		squares += pow((double)values[k] - (double)b->values[k], 2);
	near(sqrt(squares), moved, moved, name, tensors[i].name);
	for (size_t k = 0; k < SAMPLES; k++)
		near((double)values[k * (count - 1) / (SAMPLES - 1)], samples[k], mean, name,
		     tensors[i].name);
	free(values);
}

/* Compares with the case's results in the golden file, one line per tensor. */
static void compare(struct bench *b, enum device_slot slot, const char *name)
{
	FILE *file = fopen(GOLDEN_OPTIMIZERS, "r");
	char of[32], tensor[32], first[128];
	double moved, samples[SAMPLES];
	unsigned compared = 0;

	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (fscanf(file, "%31s %31s %lf", of, tensor, &moved) == 3) {
		for (unsigned k = 0; k < SAMPLES; k++)
			assert_int_equal(fscanf(file, "%lf", &samples[k]), 1);
		for (unsigned i = 0; i < TENSORS && strcmp(of, name) == 0; i++) {
			if (strcmp(tensors[i].name, tensor) != 0)
				continue;
			compare_tensor(b, i, slot, name, moved, samples);
			compared++;
		}
	}
	fclose(file);
	assert_int_equal(compared, TENSORS);
}

/* make.py's cases; follow() sets the hyperparameters that are common to all. */
static const struct {
	const char *name;
	struct device_optimizer_spec spec;
	float lr, clip_norm;
	float curvature;
	unsigned perturbed_every;
	unsigned slow_every, mean_from;
	const char *head; /* tensor declared as `outer` */
} cases[] = {
	{"sgd", {.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true}, .lr = 0.05f},
	{"adam", {.kind = DEVICE_ADAM, .coupled_decay = true}, .lr = 0.01f},
	{"adamw", {.kind = DEVICE_ADAMW}, .lr = 0.01f},
	{"adamw", {.kind = DEVICE_ADAM}, .lr = 0.01f},
	{"lars", {.kind = DEVICE_LARS, .nesterov = true, .coupled_decay = true}, .lr = 0.5f},
	{"lamb", {.kind = DEVICE_LAMB}, .lr = 0.01f},
	{"sgd_centralized",
	 {.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true, .centralize = true},
	 .lr = 0.05f},
	{"adamw_centralized", {.kind = DEVICE_ADAMW, .centralize = true}, .lr = 0.01f},
	{"sgd_clipped",
	 {.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true, .clip_value = 0.03f},
	 .lr = 0.05f},
	{"lamb_prepared",
	 {.kind = DEVICE_LAMB, .centralize = true, .clip_value = 0.01f},
	 .lr = 0.01f,
	 .clip_norm = 2},
	{"sgd_sam",
	 {.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true, .perturbs = true},
	 .lr = 0.05f,
	 .curvature = 3,
	 .perturbed_every = 1},
	{"adamw_sam",
	 {.kind = DEVICE_ADAMW, .perturbs = true},
	 .lr = 0.01f,
	 .curvature = 3,
	 .perturbed_every = 3},
	{"sgd_lookahead",
	 {.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true, .slow = true},
	 .lr = 0.05f,
	 .slow_every = 6},
	{"adamw_swa", {.kind = DEVICE_ADAMW, .swa = true}, .lr = 0.01f, .mean_from = 5},
	{"muon", {.kind = DEVICE_MUON, .nesterov = true, .ns_steps = 5}, .lr = 0.02f},
	{"muon_plain", {.kind = DEVICE_MUON, .ns_steps = 3}, .lr = 0.02f},
	{"muon_prepared",
	 {.kind = DEVICE_MUON,
	  .nesterov = true,
	  .ns_steps = 5,
	  .match_rms = true,
	  .centralize = true,
	  .clip_value = 0.01f},
	 .lr = 0.01f,
	 .clip_norm = 2,
	 .head = "linear"},
	{"muon_sam",
	 {.kind = DEVICE_MUON, .nesterov = true, .ns_steps = 5, .perturbs = true},
	 .lr = 0.02f,
	 .curvature = 3,
	 .perturbed_every = 3},
};

#define CASES (sizeof(cases) / sizeof(*cases))

static void compare_case(size_t i, enum device_precision precision)
{
	struct bench b;

	largest = 0;
	bench_open(&b, &cases[i].spec, precision, cases[i].head);
	for (unsigned step = 1; step <= STEPS; step++) {
		float lr = cases[i].lr * (float)(1 - step / 40.0);
		struct device_hyper hyper = {
			.lr = {lr, lr},
			.weight_decay = {0.05f},
			.momentum = 0.9f,
			.trust_coefficient = 0.01f,
			.adamw_lr = 0.3f,
			.beta1 = 0.9f,
			.beta2 = 0.98f,
			.epsilon = 1e-6f,
			.clip_norm = cases[i].clip_norm,
		};

		if (cases[i].slow_every && step % cases[i].slow_every == 0)
			hyper.slow = 0.7f;
		if (cases[i].mean_from && step >= cases[i].mean_from &&
		    (step - cases[i].mean_from) % 3 == 0)
			hyper.swa = 1 / (float)((step - cases[i].mean_from) / 3 + 1);
		if (cases[i].perturbed_every && step % cases[i].perturbed_every == 0) {
			struct device_hyper perturbs = hyper;

			perturbs.perturb = 0.05f;
			bench_step(&b, step, cases[i].curvature, &perturbs);
		}
		bench_step(&b, step, cases[i].curvature, &hyper);
	}
	compare(&b, cases[i].spec.swa ? DEVICE_SWA : DEVICE_VALUE, cases[i].name);
	bench_close(&b);
	print_message("%s: largest deviation %.2g\n", cases[i].name, largest);
}

static bool is_by_matrix(size_t i)
{
	return DEVICE_OPTIMIZERS_BY_MATRIX >> cases[i].spec.kind & 1;
}

/* Five steps amplify the rounding of a small singular value by at most 3.4445^5 = 485 times. */
TEST(as_pytorch)
{
	for (size_t i = 0; i < CASES; i++) {
		tolerance = is_by_matrix(i) ? 5e-5 : 5e-6;
		compare_case(i, DEVICE_FP32);
	}
}

/*
 * A GPU multiplies matrices in 16 bits. The rounding error, 2^-9 of an element in bf16 and 2^-12 in
 * fp16, grows over five steps to a few percent of the mean step in bf16, and to an eighth of that
 * in fp16; a wrong iteration would be off by the whole step. This holds if no singular value is far
 * below the others, as in unmodified gradients: a direction whose singular value is lost in
 * rounding gets an arbitrary result, in PyTorch's bf16 too.
 */
TEST(16_bits)
{
	struct device *device = open_device(DEVICE_BF16, 0);

	tolerance = device_info(device)->precision == DEVICE_FP16 ? 0.005 : 0.04;
	device_close(device);
	for (size_t i = 0; i < CASES; i++)
		if (is_by_matrix(i) && !cases[i].spec.centralize && !cases[i].spec.perturbs)
			compare_case(i, DEVICE_BF16);
}
