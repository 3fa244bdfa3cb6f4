/*
 * The optimizer against scalar arithmetic in double precision, and the loss against its definition.
 */
#include "tests/test.h"
#include "tests/unit/trainer/device/test_device_reference.h"

#include <math.h>

#define STEPS     6
#define COUNT     40000 /* more elements than one task processes */
#define LATER     2     /* index in hyper.begun[] of the second weight's start */
#define LR_FACTOR 0.7f  /* of the second weight */

/*
 * A store with two weights of different groups, a frozen weight and a buffer, and a tiny net,
 * without which no step can run.
 */
struct bench {
	struct device *device;
	struct device_params *params;
	struct device_param *weight[2], *frozen, *buffer, *fc;
	struct device_graph *graph;
	uint8_t images[2];
};

static struct device_param *declare(struct bench *b, const char *name, enum device_param_kind kind,
				    uint32_t count, uint32_t group, bool frozen)
{
	struct device_param_spec spec = {
		.name = name, .kind = kind, .shape = {count}, .group = group, .frozen = frozen};
	struct device_param *param = NULL;

	if (kind == DEVICE_LINEAR_WEIGHT)
		spec.shape[1] = 1;
	assert_int_equal(device_param_add(b->params, &spec, &param), 0);
	return param;
}

static void plan_bench(struct bench *b)
{
	struct device_input_spec input = {.name = "input", .shape = {2, 1, 1, 1}, .std = {1}};
	char error[DEVICE_ERROR_MAX];

	assert_int_equal(device_graph_new(b->params, &(struct device_graph_options){DEVICE_TRAIN},
					  &b->graph),
			 0);
	device_loss(b->graph,
		    device_linear(b->graph, device_input(b->graph, &input),
				  &(struct device_linear_spec){.name = "fc", .weight = b->fc}),
		    &(struct device_loss_spec){.name = "loss"});
	if (device_graph_plan(b->graph, error) < 0)
		fail_msg("%s", error);
}

static void open_bench(struct bench *b, const struct device_optimizer_spec *optimizer)
{
	float *values = malloc(COUNT * sizeof(float));

	memset(b, 0, sizeof(*b));
	b->device = open_device(DEVICE_FP32, 0);
	assert_int_equal(device_params_new(b->device, &b->params), 0);
	b->weight[0] = declare(b, "w0", DEVICE_VECTOR, COUNT, 0, false);
	b->weight[1] = declare(b, "w1", DEVICE_VECTOR, 33, 3, false);
	b->frozen = declare(b, "frozen", DEVICE_VECTOR, 7, 0, true);
	b->buffer = declare(b, "buffer", DEVICE_BUFFER, 5, 0, false);
	b->fc = declare(b, "fc", DEVICE_LINEAR_WEIGHT, 2, 5, false);
	assert_int_equal(device_param_scale_rate(b->weight[1], LR_FACTOR), 0);
	assert_int_equal(device_param_scale_rate(b->weight[1], 0), -EINVAL);
	device_param_set_start(b->weight[1], LATER);
	assert_int_equal(device_params_allocate(b->params, optimizer), 0);
	assert_int_equal(device_param_scale_rate(b->weight[1], 1), -EBUSY);
	for (size_t i = 0; i < device_params_count(b->params); i++) {
		struct device_param *p = device_params_at(b->params, i);

		for (size_t j = 0; j < device_param_elements(p); j++)
			values[j] = (float)uniform(i, j);
		assert_int_equal(device_param_write(p, DEVICE_VALUE, values), 0);
	}
	free(values);
	plan_bench(b);
}

static void close_bench(struct bench *b)
{
	device_graph_free(b->graph);
	device_params_free(b->params);
	device_close(b->device);
}

static int step(struct bench *b, const struct device_hyper *hyper, struct device_results *results)
{
	int32_t labels[2] = {0, 1};
	struct device_batch batch = {b->images, labels, 2, 1, DEVICE_ELEMENT_U8, false};
	uint64_t ticket, number;
	int r = device_upload(b->graph, &batch, &ticket);

	if (r == 0)
		r = device_step(b->graph, hyper, &number);
	return r < 0 ? r : device_results(b->graph, number, true, results);
}

/* Expected state of one element of each weight. */
struct scalar {
	double w, m, v, ema;
};

static void scalar_average(struct scalar *s, const struct device_hyper *h, unsigned t)
{
	/* the first update copies, whatever the decay */
	s->ema = t == 1 ? s->w : (double)h->ema_decay * s->ema + (1 - (double)h->ema_decay) * s->w;
	if (h->lookahead && (t == 1 || h->ema_decay != 1))
		s->w = s->ema;
}

