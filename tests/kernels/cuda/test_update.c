/*
 * Gradient norm, decision and update over several steps, against scalar arithmetic in double
 * precision.
 */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/update.h"
#include "trainer/device/params.h"
#include "trainer/device/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 5

/* Parameters of one store. The third and fourth are not trained; the fourth is also frozen. */
struct param {
	uint32_t count, columns, copy_columns; /* copy_columns is 0 if there is no copy */
	uint32_t group;
	float lr_factor; /* 0 counts as 1 */
	bool trained, frozen, matrix;
	uint64_t offset, rest_offset;
	struct array *copy;
};

static const struct param declared[] = {
	{.count = 10000,
	 .columns = 100,
	 .copy_columns = 100,
	 .group = 0,
	 .trained = true,
	 .matrix = true},
	{.count = 33, .columns = 3, .copy_columns = 4, .group = 3, .trained = true},
	{.count = 70, .columns = 70, .group = 15},
	{.count = 8192 + 4, .columns = 4, .copy_columns = 4, .group = 1, .frozen = true},
	{.count = 4098,
	 .columns = 3,
	 .copy_columns = 8,
	 .group = 2,
	 .lr_factor = 0.7f,
	 .trained = true,
	 .matrix = true},
	{.count = 1, .columns = 1, .copy_columns = 0, .group = 1, .trained = true},
};

enum { PARAMS_MAX = sizeof(declared) / sizeof(*declared) };

enum slot { VALUE, GRADIENT, MOMENT1, MOMENT2, EMA, SAVED, SLOW, SWA, SLOTS };

static const char *const slot_names[] = {"value", "gradient", "moment 1", "moment 2",
					 "EMA",   "saved",    "slow",     "SWA"};

struct store {
	struct param params[PARAMS_MAX];
	unsigned param_count;
	uint64_t elements;
	bool by_matrix; /* whether the optimizer is by_matrix */
	struct array *slots[SLOTS], *partial, *state, *results, *arguments;
	struct device_params_state expected_state;
	double *model[SLOTS]; /* [elements] */
	struct update update;
};

static struct update_scaling plain_scaling = {.growth = 1, .backoff = 1, .min = 1, .max = 1};

/* Returns a new table of *ret_count chunks. */
static struct update_chunk *make_chunks(struct store *s, uint32_t *ret_count)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < s->param_count; i++)
		count += (s->params[i].count + UPDATE_CHUNK_MAX - 1) / UPDATE_CHUNK_MAX;
	*ret_count = count;
	struct update_chunk *chunks = calloc(count, sizeof(*chunks));
	assert_non_null(chunks);
	count = 0;
	for (unsigned i = 0; i < s->param_count; i++) {
		struct param *p = &s->params[i];
		void *copy = p->copy_columns ? array_uses(p->copy) : NULL;

		for (uint32_t at = 0; at < p->count; at += UPDATE_CHUNK_MAX) {
			uint32_t rest = p->count - at;

			chunks[count++] = (struct update_chunk){
				.offset = p->offset + at,
				.rest_offset = p->rest_offset + at,
				.count = rest < UPDATE_CHUNK_MAX ? rest : UPDATE_CHUNK_MAX,
				.first = at,
				.copy = copy,
				.columns = p->columns,
				.copy_columns = p->copy_columns,
				.row = p->columns,
				.matrix = s->by_matrix && p->matrix ? p->count / p->columns : 0,
				.chunks = (p->count + UPDATE_CHUNK_MAX - 1) / UPDATE_CHUNK_MAX,
				.group = p->group,
				.lr_factor = p->lr_factor != 0 ? p->lr_factor : 1,
				.trained = p->trained,
				.frozen = p->frozen,
			};
		}
	}
	return chunks;
}

static void make_slots(struct store *s)
{
	for (int slot = 0; slot < SLOTS; slot++) {
		bool zero = slot == MOMENT1 || slot == MOMENT2;

		s->slots[slot] = new_uniform(s->elements, CUDA_F32, zero ? 0 : -1, zero ? 0 : 1);
		s->model[slot] = new_doubles(s->elements);
		if (!kernels_timing)
			memcpy(s->model[slot], s->slots[slot]->v, s->elements * sizeof(double));
	}
}

