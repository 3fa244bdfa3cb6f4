/*
 * Convolutions against two more references than the loops of test_device_conv.c: central
 * differences, for the norm's part of the backward epilogue, and oneDNN. Linked with the emulated
 * engines, and a second time with cuDNN for a device.
 */
#include "tests/unit/trainer/device/engines_test.h"
#include "trainer/device/cpu/onednn_compat.h"

#include <math.h>

/* ---- the norm's part of the backward epilogue, against central differences ---- */

#define EPSILON 1e-3

/* Computes the batch's mean and 1 / sqrt(variance + epsilon). */
static void batch_statistics(const struct operand *raw, size_t channels, double *ret_mean,
			     double *ret_deviation)
{
	double m = (double)(raw->count / channels);

	for (size_t c = 0; c < channels; c++) {
		double sum = 0, squares = 0;

		for (size_t i = c; i < raw->count; i += channels)
			sum += raw->v[i];
		for (size_t i = c; i < raw->count; i += channels)
			squares += (raw->v[i] - sum / m) * (raw->v[i] - sum / m);
		ret_mean[c] = sum / m;
		ret_deviation[c] = 1 / sqrt(squares / m + EPSILON);
	}
}

/*
 * Sum of y dy, where y = conv(a, w), plus the sum of a residual, for a = relu(norm(raw) +
 * norm(raw2)).
 */
static double loss(const struct fixture *f)
{
	const union operands *o = &f->o;
	size_t channels = f->problem.c;
	double mean[2][16], deviation[2][16], sum = 0;
	double *a = zeroes(o->x.count), *y = zeroes(o->y.count);

	batch_statistics(&o->raw, channels, mean[0], deviation[0]);
	batch_statistics(&o->raw2, channels, mean[1], deviation[1]);
	for (size_t i = 0; i < o->x.count; i++) {
		size_t c = i % channels;

		a[i] = fmax(o->gamma.v[c] * (o->raw.v[i] - mean[0][c]) * deviation[0][c] +
				    o->beta.v[c] +
				    o->gamma2.v[c] * (o->raw2.v[i] - mean[1][c]) * deviation[1][c] +
				    o->beta2.v[c],
			    0);
		sum += a[i] * o->residual.v[i];
	}
	for_each_product(&f->problem, add_to_y, &(struct sums){.x = a, .w = o->w.v, .to = y});
	for (size_t i = 0; i < o->y.count; i++)
		sum += y[i] * o->y.v[i];
	free(y);
	free(a);
	return sum;
}

static double difference(const struct fixture *f, double *of)
{
	const double step = 1e-5;
	double at = *of;

	*of = at + step;
	double up = loss(f);
	*of = at - step;
	double down = loss(f);
	*of = at;
	return (up - down) / (2 * step);
}

static void expect_gradient(const char *what, const double *differences, const float *computed,
			    size_t count)
{
	double error = relative_error(computed, differences, count);

	if (!(error < 1e-4))
		fail_msg("gradient of %s is off by %g", what, error);
}

/*
 * Checks the gradients of raw, gamma and beta of one norm; `mean` is the norm's first vector in
 * union operands.
 */
static void check_gradients(struct fixture *f, const char *what, struct operand *raw,
			    struct operand *mean)
{
	size_t channels = f->problem.c;
	const float *dz = f->o.x.data, *dgamma = mean[4].data, *dbeta = mean[5].data;
	const float *a = mean[6].data, *b = mean[7].data, *d = mean[8].data;
	double *differences = zeroes(raw->count), vectors[2][16];
	float *draw = calloc(raw->count, sizeof(float));

	assert_non_null(draw);
	for (size_t i = 0; i < raw->count; i++) {
		size_t c = i % channels;

		differences[i] = difference(f, &raw->v[i]);
		draw[i] = (float)(a[c] * dz[i] + b[c] * raw->v[i] + d[c]);
	}
	for (size_t c = 0; c < channels; c++) {
		vectors[0][c] = difference(f, &mean[2].v[c]);
		vectors[1][c] = difference(f, &mean[3].v[c]);
	}
	expect_gradient(what, differences, draw, raw->count);
	expect_gradient("gamma", vectors[0], dgamma, channels);
	expect_gradient("beta", vectors[1], dbeta, channels);
	free(draw);
	free(differences);
}

TEST(norm_gradients)
{
	static const uint32_t shape[CONV_SHAPE] = {2, 4, 3, 3, 4, 3, 3, 1, 1};
	struct conv_problem problem = problem_of(shape, CONV_DATA, CUDA_F32);
	struct fixture f;

	problem.epilogue = CONV_RELU_NORM;
	problem.residual = true;
	problem.shortcut = CONV_SHORTCUT_NORM;
	open_fixture(&f, &problem);
	batch_statistics(&f.o.raw, problem.c, f.o.mean.v, f.o.deviation.v);
	batch_statistics(&f.o.raw2, problem.c, f.o.mean2.v, f.o.deviation2.v);
	for (struct operand *i = &f.o.mean; i <= &f.o.deviation; i++)
		operand_store(i);
	for (struct operand *i = &f.o.mean2; i <= &f.o.deviation2; i++)
		operand_store(i);
	/* so that some sums are below zero */
	for (size_t c = 0; c < problem.c; c++)
		f.o.beta.v[c] -= 0.75;
	operand_store(&f.o.beta);
	/*
	 * cuDNN has this pattern only in fp16, whose rounding makes central differences too
	 * inaccurate
	 */
	if (compute(&f)) {
		check_gradients(&f, "raw", &f.o.raw, &f.o.mean);
		check_gradients(&f, "raw2", &f.o.raw2, &f.o.mean2);
	}
	close_fixture(&f);
}

