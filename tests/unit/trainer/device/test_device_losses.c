/*
 * Each loss over 20 steps of a linear layer against PyTorch or timm (results from
 * tests/golden/losses/make.py), and which targets are refused.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

/* as in make.py */
enum { STEPS = 20, SAMPLES = 12, FEATURES = 7, CLASSES = 10 };

struct data {
	float x[SAMPLES * FEATURES], shares[SAMPLES], targets[SAMPLES * CLASSES],
		teacher[SAMPLES * CLASSES], values[SAMPLES * CLASSES];
	int32_t labels[SAMPLES], labels2[SAMPLES];
};

struct bench {
	struct device *device;
	struct device_params *params;
	struct device_param *weight, *bias;
	struct device_graph *graph;
};

/* As in make.py. With `some`, every fifth sample lacks a label and values. */
static void make_batch(struct data *d, unsigned step, bool some)
{
	for (unsigned i = 0; i < SAMPLES * FEATURES; i++)
		d->x[i] = (float)(uniform(1000 + step, i) * 2 - 1);
	for (unsigned i = 0; i < SAMPLES; i++) {
		double sum = 0;

		d->labels[i] = (int32_t)(uniform(2000 + step, i) * CLASSES);
		d->labels2[i] = (int32_t)(uniform(3000 + step, i) * CLASSES);
		d->shares[i] = (float)uniform(4000 + step, i);
		if (some && i % 5 == 0)
			d->labels[i] = -1;
		for (unsigned k = 0; k < CLASSES; k++)
			sum += pow(uniform(5000 + step, i * CLASSES + k), 4);
		for (unsigned k = 0; k < CLASSES; k++)
			d->targets[i * CLASSES + k] =
				(float)(pow(uniform(5000 + step, i * CLASSES + k), 4) / sum);
		for (unsigned k = 0; k < CLASSES; k++)
			d->teacher[i * CLASSES + k] =
				(float)(uniform(6000 + step, i * CLASSES + k) * 8 - 4);
		for (unsigned k = 0; k < CLASSES; k++)
			d->values[i * CLASSES + k] =
				some && i % 5 == 0
					? NAN
					: (float)(uniform(7000 + step, i * CLASSES + k) * 6 - 3);
	}
}

static const float *class_weights(void)
{
	static float weights[CLASSES];

	for (unsigned i = 0; i < CLASSES; i++)
		weights[i] = (float)(0.25 + 2 * uniform(77, i));
	return weights;
}

static struct device_graph *bench_graph_in(struct bench *b, const struct device_loss_spec *loss,
					   enum device_mode mode)
{
	struct device_input_spec input = {
		.name = "input", .shape = {SAMPLES, 1, 1, FEATURES}, .std = {1, 1, 1, 1}};
	struct device_linear_spec linear = {.name = "fc", .weight = b->weight, .bias = b->bias};
	struct device_graph *graph;

	assert_int_equal(device_graph_new(b->params, &(struct device_graph_options){mode}, &graph),
			 0);
	device_loss(graph, device_linear(graph, device_input(graph, &input), &linear), loss);
	return graph;
}

static struct device_graph *bench_graph(struct bench *b, const struct device_loss_spec *loss)
{
	return bench_graph_in(b, loss, DEVICE_TRAIN);
}

static void bench_open(struct bench *b, const struct device_loss_spec *loss)
{
	float values[CLASSES * FEATURES];
	char error[DEVICE_ERROR_MAX];

	memset(b, 0, sizeof(*b));
	b->device = open_device(DEVICE_FP32, 0);
	assert_int_equal(device_params_new(b->device, &b->params), 0);
	b->weight = add_param(b->params, "fc.weight", DEVICE_LINEAR_WEIGHT,
			      (struct device_shape){CLASSES, 1, 1, FEATURES});
	b->bias = add_param(b->params, "fc.bias", DEVICE_VECTOR,
			    (struct device_shape){1, 1, 1, CLASSES});
	assert_int_equal(device_params_allocate(
				 b->params, &(struct device_optimizer_spec){.kind = DEVICE_SGD}),
			 0);
	for (unsigned i = 0; i < CLASSES * FEATURES; i++)
		values[i] = (float)(uniform(1, i) - 0.5);
	assert_int_equal(device_param_write(b->weight, DEVICE_VALUE, values), 0);
	b->graph = bench_graph(b, loss);
	if (device_graph_plan(b->graph, error) < 0)
		fail_msg("%s", error);
}

static void bench_close(struct bench *b)
{
	device_graph_free(b->graph);
	device_params_free(b->params);
	device_close(b->device);
}

static double largest; /* largest deviation so far */