static void scalar_update(struct scalar *s, double g, const struct device_optimizer_spec *o,
			  const struct device_hyper *h, unsigned group, double factor, unsigned t,
			  double coefficient)
{
	double lr = (double)h->lr[group] * factor, decay = (double)h->weight_decay[group];

	g *= coefficient;
	if (o->kind == DEVICE_ADAMW) {
		double beta1 = (double)h->beta1, beta2 = (double)h->beta2;

		s->m = beta1 * s->m + (1 - beta1) * g;
		s->v = beta2 * s->v + (1 - beta2) * g * g;
		s->w = s->w * (1 - lr * decay) -
		       lr * (s->m / (1 - pow(beta1, t))) /
			       (sqrt(s->v / (1 - pow(beta2, t))) + (double)h->epsilon);
	} else {
		double momentum = (double)h->momentum, w = s->w;

		g += o->coupled_decay ? decay * w : 0;
		s->m = momentum * s->m + g;
		s->w = w - lr * (o->nesterov ? g + momentum * s->m : s->m) -
		       (o->coupled_decay ? 0 : lr * decay * w);
	}
	scalar_average(s, h, t);
}

static struct device_hyper hyper_of_step(unsigned t)
{
	struct device_hyper hyper = {
		.momentum = 0.9f,
		.beta1 = 0.9f,
		.beta2 = 0.98f,
		.epsilon = 1e-4f,
		.ema_decay = 0.8f,
		.grad_scale = 0.5f,
	};

	/* all hyperparameters change in every step */
	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.01f * (float)(t + i);
		hyper.weight_decay[i] = i == 3 ? 0 : 0.05f * (float)t;
	}
	return hyper;
}

static void check_slot(struct device_param *p, enum device_slot slot, const struct scalar *s,
		       size_t field)
{
	size_t count = device_param_elements(p);
	float *got = malloc(count * sizeof(float));
	double *expected = malloc(count * sizeof(double));

	assert_int_equal(device_param_read(p, slot, got), 0);
	for (size_t i = 0; i < count; i++)
		memcpy(&expected[i], (const char *)&s[i] + field, sizeof(double));
	assert_true(relative_error(got, expected, count) < 2e-6);
	assert_true(largest_error(got, expected, count) < 1e-5);
	free(got);
	free(expected);
}

static void run_optimizer(const struct device_optimizer_spec *optimizer, float clip)
{
	struct bench b;
	static const unsigned groups[2] = {0, 3};
	struct scalar *s[2];
	float *g = malloc(COUNT * sizeof(float));

	open_bench(&b, optimizer);
	for (unsigned k = 0; k < 2; k++) {
		s[k] = calloc(COUNT, sizeof(**s));
		for (size_t i = 0; i < device_param_elements(b.weight[k]); i++)
			s[k][i].w = (double)(float)uniform(k, i);
	}
	for (unsigned t = 1; t <= STEPS; t++) {
		struct device_hyper hyper = hyper_of_step(t);
		struct device_results results;
		double squares = 0, coefficient = 0.5;

		hyper.clip_norm = clip;
		for (unsigned k = 0; k < 2; k++) {
			for (size_t i = 0; i < device_param_elements(b.weight[k]); i++) {
				g[i] = (float)(uniform(100 * t + k, i) - 0.4);
				squares += (double)g[i] * (double)g[i];
			}
			assert_int_equal(device_param_write(b.weight[k], DEVICE_GRAD, g), 0);
		}
		assert_int_equal(step(&b, &hyper, &results), 0);
		/* the images are zero, so the tiny net's gradient is zero too */
		assert_true(fabs(results.grad_norm - 0.5 * sqrt(squares)) < 1e-6 * sqrt(squares));
		assert_true(results.updated && !results.skipped);
		if (clip > 0 && results.grad_norm > (double)clip)
			coefficient *= (double)clip / (0.5 * sqrt(squares));
		for (unsigned k = 0; k < 2; k++)
			for (size_t i = 0; i < device_param_elements(b.weight[k]); i++)
				scalar_update(&s[k][i],
					      (double)(float)(uniform(100 * t + k, i) - 0.4),
					      optimizer, &hyper, groups[k],
					      k ? (double)LR_FACTOR : 1, t, coefficient);
	}
	for (unsigned k = 0; k < 2; k++) {
		check_slot(b.weight[k], DEVICE_VALUE, s[k], offsetof(struct scalar, w));
		check_slot(b.weight[k], DEVICE_STATE, s[k], offsetof(struct scalar, m));
		if (optimizer->kind == DEVICE_ADAMW)
			check_slot(b.weight[k], DEVICE_STATE + 1, s[k], offsetof(struct scalar, v));
		if (optimizer->ema)
			check_slot(b.weight[k], DEVICE_EMA, s[k], offsetof(struct scalar, ema));
		free(s[k]);
	}
	/* frozen weights and buffers do not change, and their averages equal them */
	for (unsigned k = 0; k < 2; k++) {
		struct device_param *p = k ? b.buffer : b.frozen;

		assert_int_equal(device_param_read(p, DEVICE_VALUE, g), 0);
		for (size_t i = 0; i < device_param_elements(p); i++)
			assert_float_equal(g[i], (float)uniform(k ? 3 : 2, i), 0);
		if (!optimizer->ema)
			continue;
		assert_int_equal(device_param_read(p, DEVICE_EMA, g), 0);
		for (size_t i = 0; i < device_param_elements(p); i++)
			assert_float_equal(g[i], (float)uniform(k ? 3 : 2, i), 1e-6);
	}
	free(g);
	close_bench(&b);
}