static void store_open_with(struct store *s, const struct param *params, unsigned param_count,
			    const struct device_optimizer_spec *optimizer,
			    enum cuda_element copy_element)
{
	struct update_decision decision = {.gradient_scale = 1, .made = 1};
	/* arguments of timed runs; tests write others */
	struct step_arguments arguments = {.hyper = {.slow = 0.25f, .swa = 0.25f}};
	struct update_chunk *chunks;
	uint64_t rest = 0;
	uint32_t count;

	memset(s, 0, sizeof(*s));
	s->by_matrix = DEVICE_OPTIMIZERS_BY_MATRIX >> optimizer->kind & 1;
	memcpy(s->params, params, param_count * sizeof(*params));
	s->param_count = param_count;
	for (unsigned i = 0; i < s->param_count; i++) {
		struct param *p = &s->params[i];
		uint64_t rows = p->count / p->columns;

		p->offset = s->elements;
		p->rest_offset = rest;
		s->elements += (p->count + 15) / 16 * 16;
		rest += s->by_matrix && p->matrix ? 0 : (p->count + 15) / 16 * 16;
		if (p->copy_columns)
			p->copy = new_uniform(rows * p->copy_columns, copy_element, 7, 9);
	}
	make_slots(s);
	chunks = make_chunks(s, &count);
	s->expected_state.loss_scale = 1;
	s->partial = new_bytes(NULL, count * UPDATE_NORMS * sizeof(double));
	s->state = new_bytes(&s->expected_state, sizeof(s->expected_state));
	s->results = new_bytes(NULL, sizeof(struct device_results));
	s->arguments = new_bytes(&arguments, sizeof(arguments));
	s->update = (struct update){
		.chunks = array_uses(new_bytes(chunks, count * sizeof(*chunks))),
		.chunk_count = count,
		.slots = {[DEVICE_GRAD] = array_reads(s->slots[GRADIENT])},
		.copy_element = copy_element,
		.optimizer = *optimizer,
		.step = array_uses(s->arguments),
		.state = array_uses(s->state),
		.results = array_uses(s->results),
		.scaling = plain_scaling,
		.partial = array_uses(s->partial),
		.decision = array_uses(new_bytes(&decision, sizeof(decision))),
	};
	free(chunks);
}

/* The trainer defines this table, but kernel tests are linked without the trainer. */
static const unsigned device_optimizer_states[] = {
#define STATES(constant, name, by, states, ...) states,
	DEVICE_OPTIMIZERS(STATES)
#undef STATES
};

/* Sets the operands of the update other than gradients. */
static void set_slots(struct store *s)
{
	struct update *u = &s->update;

	u->slots[DEVICE_VALUE] = array_updates(s->slots[VALUE]);
	u->slots[DEVICE_STATE] = array_updates(s->slots[MOMENT1]);
	if (device_optimizer_states[u->optimizer.kind] > 1)
		u->slots[DEVICE_STATE + 1] = array_updates(s->slots[MOMENT2]);
	if (u->optimizer.ema)
		u->slots[DEVICE_EMA] = array_updates(s->slots[EMA]);
	for (unsigned i = 0; i < s->param_count; i++)
		if (s->params[i].copy_columns)
			array_writes(s->params[i].copy);
}

static void store_open(struct store *s, const struct device_optimizer_spec *optimizer,
		       enum cuda_element copy_element)
{
	store_open_with(s, declared, PARAMS_MAX, optimizer, copy_element);
	set_slots(s);
}

static struct device_hyper hyper_of_step(unsigned t)
{
	struct device_hyper hyper = {
		.momentum = 0.9f,
		.beta1 = 0.9f,
		.beta2 = 0.98f,
		.epsilon = 1e-4f,
		.adamw_lr = 0.5f,
		.ema_decay = t == 3   ? 1
			     : t == 4 ? 0
				      : 0.75f,
		.grad_scale = t == 2 ? 0 : 0.5f,
	};

	/* all hyperparameters change in every step */
	for (unsigned i = 0; i < DEVICE_GROUPS_MAX; i++) {
		hyper.lr[i] = 0.01f * (float)(t + i);
		hyper.weight_decay[i] = i == 3 ? 0 : 0.05f * (float)t;
	}
	return hyper;
}