static void near(double value, double expected, const char *name, const char *what, unsigned index)
{
	double deviation = fabs(value - expected) / (1 + fabs(expected));

	largest = fmax(largest, deviation);
	if (!(deviation <= 3e-6))
		fail_msg("%s: %s %u: %.9g, expected %.9g", name, what, index, value, expected);
}

/*
 * Arrays [STEPS], [SAMPLES], [CLASSES][FEATURES] and [CLASSES], in the order of a line of the
 * golden file.
 */
struct outcome {
	double numbers[STEPS + SAMPLES + CLASSES * FEATURES + CLASSES];
};

#define NUMBERS (sizeof(((struct outcome *)NULL)->numbers) / sizeof(double))

static struct outcome read_outcome(const char *name)
{
	FILE *file = fopen(GOLDEN_LOSSES, "r");
	struct outcome outcome = {{0}};
	char of[32], first[128];
	bool found = false;

	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (!found && fscanf(file, "%31s", of) == 1) {
		found = strcmp(of, name) == 0;
		for (unsigned k = 0; k < NUMBERS; k++)
			assert_int_equal(fscanf(file, "%lf", &outcome.numbers[k]), 1);
	}
	fclose(file);
	assert_true(found);
	return outcome;
}

/* make.py's cases. */
static const struct {
	const char *name;
	struct device_loss_spec spec;
	bool weighted, some;
} cases[] = {
	{"softmax", {.kind = DEVICE_SOFTMAX}, .some = true},
	{"softmax_smooth", {.smoothing = 0.1f}, .some = true},
	{"softmax_weighted", {.kind = DEVICE_SOFTMAX}, .weighted = true, .some = true},
	{"softmax_weighted_smooth", {.smoothing = 0.2f}, .weighted = true, .some = true},
	{"softmax_two", {.smoothing = 0.1f, .targets = DEVICE_TWO_LABELS}},
	{"softmax_two_weighted",
	 {.smoothing = 0.1f, .targets = DEVICE_TWO_LABELS},
	 .weighted = true},
	{"softmax_dense", {.targets = DEVICE_DENSE}},
	{"softmax_dense_weighted", {.smoothing = 0.1f, .targets = DEVICE_DENSE}, .weighted = true},
	{"sigmoid", {.kind = DEVICE_SIGMOID}},
	{"sigmoid_smooth", {.kind = DEVICE_SIGMOID, .smoothing = 0.1f}},
	{"sigmoid_two", {.kind = DEVICE_SIGMOID, .smoothing = 0.1f, .targets = DEVICE_TWO_LABELS}},
	{"sigmoid_dense_weighted",
	 {.kind = DEVICE_SIGMOID, .targets = DEVICE_DENSE},
	 .weighted = true},
	{"kl", {.kind = DEVICE_KL, .targets = DEVICE_DENSE}},
	{"kl_two", {.kind = DEVICE_KL, .smoothing = 0.1f, .targets = DEVICE_TWO_LABELS}},
	{"kl_warm", {.kind = DEVICE_KL, .targets = DEVICE_DENSE, .temperature = 4}},
	{"squared", {.kind = DEVICE_SQUARED, .targets = DEVICE_DENSE}, .some = true},
	{"huber", {.kind = DEVICE_HUBER, .targets = DEVICE_DENSE}, .some = true},
	{"taught", {.teacher_weight = 0.25f}, .some = true},
	{"taught_warm",
	 {.smoothing = 0.1f, .teacher_weight = 0.75f, .teacher_temperature = 4},
	 .some = true},
	{"taught_alone", {.teacher_weight = 1, .teacher_temperature = 2}, .some = true},
	{"taught_weighted",
	 {.teacher_weight = 0.5f, .teacher_temperature = 3},
	 .weighted = true,
	 .some = true},
	{"taught_two",
	 {.smoothing = 0.1f,
	  .targets = DEVICE_TWO_LABELS,
	  .teacher_weight = 0.5f,
	  .teacher_temperature = 2}},
	{"taught_dense",
	 {.targets = DEVICE_DENSE, .teacher_weight = 0.5f, .teacher_temperature = 2}},
	{"taught_sigmoid",
	 {.kind = DEVICE_SIGMOID, .teacher_weight = 0.5f, .teacher_temperature = 2}},
	{"taught_kl_warm",
	 {.kind = DEVICE_KL,
	  .targets = DEVICE_DENSE,
	  .temperature = 4,
	  .teacher_weight = 0.5f,
	  .teacher_temperature = 2}},
};