TEST(sgd)
{
	for (unsigned i = 0; i < 8; i++)
		run_optimizer(&(struct device_optimizer_spec){.kind = DEVICE_SGD,
							      .nesterov = i & 1,
							      .coupled_decay = i & 2,
							      .ema = i & 4},
			      i & 1 ? 3.0f : 0);
}

TEST(adamw)
{
	run_optimizer(&(struct device_optimizer_spec){.kind = DEVICE_ADAMW, .ema = true}, 0);
	run_optimizer(&(struct device_optimizer_spec){.kind = DEVICE_ADAMW}, 1e-3f);
}

/*
 * A weight that is frozen in the first steps does not change. Once unfrozen, it is updated as if
 * its training started then.
 */
TEST(thaw)
{
	struct device_optimizer_spec optimizer = {.kind = DEVICE_ADAMW, .ema = true};
	struct scalar s[33] = {0};
	struct device_results results;
	float g[33], values[33];
	struct bench b;

	open_bench(&b, &optimizer);
	device_param_freeze(b.weight[1], true);
	device_graph_free(b.graph);
	plan_bench(&b);
	for (unsigned i = 0; i < 33; i++) {
		s[i].w = (double)(float)uniform(1, i);
		g[i] = (float)(uniform(100, i) - 0.4);
	}
	for (unsigned t = 1; t <= STEPS; t++) {
		struct device_hyper hyper = hyper_of_step(t);

		hyper.ema_decay = 0;
		if (t == 4) {
			device_param_read(b.weight[1], DEVICE_VALUE, values);
			for (unsigned i = 0; i < 33; i++)
				assert_true(values[i] == (float)uniform(1, i));
			device_param_freeze(b.weight[1], false);
			device_graph_free(b.graph);
			plan_bench(&b);
		}
		hyper.begun[LATER] = t < 4 ? 0 : 3;
		assert_int_equal(device_param_write(b.weight[1], DEVICE_GRAD, g), 0);
		assert_int_equal(step(&b, &hyper, &results), 0);
		for (unsigned i = 0; i < 33 && t >= 4; i++)
			scalar_update(&s[i], (double)g[i], &optimizer, &hyper, 3, (double)LR_FACTOR,
				      t - 3, 0.5);
	}
	check_slot(b.weight[1], DEVICE_VALUE, s, offsetof(struct scalar, w));
	check_slot(b.weight[1], DEVICE_STATE, s, offsetof(struct scalar, m));
	check_slot(b.weight[1], DEVICE_STATE + 1, s, offsetof(struct scalar, v));
	close_bench(&b);
}