static void write_bytes(const struct array *array, const void *bytes)
{
	assert_int_equal(gpu_copy_in(array->data, bytes, array->count, kernels_device.stream), 0);
	assert_int_equal(gpu_stream_synchronize(kernels_device.stream), 0);
}

/* Writes a step's gradients, multiplied by the loss scale. */
static void write_gradients(struct store *s, unsigned t)
{
	struct array *g = s->slots[GRADIENT];

	for (uint64_t i = 0; i < s->elements; i++)
		g->v[i] = element_round((kernels_uniform(100 + t, i) * 2 - 1) *
						s->expected_state.loss_scale,
					CUDA_F32);
	memcpy(s->model[GRADIENT], g->v, s->elements * sizeof(double));
	array_write(g);
}

static double model_norm(const struct store *s, const struct device_hyper *h)
{
	double squares = 0;

	for (unsigned i = 0; i < s->param_count; i++)
		for (uint32_t j = 0; j < s->params[i].count && s->params[i].trained; j++)
			squares += s->model[GRADIENT][s->params[i].offset + j] *
				   s->model[GRADIENT][s->params[i].offset + j];
	return sqrt(squares) * (h->grad_scale != 0 ? (double)h->grad_scale : 1) /
	       s->expected_state.loss_scale;
}

/* Computes the expected update of one element. `t` is the number of updates, including this one. */
static void model_element(struct store *s, const struct param *p, uint64_t i,
			  const struct device_hyper *h, double scale, double t)
{
	const struct device_optimizer_spec *o = &s->update.optimizer;
	double factor = p->lr_factor != 0 ? (double)p->lr_factor : 1;
	double lr = (double)h->lr[p->group] * factor, decay = (double)h->weight_decay[p->group],
	       w = s->model[VALUE][i];
	double g = s->model[GRADIENT][i] * scale, *m = &s->model[MOMENT1][i],
	       *v = &s->model[MOMENT2][p->rest_offset + (i - p->offset)];
	double beta1 = (double)h->beta1, beta2 = (double)h->beta2, momentum = (double)h->momentum;

	if (p->trained && p->matrix && o->kind == DEVICE_MUON) {
		double rows = p->count / p->columns, columns = p->columns;

		*m = momentum * *m + (1 - momentum) * g;
		g = o->nesterov ? (1 - momentum) * g + momentum * *m : *m;
		s->model[GRADIENT][i] = g;
		s->model[VALUE][i] = w - lr * decay * w -
				     lr * g *
					     (o->match_rms ? 0.2 * sqrt(fmax(rows, columns))
							   : sqrt(fmax(1, rows / columns)));
	} else if (p->trained && (o->kind == DEVICE_ADAMW || o->kind == DEVICE_MUON)) {
		lr *= o->kind == DEVICE_MUON ? (double)h->adamw_lr : 1;
		*m = beta1 * *m + (1 - beta1) * g;
		*v = beta2 * *v + (1 - beta2) * g * g;
		s->model[VALUE][i] = w - lr * decay * w -
				     lr * (*m / (1 - pow(beta1, t))) /
					     (sqrt(*v / (1 - pow(beta2, t))) + (double)h->epsilon);
	} else if (p->trained) {
		g += o->coupled_decay ? decay * w : 0;
		*m = momentum * *m + g;
		s->model[VALUE][i] = w - (o->coupled_decay ? 0 : lr * decay * w) -
				     lr * (o->nesterov ? g + momentum * *m : *m);
	}
	double average = t == 1 ? 0 : (double)h->ema_decay;

	if (o->ema)
		s->model[EMA][i] = average * s->model[EMA][i] + (1 - average) * s->model[VALUE][i];
	if (o->ema && h->lookahead && average != 1 && !p->frozen)
		s->model[VALUE][i] = s->model[EMA][i];
}

static void check_slot(struct store *s, enum slot slot)
{
	memcpy(want(s->slots[slot]), s->model[slot], s->elements * sizeof(double));
	expect(s->slots[slot], 2e-5, slot_names[slot]);
}