static double bench_step(struct bench *b, unsigned step, const struct device_loss_spec *spec,
			 bool some)
{
	enum device_targets targets = spec->targets;
	struct device_hyper hyper = {.lr = {0.5f, 0.5f}, .momentum = 0.9f};
	struct data d;
	struct device_batch batch = {.images = d.x,
				     .labels = d.labels,
				     .count = SAMPLES,
				     .channels = FEATURES,
				     .element = DEVICE_ELEMENT_F32};
	struct device_results results;
	uint64_t number;

	make_batch(&d, step, some);
	if (targets == DEVICE_TWO_LABELS) {
		batch.labels2 = d.labels2;
		batch.shares = d.shares;
	} else if (targets == DEVICE_DENSE) {
		batch.targets = spec->kind == DEVICE_SQUARED || spec->kind == DEVICE_HUBER
					? d.values
					: d.targets;
	}
	batch.teacher = spec->teacher_weight > 0 ? d.teacher : NULL;
	assert_int_equal(device_upload(b->graph, &batch, &number), 0);
	assert_int_equal(device_step(b->graph, &hyper, &number), 0);
	assert_int_equal(device_results(b->graph, number, true, &results), 0);
	assert_int_equal(results.samples, some ? SAMPLES - 3 : SAMPLES);
	return results.loss;
}

static void compare(struct bench *b, const char *name, const struct outcome *outcome)
{
	const double *expected = outcome->numbers + STEPS;
	float losses[SAMPLES], weight[CLASSES * FEATURES], bias[CLASSES];

	assert_int_equal(device_losses(b->graph, losses), 0);
	assert_int_equal(device_param_read(b->weight, DEVICE_VALUE, weight), 0);
	assert_int_equal(device_param_read(b->bias, DEVICE_VALUE, bias), 0);
	for (unsigned i = 0; i < SAMPLES; i++)
		near((double)losses[i], *expected++, name, "sample", i);
	for (unsigned i = 0; i < CLASSES * FEATURES; i++)
		near((double)weight[i], *expected++, name, "weight", i);
	for (unsigned i = 0; i < CLASSES; i++)
		near((double)bias[i], *expected++, name, "bias", i);
}

TEST(as_pytorch)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct outcome outcome = read_outcome(cases[i].name);
		struct device_loss_spec spec = cases[i].spec;
		struct bench b;

		largest = 0;
		spec.name = "loss";
		spec.class_weights = cases[i].weighted ? class_weights() : NULL;
		bench_open(&b, &spec);
		for (unsigned step = 1; step <= STEPS; step++)
			near(bench_step(&b, step, &spec, cases[i].some), outcome.numbers[step - 1],
			     cases[i].name, "step", step);
		compare(&b, cases[i].name, &outcome);
		bench_close(&b);
		print_message("%s: largest deviation %.2g\n", cases[i].name, largest);
	}
}

static void refused_batch(struct bench *b, const struct device_batch *batch, const char *text)
{
	uint64_t ticket;

	assert_int_equal(device_upload(b->graph, batch, &ticket), -EINVAL);
	if (!strstr(device_error(b->device), text))
		fail_msg("'%s' does not say '%s'", device_error(b->device), text);
}

/* Returns the loss of a step without an update, and its gradients. */
static double distill_once(struct bench *b, const struct device_batch *batch, float *ret_weight)
{
	struct device_results results;
	uint64_t number;

	assert_int_equal(device_upload(b->graph, batch, &number), 0);
	assert_int_equal(device_step(b->graph, NULL, &number), 0);
	assert_int_equal(device_results(b->graph, number, true, &results), 0);
	assert_int_equal(device_param_read(b->weight, DEVICE_GRAD, ret_weight), 0);
	device_params_drop_gradients(b->params);
	return results.loss;
}

/*
 * A teacher's logits that stay on the device give the same bits as logits passed through the host,
 * at both halves of a device_memory_new() allocation.
 */