/* ---- against oneDNN ---- */

struct dnnl {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct onednn_conv conv;
};

static void ok(dnnl_status_t status)
{
	assert_int_equal(status, dnnl_success);
}

static void dnnl_open(struct dnnl *d, const struct conv_problem *p)
{
	struct onednn_tensor x = {4, {p->n, p->c, p->h, p->w}, dnnl_f32, dnnl_nhwc};
	struct onednn_tensor y = {4, {p->n, p->k, p->p, p->q}, dnnl_f32, dnnl_nhwc};
	/* [k][r][s][c / groups] */
	struct onednn_tensor w = {
		5,
		{p->groups, p->k / p->groups, conv_weight_channels(p), p->r, p->s},
		dnnl_f32,
		dnnl_gohwi};

	ok(dnnl_engine_create(&d->engine, dnnl_cpu, 0));
	ok(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags));
	d->conv = (struct onednn_conv){.x = x, .weight = w, .y = y};
	for (int i = 0; i < 2; i++) {
		d->conv.window.strides[i] = p->stride;
		d->conv.window.padding[i] = p->pad;
		d->conv.window.padding_end[i] = p->pad + p->pad_extra;
	}
}

static void dnnl_run(struct dnnl *d, dnnl_primitive_desc_t desc, const int *names,
		     float *const *data)
{
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t args[3];

	ok(dnnl_primitive_create(&primitive, desc));
	for (int i = 0; i < 3; i++) {
		args[i].arg = names[i];
		ok(onednn_memory(desc, names[i], d->engine, data[i], &args[i].memory));
	}
	ok(dnnl_primitive_execute(primitive, d->stream, 3, args));
	ok(dnnl_stream_wait(d->stream));
	for (int i = 0; i < 3; i++)
		dnnl_memory_destroy(args[i].memory);
	dnnl_primitive_destroy(primitive);
}

/* Computes with oneDNN the operand that the direction writes. */
static void dnnl_compute(const struct fixture *f, float *x, float *w, float *y)
{
	static const int names[][3] = {
		{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
		{DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
		{DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
	};
	static const dnnl_prop_kind_t passes[] = {
		[CONV_FORWARD] = dnnl_forward_training,
		[CONV_DATA] = dnnl_backward_data,
		[CONV_WEIGHTS] = dnnl_backward_weights,
	};
	enum conv_direction direction = f->problem.direction;
	struct dnnl d;
	dnnl_primitive_desc_t forward, desc;

	dnnl_open(&d, &f->problem);
	struct onednn_choice choice = {.engine = d.engine};
	ok(onednn_conv(&choice, dnnl_forward_training, &d.conv, &forward));
	if (direction != CONV_FORWARD)
		choice.forward = forward;
	ok(onednn_conv(&choice, passes[direction], &d.conv, &desc));
	dnnl_run(&d, desc, names[direction], (float *[]){x, w, y});
	dnnl_primitive_desc_destroy(desc);
	dnnl_primitive_desc_destroy(forward);
	dnnl_stream_destroy(d.stream);
	dnnl_engine_destroy(d.engine);
}

TEST(onednn)
{
	static const uint32_t larger[][CONV_SHAPE] = {
		{2, 14, 13, 32, 48, 3, 3, 2, 1},      {2, 15, 15, 16, 24, 1, 1, 1, 0},
		{1, 23, 20, 4, 16, 7, 7, 2, 3},       {2, 9, 8, 16, 32, 4, 4, 2, 1, 1, 4},
		{2, 9, 8, 24, 24, 3, 3, 1, 1, 0, 24},
	};

	for (size_t i = 0; i < 3 * sizeof(larger) / sizeof(larger[0]); i++) {
		struct conv_problem problem =
			problem_of(larger[i / 3], (enum conv_direction)(i % 3), CUDA_F32);
		struct fixture f;
		float *floats[3];

		open_fixture(&f, &problem);
		struct operand *copies = f.o.list; /* x, w, y */
		for (size_t j = 0; j < 3; j++) {
			floats[j] = calloc(copies[j].count, sizeof(float));
			assert_non_null(floats[j]);
			memcpy(floats[j], copies[j].data, copies[j].count * sizeof(float));
		}
		dnnl_compute(&f, floats[0], floats[1], floats[2]);
		assert_true(compute(&f));
		struct operand *result = &copies[problem.direction == CONV_FORWARD ? 2
						 : problem.direction == CONV_DATA  ? 0
										   : 1];
		for (size_t j = 0; j < result->count; j++)
			result->v[j] = floats[result - copies][j];
		expect(&f, "oneDNN's", result, result->v);
		for (size_t j = 0; j < 3; j++)
			free(floats[j]);
		close_fixture(&f);
	}
}

int main(void)
{
	return run_with_engines();
}