static void check_slots(struct store *s)
{
	for (int slot = 0; slot < SLOTS; slot++)
		check_slot(s, (enum slot)slot);
	for (unsigned i = 0; i < s->param_count; i++) {
		const struct param *p = &s->params[i];

		if (!p->copy_columns)
			continue;
		memcpy(want(p->copy), p->copy->v, p->copy->count * sizeof(double));
		for (uint32_t j = 0; j < p->count && p->trained; j++)
			want(p->copy)[(uint64_t)(j / p->columns) * p->copy_columns +
				      j % p->columns] = s->model[VALUE][p->offset + j];
		expect(p->copy, element_tolerance(p->copy->element) + 2e-5, "copy");
	}
}

static void check_state(const struct store *s, double norm, bool updated, double scale)
{
	struct device_params_state state;
	struct device_results results;

	array_read_bytes(s->state, &state);
	array_read_bytes(s->results, &results);
	assert_int_equal(state.updates, s->expected_state.updates);
	assert_int_equal(state.skipped, s->expected_state.skipped);
	assert_int_equal(state.scale_age, s->expected_state.scale_age);
	assert_true(state.loss_scale == s->expected_state.loss_scale);
	assert_true(results.loss_scale == scale);
	assert_int_equal(results.updated, updated);
	assert_int_equal(results.skipped, !updated);
	assert_true(updated ? fabs(results.grad_norm - norm) <= 1e-9 * norm
			    : !isfinite(results.grad_norm));
}

/* Runs a step with finite gradients. */
static void run_step(struct store *s, unsigned t, struct device_hyper hyper)
{
	struct step_arguments arguments = {.hyper = hyper};
	double scale = (hyper.grad_scale != 0 ? (double)hyper.grad_scale : 1) /
		       s->expected_state.loss_scale;
	double in_force = s->expected_state.loss_scale;

	write_bytes(s->arguments, &arguments);
	write_gradients(s, t);
	double norm = model_norm(s, &hyper);
	if (hyper.clip_norm > 0 && norm > (double)hyper.clip_norm)
		scale *= (double)hyper.clip_norm / norm;
	s->expected_state.updates++;
	s->expected_state.scale_age++;
	for (unsigned i = 0; i < s->param_count; i++)
		for (uint32_t j = 0; j < s->params[i].count; j++)
			model_element(s, &s->params[i], s->params[i].offset + j, &hyper, scale,
				      (double)s->expected_state.updates);
	if (s->update.scaling.growth > 1 &&
	    s->expected_state.scale_age >= s->update.scaling.interval &&
	    s->expected_state.loss_scale * 2 <= s->update.scaling.max) {
		s->expected_state.loss_scale *= 2;
		s->expected_state.scale_age = 0;
	}
	assert_int_equal(update_decide(&kernels_device, &s->update), 0);
	assert_int_equal(update_prepare(&kernels_device, &s->update), 0);
	assert_int_equal(update_apply(&kernels_device, &s->update), 0);
	check_state(s, norm, true, in_force);
	check_slots(s);
}

/* Runs a step in which one gradient of parameter 4 is `bad`. */
static void run_overflow(struct store *s, unsigned t, double bad)
{
	struct step_arguments arguments = {.hyper = hyper_of_step(t)};
	double in_force = s->expected_state.loss_scale;

	write_bytes(s->arguments, &arguments);
	write_gradients(s, t);
	s->model[GRADIENT][s->params[4].offset + 4097] =
		s->slots[GRADIENT]->v[s->params[4].offset + 4097] = bad;
	array_write(s->slots[GRADIENT]);
	s->expected_state.skipped++;
	if (s->update.scaling.backoff < 1) {
		s->expected_state.loss_scale =
			fmax(s->expected_state.loss_scale / 2, s->update.scaling.min);
		s->expected_state.scale_age = 0;
	}
	assert_int_equal(update_decide(&kernels_device, &s->update), 0);
	assert_int_equal(update_apply(&kernels_device, &s->update), 0);
	check_state(s, 0, false, in_force);
	check_slots(s);
}

static void check_optimizer(const struct device_optimizer_spec *optimizer,
			    enum cuda_element copy_element, bool lookahead)
{
	struct store s;

	store_open(&s, optimizer, copy_element);
	for (unsigned t = 1; t <= STEPS; t++) {
		struct device_hyper hyper = hyper_of_step(t);

		hyper.clip_norm = t == 4 ? 10 : t == 5 ? 1e9f : 0;
		hyper.lookahead = lookahead;
		run_step(&s, t, hyper);
	}
	kernels_release();
}