TEST(kept_logits)
{
	struct device_loss_spec spec = {
		.name = "loss", .teacher_weight = 0.5f, .teacher_temperature = 3};
	struct bench b;
	float logits[SAMPLES * CLASSES], kept[2 * SAMPLES * CLASSES], *memory;
	float weight[2][CLASSES * FEATURES];
	char error[DEVICE_ERROR_MAX];
	uint64_t number;
	struct data d;
	struct device_batch batch = {.images = d.x,
				     .labels = d.labels,
				     .count = SAMPLES,
				     .channels = FEATURES,
				     .element = DEVICE_ELEMENT_F32};

	make_batch(&d, 1, false);
	bench_open(&b, &spec);
	int r = device_memory_new(b.device, 2 * SAMPLES * CLASSES, &memory);
	if (r == -ENOTSUP) {
		batch.teacher = d.teacher;
		batch.teacher_kept = true;
		refused_batch(&b, &batch, "logits of a teacher on the device, which keeps none");
		bench_close(&b);
		skip();
	}
	assert_int_equal(r, 0);
	struct device_graph *teacher =
		bench_graph_in(&b, &(struct device_loss_spec){.name = "loss"}, DEVICE_EVAL);
	assert_int_equal(device_graph_plan(teacher, error), 0);
	assert_int_equal(device_upload(teacher, &batch, &number), 0);
	assert_int_equal(device_evaluate(teacher, DEVICE_VALUE, &number), 0);
	assert_int_equal(device_logits_keep(teacher, memory + SAMPLES * CLASSES), 0);
	assert_int_equal(device_logits(teacher, logits), 0);
	assert_int_equal(device_memory_read(b.device, memory, 2 * SAMPLES * CLASSES, kept), 0);
	assert_memory_equal(kept + SAMPLES * CLASSES, logits, sizeof(logits));
	for (unsigned i = 0; i < SAMPLES * CLASSES; i++) {
		assert_true(kept[i] == 0);
		logits[i] *= 0.3f;
	}
	batch.teacher = logits;
	double seen = distill_once(&b, &batch, weight[0]);
	batch.teacher = memory + SAMPLES * CLASSES;
	batch.teacher_kept = true;
	batch.teacher_scale = 0.3f;
	assert_true(distill_once(&b, &batch, weight[1]) == seen);
	assert_memory_equal(weight[0], weight[1], sizeof(weight[0]));
	/* zeros are different logits, so the loss differs */
	batch.teacher = memory;
	assert_true(distill_once(&b, &batch, weight[1]) != seen);
	device_graph_free(teacher);
	device_memory_free(b.device, memory);
	bench_close(&b);
}

/*
 * Top-1 compares the largest logit with the label; with two labels, the one with the larger share;
 * with dense targets, the largest target.
 */
TEST(counts)
{
	struct device_loss_spec two = {.name = "loss", .targets = DEVICE_TWO_LABELS},
				dense = {.name = "loss", .targets = DEVICE_DENSE};
	float x[SAMPLES * FEATURES] = {0}, shares[SAMPLES], bias[CLASSES] = {0};
	int32_t labels[SAMPLES], labels2[SAMPLES];
	struct device_batch batch = {.images = x,
				     .labels = labels,
				     .count = SAMPLES,
				     .channels = FEATURES,
				     .element = DEVICE_ELEMENT_F32};
	struct device_results results;
	struct bench b;
	uint64_t number;

	bias[4] = 1; /* the largest logit of every sample */
	for (unsigned i = 0; i < SAMPLES; i++) {
		labels[i] = i % 2 ? 4 : 2;
		labels2[i] = i == 0 ? -1 : i % 2 ? 2 : 4;
		shares[i] = i < 6 ? 0.25f : 0.75f;
	}
	bench_open(&b, &two);
	assert_int_equal(device_param_write(b.bias, DEVICE_VALUE, bias), 0);
	batch.labels2 = labels2;
	batch.shares = shares;
	assert_int_equal(device_upload(b.graph, &batch, &number), 0);
	assert_int_equal(device_step(b.graph, NULL, &number), 0);
	assert_int_equal(device_results(b.graph, number, true, &results), 0);
	/* samples 2 and 4 match by their second label; 7, 9 and 11 by their first */
	assert_int_equal(results.top1, 5);
	assert_int_equal(results.samples, SAMPLES);
	bench_close(&b);
	bench_open(&b, &dense);
	assert_int_equal(device_param_write(b.bias, DEVICE_VALUE, bias), 0);
	float *targets = calloc(SAMPLES * CLASSES, sizeof(float));
	for (unsigned i = 0; i < SAMPLES; i++)
		targets[i * CLASSES + 4] = i < 7 ? 1 : 0;
	labels[0] = -1; /* without a label, the largest target counts */
	batch.labels2 = NULL;
	batch.shares = NULL;
	batch.targets = targets;
	assert_int_equal(device_upload(b.graph, &batch, &number), 0);
	assert_int_equal(device_step(b.graph, NULL, &number), 0);
	assert_int_equal(device_results(b.graph, number, true, &results), 0);
	assert_int_equal(results.top1, 7);
	batch.labels = NULL;
	assert_int_equal(device_upload(b.graph, &batch, &number), 0);
	assert_int_equal(device_step(b.graph, NULL, &number), 0);
	assert_int_equal(device_results(b.graph, number, true, &results), 0);
	assert_int_equal(results.top1, 7);
	assert_int_equal(results.samples, SAMPLES);
	free(targets);
	bench_close(&b);
}