/* A gradient that is not finite changes nothing and is counted as a skip. */
TEST(skip)
{
	struct bench b;
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD, .ema = true};
	struct device_hyper hyper = hyper_of_step(1);
	struct device_results results;
	struct device_params_state counters;
	float before[33], after[33], g[33] = {0};

	open_bench(&b, &optimizer);
	device_param_read(b.weight[1], DEVICE_VALUE, before);
	g[32] = INFINITY;
	assert_int_equal(device_param_write(b.weight[1], DEVICE_GRAD, g), 0);
	assert_int_equal(step(&b, &hyper, &results), 0);
	assert_true(results.skipped && !results.updated);
	device_param_read(b.weight[1], DEVICE_VALUE, after);
	assert_memory_equal(before, after, sizeof(before));
	assert_int_equal(device_params_get_state(b.params, &counters), 0);
	assert_int_equal(counters.skipped, 1);
	assert_int_equal(counters.updates, 0);
	/* the skipped update does not affect the next one, which is the first to set the average */
	assert_int_equal(step(&b, &hyper, &results), 0);
	assert_true(results.updated);
	device_param_read(b.weight[1], DEVICE_VALUE, before);
	device_param_read(b.weight[1], DEVICE_EMA, after);
	assert_memory_equal(before, after, sizeof(before));
	close_bench(&b);
}

/*
 * Lookahead: when the average is updated, weights and buffers are set to it; frozen weights are
 * not.
 */
static void check_lookahead(enum device_optimizer_kind kind)
{
	struct bench b;
	struct device_optimizer_spec optimizer = {.kind = kind, .ema = true};
	struct device_results results;
	struct scalar s[33] = {0}, buffer[5] = {0};
	float g[33], values[7];

	open_bench(&b, &optimizer);
	for (unsigned i = 0; i < 33; i++) {
		s[i].w = (double)(float)uniform(1, i);
		g[i] = (float)(uniform(100, i) - 0.4);
	}
	for (unsigned t = 1; t <= STEPS; t++) {
		struct device_hyper hyper = hyper_of_step(t);

		/* a decay of 1 leaves average and weights unchanged */
		hyper.lookahead = true;
		hyper.ema_decay = t % 3 == 2 ? 1 : 0.8f;
		for (unsigned i = 0; i < 5; i++) {
			values[i] = (float)uniform(200 + t, i);
			buffer[i].w = (double)values[i];
			scalar_average(&buffer[i], &hyper, t);
		}
		for (unsigned i = 0; i < 33; i++)
			scalar_update(&s[i], (double)g[i], &optimizer, &hyper, 3, (double)LR_FACTOR,
				      t, 0.5);
		assert_int_equal(device_param_write(b.buffer, DEVICE_VALUE, values), 0);
		assert_int_equal(device_param_write(b.weight[1], DEVICE_GRAD, g), 0);
		assert_int_equal(step(&b, &hyper, &results), 0);
	}
	check_slot(b.weight[1], DEVICE_VALUE, s, offsetof(struct scalar, w));
	check_slot(b.weight[1], DEVICE_EMA, s, offsetof(struct scalar, ema));
	check_slot(b.weight[1], DEVICE_STATE, s, offsetof(struct scalar, m));
	check_slot(b.buffer, DEVICE_VALUE, buffer, offsetof(struct scalar, w));
	assert_int_equal(device_param_read(b.frozen, DEVICE_VALUE, values), 0);
	for (unsigned i = 0; i < 7; i++)
		assert_float_equal(values[i], (float)uniform(2, i), 0);
	close_bench(&b);
}

TEST(lookahead)
{
	check_lookahead(DEVICE_SGD);
	check_lookahead(DEVICE_ADAMW);
}

TEST(slots)
{
	struct bench b;
	struct device_optimizer_spec optimizer = {.kind = DEVICE_SGD};
	float values[33];

	open_bench(&b, &optimizer);
	assert_int_equal(device_param_read(b.weight[1], DEVICE_STATE + 1, values), -ENOENT);
	assert_int_equal(device_param_read(b.weight[1], DEVICE_EMA, values), -ENOENT);
	assert_int_equal(device_param_read(b.buffer, DEVICE_GRAD, values), -ENOENT);
	assert_int_equal(device_param_read(b.buffer, DEVICE_VALUE, values), 0);
	close_bench(&b);
}

/* ---- loss ---- */

struct loss_case {
	uint32_t samples, classes;
	float smoothing, scale;
	bool ignore;
	float spread; /* scale of the logits */
};

static struct device_graph *loss_graph(struct device_params *params, const struct loss_case *c,
				       enum device_mode mode, struct device_value **ret_input)
{
	struct device_graph *graph;
	struct device_input_spec input = {.name = "input",
					  .shape = {c->samples, 1, 1, c->classes},
					  .std = {1, 1, 1, 1},
					  .gradient = true};
	char error[DEVICE_ERROR_MAX];

	assert_int_equal(
		device_graph_new(params, &(struct device_graph_options){mode, true}, &graph), 0);
	*ret_input = device_input(graph, &input);
	device_loss(graph, *ret_input, &(struct device_loss_spec){"loss", c->smoothing, c->scale});
	if (device_graph_plan(graph, error) < 0)
		fail_msg("%s", error);
	return graph;
}