static void optimizers_agree(void)
{
	static const struct device_optimizer_spec optimizers[] = {
		{.kind = DEVICE_SGD, .ema = true},
		{.kind = DEVICE_SGD, .nesterov = true, .coupled_decay = true},
		{.kind = DEVICE_SGD, .nesterov = true, .ema = true},
		{.kind = DEVICE_ADAMW, .ema = true},
		{.kind = DEVICE_ADAMW, .nesterov = true, .coupled_decay = true},
	};

	for (unsigned i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++)
		for (int element = 0; element < ELEMENTS; element++) {
			kernels_vary((i + (unsigned)element) % KERNELS_VARIATIONS);
			check_optimizer(&optimizers[i], (enum cuda_element)element, false);
			check_optimizer(&optimizers[i], (enum cuda_element)element, true);
		}
}

/* Checks, for each matrix, the sum of squares of the values that replace its gradient. */
static void check_squares(struct store *s)
{
	double *partial = malloc(s->partial->count);
	uint32_t first = 0;

	array_read_bytes(s->partial, partial);
	for (unsigned i = 0; i < s->param_count; i++) {
		const struct param *p = &s->params[i];
		size_t at = (size_t)(update_matrix_squares(&s->update, first) - s->update.partial);
		double squares = 0;

		for (uint32_t j = 0; j < p->count; j++)
			squares += pow(s->model[GRADIENT][p->offset + j], 2);
		if (p->matrix)
			assert_true(fabs(partial[at] - squares) <= 1e-6 * squares);
		first += (p->count + UPDATE_CHUNK_MAX - 1) / UPDATE_CHUNK_MAX;
	}
	free(partial);
}

/*
 * Tests the kernels of a by_matrix optimizer. The matrix products are not kernels of this folder.
 */
static void by_matrix(void)
{
	static const struct device_optimizer_spec optimizers[] = {
		{.kind = DEVICE_MUON, .nesterov = true, .ema = true},
		{.kind = DEVICE_MUON, .match_rms = true},
	};

	for (unsigned i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++) {
		struct store s;

		kernels_vary(i % KERNELS_VARIATIONS);
		store_open(&s, &optimizers[i], CUDA_BF16);
		for (unsigned t = 1; t <= STEPS; t++) {
			run_step(&s, t, hyper_of_step(t));
			check_squares(&s);
		}
		run_overflow(&s, STEPS + 1, NAN);
		kernels_release();
	}
}

/*
 * Without loss scaling, a non-finite gradient is counted as a skipped update and has no other
 * effect.
 */
static void skipping(void)
{
	static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD, .ema = true};
	struct store s;

	kernels_vary(0);
	store_open(&s, &sgd, CUDA_BF16);
	run_step(&s, 1, hyper_of_step(1));
	run_overflow(&s, 2, NAN);
	run_step(&s, 3, hyper_of_step(2));
	run_overflow(&s, 4, -INFINITY);
	kernels_release();
}

static void loss_scale(void)
{
	static const struct device_optimizer_spec adamw = {.kind = DEVICE_ADAMW};
	struct store s;

	kernels_vary(1);
	store_open(&s, &adamw, CUDA_F16);
	s.update.scaling = (struct update_scaling){
		.growth = 2, .backoff = 0.5, .min = 2, .max = 16, .interval = 2};
	s.expected_state.loss_scale = 8;
	write_bytes(s.state, &s.expected_state);
	/* 8, 8, then 16, the maximum */
	for (unsigned t = 1; t <= 5; t++)
		run_step(&s, t, hyper_of_step(t));
	assert_true(s.expected_state.loss_scale == 16 && s.expected_state.scale_age == 3);
	run_overflow(&s, 6, INFINITY);
	run_step(&s, 7, hyper_of_step(1));
	/* 8, 4, 2, the minimum */
	for (unsigned t = 8; t < 12; t++)
		run_overflow(&s, t, NAN);
	assert_true(s.expected_state.loss_scale == 2 && s.expected_state.skipped == 5);
	run_step(&s, 12, hyper_of_step(1));
	kernels_release();
}

/*
 * The first update that is not skipped copies the values to the EMA, whatever the decay and the
 * number of earlier steps.
 */