TEST(refused_batches)
{
	struct data d;
	struct device_batch plain = {.images = d.x,
				     .labels = d.labels,
				     .count = SAMPLES,
				     .channels = FEATURES,
				     .element = DEVICE_ELEMENT_F32};
	struct bench b;

	make_batch(&d, 1, false);
	bench_open(&b, &(struct device_loss_spec){.name = "loss"});
	struct device_batch batch = plain;
	batch.labels2 = d.labels2;
	batch.shares = d.shares;
	refused_batch(&b, &batch, "second labels, the graph's loss takes none");
	batch = plain;
	batch.targets = d.targets;
	refused_batch(&b, &batch, "dense targets, the graph's loss takes none");
	bench_close(&b);
	bench_open(&b, &(struct device_loss_spec){.name = "loss", .targets = DEVICE_TWO_LABELS});
	batch = plain;
	batch.labels2 = d.labels2;
	refused_batch(&b, &batch, "second labels without shares");
	batch.shares = d.shares;
	d.shares[3] = 1.5f;
	refused_batch(&b, &batch, "sample 3 of the batch has 1.5 of its label");
	bench_close(&b);
	bench_open(&b, &(struct device_loss_spec){.name = "loss", .targets = DEVICE_DENSE});
	refused_batch(&b, &plain, "has no targets");
	batch = plain;
	batch.targets = d.targets;
	d.targets[2 * CLASSES + 5] = NAN;
	refused_batch(&b, &batch, "sample 2 of the batch has the target nan for class 5");
	d.targets[2 * CLASSES + 5] = -1;
	refused_batch(&b, &batch, "the target -1");
	for (unsigned i = 0; i < CLASSES; i++)
		d.targets[2 * CLASSES + i] = i < CLASSES - 1 ? NAN : 0;
	refused_batch(&b, &batch, "sample 2 of the batch has the target 0 for class 9");
	bench_close(&b);
	bench_open(&b, &(struct device_loss_spec){
			       .name = "loss", .kind = DEVICE_SQUARED, .targets = DEVICE_DENSE});
	d.values[3 * CLASSES + 1] = INFINITY;
	batch.targets = d.values;
	refused_batch(&b, &batch, "sample 3 of the batch has the target inf for class 1");
	bench_close(&b);
	bench_open(&b, &(struct device_loss_spec){.name = "loss"});
	batch = plain;
	batch.teacher = d.teacher;
	refused_batch(&b, &batch, "logits of a teacher, the graph's loss takes none");
	bench_close(&b);
	bench_open(&b, &(struct device_loss_spec){.name = "loss", .teacher_weight = 0.5f});
	refused_batch(&b, &plain, "no logits of a teacher");
	d.teacher[2 * CLASSES + 5] = INFINITY;
	refused_batch(&b, &batch, "sample 2 of the batch has the teacher's logit inf for class 5");
	bench_close(&b);
}

TEST(refused_losses)
{
	static const float weights[CLASSES] = {1, 1, 1, -1};
	static const struct {
		struct device_loss_spec spec;
		const char *text;
	} refused[] = {
		{{"loss", .kind = (enum device_loss_kind)7}, "loss 7"},
		{{"loss", .targets = (enum device_targets)5}, "targets 5"},
		{{"loss", .kind = DEVICE_SQUARED}, "regression needs dense targets"},
		{{"loss", .kind = DEVICE_HUBER, .targets = DEVICE_DENSE, .smoothing = 0.1f},
		 "no label smoothing, class weights or teacher"},
		{{"loss", .temperature = 2}, "temperature 2"},
		{{"loss", .kind = DEVICE_KL, .temperature = -1}, "temperature -1"},
		{{"loss", .kind = DEVICE_KL, .class_weights = weights}, "no class weights"},
		{{"loss", .class_weights = weights}, "class 3 has weight -1"},
		{{"loss", .teacher_weight = 1.5f}, "teacher's weight 1.5"},
		{{"loss", .teacher_weight = 1, .teacher_temperature = -1}, "temperature -1"},
	};
	char error[DEVICE_ERROR_MAX];
	struct bench b;

	bench_open(&b, &(struct device_loss_spec){.name = "loss"});
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct device_graph *graph = bench_graph(&b, &refused[i].spec);

		assert_int_equal(device_graph_plan(graph, error), -EINVAL);
		if (!strstr(error, refused[i].text))
			fail_msg("'%s' does not say '%s'", error, refused[i].text);
		device_graph_free(graph);
	}
	bench_close(&b);
}