static uint32_t rank_of(const double *z, uint32_t classes, int32_t label)
{
	uint32_t rank = 0;

	for (uint32_t i = 0; i < classes; i++)
		rank += z[i] > z[label] || (z[i] == z[label] && (int32_t)i < label);
	return rank;
}

static void check_loss_gradient(const struct loss_case *c, struct tensor *z, const int32_t *labels,
				const float *got)
{
	size_t count = tensor_count(z);
	double *expected = malloc(count * sizeof(double)),
	       scale = c->scale != 0 ? (double)c->scale : 1;

	for (size_t i = 0; i < count; i++) {
		double v = z->v[i];

		z->v[i] = v + 1e-5;
		double up = reference_loss(z, labels, (double)c->smoothing, scale);
		z->v[i] = v - 1e-5;
		expected[i] = (up - reference_loss(z, labels, (double)c->smoothing, scale)) / 2e-5;
		z->v[i] = v;
	}
	assert_true(relative_error(got, expected, count) < 1e-5);
	free(expected);
}

static void check_loss(const struct loss_case *c)
{
	struct device *device = open_device(DEVICE_FP32, 0);
	struct device_params *params;
	struct device_value *input;
	struct tensor z = tensor_new((struct device_shape){c->samples, 1, 1, c->classes});
	size_t count = tensor_count(&z);
	float *logits = malloc(count * sizeof(float)), *gradient = malloc(count * sizeof(float));
	int32_t *labels = malloc(c->samples * sizeof(int32_t));
	struct device_batch batch = {logits, labels, c->samples, c->classes, DEVICE_ELEMENT_F32,
				     false};
	struct device_results results;
	uint64_t number;
	uint32_t top1 = 0, top5 = 0, samples = 0;
	double scale = c->scale != 0 ? (double)c->scale : 1;

	tensor_fill(&z, 7, true); /* coarse, so that many classes tie */
	for (size_t i = 0; i < count; i++)
		z.v[i] *= (double)c->spread;
	for (uint32_t i = 0; i < c->samples; i++) {
		labels[i] = c->ignore && i % 3 == 1 ? -1 : (int32_t)(i * 7 % c->classes);
		if (labels[i] < 0)
			continue;
		samples++;
		top1 += rank_of(&z.v[(size_t)i * c->classes], c->classes, labels[i]) < 1;
		top5 += rank_of(&z.v[(size_t)i * c->classes], c->classes, labels[i]) < 5;
	}
	tensor_to_float(&z, logits);
	assert_int_equal(device_params_new(device, &params), 0);
	assert_int_equal(
		device_params_allocate(params, &(struct device_optimizer_spec){.kind = DEVICE_SGD}),
		0);
	struct device_graph *graph = loss_graph(params, c, DEVICE_TRAIN, &input);
	assert_int_equal(device_upload(graph, &batch, &number), 0);
	assert_int_equal(device_step(graph, NULL, &number), 0);
	assert_int_equal(device_results(graph, number, true, &results), 0);
	double loss = reference_loss(&z, labels, (double)c->smoothing, scale);
	assert_true(fabs(results.loss - loss) < 1e-6 * (1 + fabs(loss)));
	assert_int_equal(results.samples, samples);
	assert_int_equal(results.top1, top1);
	assert_int_equal(results.top5, top5);
	assert_int_equal(device_value_read(graph, input, DEVICE_GRAD, gradient), 0);
	check_loss_gradient(c, &z, labels, gradient);
	assert_int_equal(device_logits(graph, gradient), 0);
	assert_memory_equal(gradient, logits, count * sizeof(float));
	free(logits);
	free(gradient);
	free(labels);
	tensor_free(&z);
	device_graph_free(graph);
	device_params_free(params);
	device_close(device);
}

TEST(loss)
{
	static const struct loss_case loss_cases[] = {
		{5, 10, 0, 0, false, 1},      {64, 10, 0.1f, 0, false, 3},
		{33, 7, 0.2f, 0.5f, true, 3}, {9, 1000, 0.1f, 1, true, 10},
		{40, 2, 0, 2, false, 1},      {3, 100, 0.3f, 1, false, 40},
		{2, 17, 0, 0, false, 300},
	};

	for (size_t i = 0; i < sizeof(loss_cases) / sizeof(*loss_cases); i++)
		check_loss(&loss_cases[i]);
}