static void average_begins(void)
{
	static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD, .ema = true};
	struct store s;

	kernels_vary(1);
	store_open(&s, &sgd, CUDA_F16);
	run_step(&s, 1, hyper_of_step(1));
	for (unsigned t = 2; t <= 3; t++) {
		s.expected_state.updates = 0;
		write_bytes(s.state, &s.expected_state);
		run_step(&s, t, hyper_of_step(t));
	}
	kernels_release();
}

/* With a decay of 0 the EMA becomes a copy of the values, even if it was not finite. */
static void average_restarts(void)
{
	static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD, .ema = true};
	struct store s;

	kernels_vary(2);
	store_open(&s, &sgd, CUDA_F32);
	run_step(&s, 1, hyper_of_step(1));
	for (unsigned i = 0; i < s.param_count; i++)
		for (uint32_t j = 0; j < s.params[i].count; j++)
			s.slots[EMA]->v[s.params[i].offset + j] = j % 2 ? NAN : INFINITY;
	array_write(s.slots[EMA]);
	for (unsigned i = 0; i < s.param_count; i++)
		for (uint32_t j = 0; j < s.params[i].count; j++)
			s.model[EMA][s.params[i].offset + j] = 0;
	run_step(&s, 2, hyper_of_step(4));
	kernels_release();
}

/* ---- separate passes: perturbation and averages ---- */

static void set_perturbed(struct store *s)
{
	s->update.slots[DEVICE_VALUE] = array_updates(s->slots[VALUE]);
	s->update.slots[DEVICE_UNPERTURBED] = array_writes(s->slots[SAVED]);
	for (unsigned i = 0; i < s->param_count; i++)
		if (s->params[i].copy_columns)
			array_writes(s->params[i].copy);
}

static void set_restored(struct store *s)
{
	s->update.slots[DEVICE_VALUE] = array_writes(s->slots[VALUE]);
	s->update.slots[DEVICE_UNPERTURBED] = array_reads(s->slots[SAVED]);
	for (unsigned i = 0; i < s->param_count; i++)
		if (s->params[i].copy_columns)
			array_writes(s->params[i].copy);
}

/* If `bad`, a gradient is not finite and the values do not change. */
static void run_perturb(struct store *s, unsigned t, bool bad)
{
	struct step_arguments arguments = {.hyper = hyper_of_step(t)};
	double scale = arguments.hyper.grad_scale != 0 ? (double)arguments.hyper.grad_scale : 1;

	arguments.hyper.perturb = 0.5f;
	write_bytes(s->arguments, &arguments);
	write_gradients(s, t);
	double norm = model_norm(s, &arguments.hyper);
	if (bad)
		s->model[GRADIENT][s->params[4].offset + 5] =
			s->slots[GRADIENT]->v[s->params[4].offset + 5] = NAN;
	array_write(s->slots[GRADIENT]);
	for (unsigned i = 0; i < s->param_count; i++)
		for (uint32_t j = 0; j < s->params[i].count && s->params[i].trained; j++) {
			uint64_t at = s->params[i].offset + j;

			s->model[SAVED][at] = s->model[VALUE][at];
			if (!bad)
				s->model[VALUE][at] += 0.5 * scale * s->model[GRADIENT][at] / norm;
		}
	assert_int_equal(update_decide(&kernels_device, &s->update), 0);
	assert_int_equal(update_perturb(&kernels_device, &s->update), 0);
}

static void run_restore(struct store *s)
{
	for (unsigned i = 0; i < s->param_count; i++)
		if (s->params[i].trained)
			memcpy(s->model[VALUE] + s->params[i].offset,
			       s->model[SAVED] + s->params[i].offset,
			       s->params[i].count * sizeof(double));
	assert_int_equal(update_restore(&kernels_device, &s->update), 0);
}

static void perturbation(void)
{
	static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD, .perturbs = true};

	for (unsigned i = 0; i < ELEMENTS; i++) {
		struct store s;

		kernels_vary(i);
		store_open_with(&s, declared, PARAMS_MAX, &sgd, (enum cuda_element)i);
		set_perturbed(&s);
		for (unsigned t = 1; t <= 3; t++) {
			run_perturb(&s, t, t == 2);
			check_slots(&s);
			run_restore(&s);
			check_slots(&s);
		}
		kernels_release();
	}
}

static void set_average(struct store *s, enum slot slot, enum device_slot device_slot, bool returns)
{
	s->update.slots[device_slot] = array_updates(s->slots[slot]);
	s->update.slots[DEVICE_VALUE] =
		returns ? array_updates(s->slots[VALUE]) : array_reads(s->slots[VALUE]);
	for (unsigned i = 0; i < s->param_count && returns; i++)
		if (s->params[i].copy_columns)
			array_writes(s->params[i].copy);
}

/*
 * Slow weights move towards the values, which are then set to them. After that the mean moves
 * towards the values, also for buffers.
 */
static void run_average(struct store *s, float slow, float swa)
{
	struct step_arguments arguments = {.hyper = {.slow = slow, .swa = swa}};

	write_bytes(s->arguments, &arguments);
	for (unsigned i = 0; i < s->param_count; i++)
		for (uint32_t j = 0; j < s->params[i].count; j++) {
			uint64_t at = s->params[i].offset + j;

			if (s->params[i].trained && slow > 0)
				s->model[VALUE][at] = s->model[SLOW][at] +=
					(double)slow * (s->model[VALUE][at] - s->model[SLOW][at]);
			s->model[SWA][at] +=
				(double)swa * (s->model[VALUE][at] - s->model[SWA][at]);
		}
	assert_int_equal(update_average(&kernels_device, &s->update), 0);
}

static void averages(void)
{
	static const struct device_optimizer_spec sgd = {
		.kind = DEVICE_SGD, .slow = true, .swa = true};
	static const float shares[][2] = {{0.25f, 0.5f}, {0, 1}, {1, 0}, {0, 0}};

	for (unsigned i = 0; i < ELEMENTS; i++) {
		struct store s;

		kernels_vary(i);
		store_open_with(&s, declared, PARAMS_MAX, &sgd, (enum cuda_element)i);
		set_average(&s, SLOW, DEVICE_SLOW, true);
		set_average(&s, SWA, DEVICE_SWA, true);
		run_average(&s, 0.5f, 0.25f); /* from here on, copies are made from the values */
		for (unsigned t = 0; t < 4; t++) {
			run_average(&s, shares[t][0], shares[t][1]);
			check_slots(&s);
		}
		kernels_release();
	}
}

/* ---- timed ---- */

#ifdef KERNELS_ON_DEVICE
#define TIMED_PARAMETERS 25557032 /* ResNet-50's */
#else
#define TIMED_PARAMETERS 10001
#endif

static const struct device_optimizer_spec timed_sgd = {
	.kind = DEVICE_SGD, .nesterov = true, .ema = true};
static const struct device_optimizer_spec timed_adamw = {.kind = DEVICE_ADAMW, .ema = true};

static const struct device_optimizer_spec timed_muon = {.kind = DEVICE_MUON, .nesterov = true};

static void timed_store_open(struct store *s, const struct kernel_case *k,
			     enum cuda_element element)
{
	const struct device_optimizer_spec *optimizer = k->settings;
	const struct param all = {
		.count = kernels_timing ? TIMED_PARAMETERS : 10001,
		.columns = 1,
		.copy_columns = 1,
		.trained = true,
		.matrix = true,
	};

	store_open_with(s, &all, 1, optimizer ? optimizer : &timed_sgd, element);
}

static void decide(const struct kernel_case *k, enum cuda_element element)
{
	struct store s;

	timed_store_open(&s, k, element);
	assert_int_equal(update_decide(&kernels_device, &s.update), 0);
}

static void apply(const struct kernel_case *k, enum cuda_element element)
{
	struct store s;

	timed_store_open(&s, k, element);
	set_slots(&s);
	if (kernels_timing)
		assert_int_equal(update_apply(&kernels_device, &s.update), 0);
	else
		run_step(&s, 1, hyper_of_step(1));
}

static void perturb(const struct kernel_case *k, enum cuda_element element)
{
	struct store s;

	timed_store_open(&s, k, element);
	set_perturbed(&s);
	if (kernels_timing) {
		assert_int_equal(update_perturb(&kernels_device, &s.update), 0);
	} else {
		run_perturb(&s, 1, false);
		check_slots(&s);
	}
}

static void restore(const struct kernel_case *k, enum cuda_element element)
{
	struct store s;

	timed_store_open(&s, k, element);
	set_restored(&s);
	if (!kernels_timing)
		memcpy(s.model[SAVED], s.slots[SAVED]->v, s.elements * sizeof(double));
	if (kernels_timing) {
		assert_int_equal(update_restore(&kernels_device, &s.update), 0);
	} else {
		run_restore(&s);
		check_slots(&s);
	}
}

static void average(const struct kernel_case *k, enum cuda_element element)
{
	bool slow = k->settings;
	struct store s;

	timed_store_open(&s, &(struct kernel_case){0}, element);
	set_average(&s, slow ? SLOW : SWA, slow ? DEVICE_SLOW : DEVICE_SWA, slow);
	if (kernels_timing)
		assert_int_equal(update_average(&kernels_device, &s.update), 0);
	else
		run_average(&s, slow ? 0.25f : 0, slow ? 0 : 0.25f);
	if (!kernels_timing && slow)
		check_slots(&s);
	else if (!kernels_timing)
		check_slot(&s, SWA);
}

static void direct(const struct kernel_case *k, enum cuda_element element)
{
	struct store s;

	timed_store_open(&s, k, element);
	set_slots(&s);
	array_updates(s.slots[GRADIENT]);
	if (kernels_timing)
		assert_int_equal(update_prepare(&kernels_device, &s.update), 0);
	else
		run_step(&s, 1, hyper_of_step(1));
}

/* Sums of squares by class are there for the ranks to sum, and count as what these summed to. */
static void split(void)
{
	static const struct device_optimizer_spec sgd = {.kind = DEVICE_SGD};
	/* classes by index of the chunk */
	static const uint32_t classes[] = {3, 2, 1, 0};
	struct step_arguments arguments = {.hyper = hyper_of_step(2)};
	struct device_results results;
	double part[UPDATE_SUMS] = {0}, found[UPDATE_SUMS] = {0}, total = 0;
	struct store s;

	store_open_with(&s, declared, PARAMS_MAX, &sgd, CUDA_F32);
	uint32_t count;
	struct update_chunk *chunks = make_chunks(&s, &count);
	for (uint32_t i = 0; i < count; i++) {
		chunks[i].split = i % 4 == 1 || i % 4 == 2;
		chunks[i].divided = i % 4 >= 2;
	}
	write_gradients(&s, 2);
	write_bytes(s.arguments, &arguments);
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < chunks[i].count && chunks[i].trained; j++)
			part[classes[i % 4]] += pow(s.model[GRADIENT][chunks[i].offset + j], 2);
	struct array *sums = new_bytes(found, sizeof(found));
	s.update.chunks = array_uses(new_bytes(chunks, count * sizeof(*chunks)));
	s.update.sums = array_uses(sums);
	assert_int_equal(update_squares(&kernels_device, &s.update), 0);
	array_read_bytes(sums, found);
	for (unsigned i = 0; i < UPDATE_SUMS; i++) {
		assert_true(fabs(found[i] - part[i]) <= 1e-12 * part[i]);
		found[i] *= i + 1;
		total += part[i] * (i + 1);
	}
	write_bytes(sums, found);
	assert_int_equal(update_decide(&kernels_device, &s.update), 0);
	array_read_bytes(s.results, &results);
	assert_true(fabs(results.grad_norm / sqrt(total) - 1) < 1e-12);
	free(chunks);
}

static const struct kernel_case timed[] = {
	{"update_decide", "25.6 M", decide},
	{"update_apply", "SGD, EMA, 25.6 M", apply, .settings = &timed_sgd},
	{"update_apply", "AdamW, EMA, 25.6 M", apply, .settings = &timed_adamw},
	{"update_prepare", "Muon, 25.6 M", direct, .settings = &timed_muon},
	{"update_perturb", "25.6 M", perturb},
	{"update_restore", "25.6 M", restore},
	{"update_average", "slow weights, 25.6 M", average, .settings = &timed_sgd},
	{"update_average", "SWA, 25.6 M", average},
};

static const struct kernel_test tests[] = {
	ONCE(split),      ONCE(by_matrix),        ONCE(perturbation),
	ONCE(averages),   ONCE(optimizers_agree), ONCE(skipping),
	ONCE(loss_scale), ONCE(average_begins),   ONCE(average_restarts),
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
