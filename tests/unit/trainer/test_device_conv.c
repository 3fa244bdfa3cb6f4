/*
 * Every convolution pattern and the matrix products, held to double precision: naive loops that share nothing with the engines, central
 * differences for what the backward epilogue makes of a norm, and oneDNN. Linked with the emulated engines, and a second time with
 * cuDNN's for a device; there a pattern may have no plan, but at shapes like a net's every one in fp16 has.
 */
#include "emulation/element.h"
#include "engines.h"
#include "test_device_reference.h"

#include <cmocka.h>
#include <dnnl.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest relative error of the norm that is taken for rounding. */
static const double tolerances[] = {[CUDA_F32] = 2e-6, [CUDA_F16] = 1e-3, [CUDA_BF16] = 8e-3};

static struct gpu_properties gpu;
static struct engines engines;
static bool emulated;
static unsigned planned, unplanned;

/* An operand: what the reference sees, the same in its element, and that on the device. */
struct operand {
	size_t count;
	enum cuda_element element;
	double *v;
	void *data, *place;
};

/* Every pointer that struct conv_arguments has, named as there. */
#define OPERANDS 33

union operands {
	struct {
		struct operand x, w, y, scale, bias, scale2, bias2, residual, activated,
			channel_bias, sum, squares, raw, mean, deviation, gamma, beta, dgamma,
			dbeta, a, b, d, shortcut, raw2, mean2, deviation2, gamma2, beta2, dgamma2,
			dbeta2, a2, b2, d2;
	};
	struct operand list[OPERANDS];
};

_Static_assert(offsetof(union operands, d2) == sizeof(struct operand) * (OPERANDS - 1),
	       "the list has them all");

struct fixture {
	struct conv_problem problem;
	union operands o;
	gpu_stream stream;
};

static void store(struct operand *operand)
{
	for (size_t i = 0; i < operand->count; i++) {
		float value = element_round(operand->element, (float)operand->v[i]);

		operand->v[i] = value;
		floats_to_elements(operand->element, &value,
				   (char *)operand->data + i * cuda_element_size(operand->element),
				   1);
	}
}

static size_t bytes_of(const struct operand *operand)
{
	return operand->count * cuda_element_size(operand->element);
}

static void operand_free(struct operand *operand)
{
	gpu_free(operand->place);
	free(operand->data);
	free(operand->v);
}

static void copy_in(const struct operand *operand, gpu_stream stream)
{
	assert_int_equal(gpu_copy_in(operand->place, operand->data, bytes_of(operand), stream), 0);
}

static void copy_out(const struct operand *operand, gpu_stream stream)
{
	assert_int_equal(gpu_copy_out(operand->data, operand->place, bytes_of(operand), stream), 0);
}

static struct operand operand_new(size_t count, enum cuda_element element, uint64_t seed,
				  double low, double high)
{
	struct operand operand = {.count = count, .element = element};

	operand.v = calloc(count, sizeof(double));
	operand.data = calloc(count, cuda_element_size(element));
	assert_non_null(operand.v);
	assert_non_null(operand.data);
	assert_int_equal(gpu_allocate(bytes_of(&operand), &operand.place), 0);
	for (size_t i = 0; i < count; i++)
		operand.v[i] = low + (high - low) * uniform(seed, i);
	store(&operand);
	return operand;
}

static void open_fixture(struct fixture *f, const struct conv_problem *problem)
{
	enum cuda_element e = problem->element;
	size_t c = problem->c, k = problem->k;
	size_t x = (size_t)problem->n * problem->h * problem->w * c;
	size_t y = (size_t)problem->n * problem->p * problem->q * k;
	size_t w = k * problem->r * problem->s * c;
	bool weights = problem->direction == CONV_WEIGHTS;
	bool of_y = problem->direction == CONV_FORWARD && problem->epilogue == CONV_BIAS;
	union operands *o = &f->o;

	f->problem = *problem;
	assert_int_equal(conv_problem_check(problem), 0);
	assert_int_equal(gpu_stream_new(&f->stream), 0);
	o->x = operand_new(x, e, 1, -1, 1);
	o->w = operand_new(w, weights ? problem->gradient : e, 2, -1, 1);
	o->y = operand_new(y, e, 3, -1, 1);
	o->scale = operand_new(c, e, 4, -1.5, 1.5);
	o->bias = operand_new(c, e, 5, -0.5, 0.5);
	o->scale2 = operand_new(c, e, 6, -1.5, 1.5);
	o->bias2 = operand_new(c, e, 7, -0.5, 0.5);
	o->residual = operand_new(of_y ? y : x, e, 8, -1, 1);
	o->activated = operand_new(x, e, 9, 7, 8);
	o->channel_bias = operand_new(k, CUDA_F32, 10, -1, 1);
	o->raw = operand_new(x, e, 11, -1, 1);
	o->shortcut = operand_new(x, e, 12, -1, 1);
	o->raw2 = operand_new(x, e, 13, -2, 1);
	for (struct operand *i = &o->sum; i <= &o->squares; i++)
		*i = operand_new(k, CUDA_F32, 14, 7, 8);
	for (struct operand *i = &o->mean; i <= &o->d; i++)
		*i = operand_new(c, CUDA_F32, 15 + (uint64_t)(i - &o->mean), 0.25, 1);
	for (struct operand *i = &o->mean2; i <= &o->d2; i++)
		*i = operand_new(c, CUDA_F32, 30 + (uint64_t)(i - &o->mean2), 0.25, 1);
}

static void close_fixture(struct fixture *f)
{
	for (size_t i = 0; i < OPERANDS; i++)
		operand_free(&f->o.list[i]);
	gpu_stream_free(f->stream);
}

static struct conv_arguments arguments_of(const struct fixture *f, void *workspace)
{
	const union operands *o = &f->o;

	return (struct conv_arguments){
		.x = o->x.place,
		.w = o->w.place,
		.y = o->y.place,
		.scale = o->scale.place,
		.bias = o->bias.place,
		.scale2 = o->scale2.place,
		.bias2 = o->bias2.place,
		.residual = o->residual.place,
		.activated = o->activated.place,
		.channel_bias = o->channel_bias.place,
		.sum = o->sum.place,
		.squares = o->squares.place,
		.raw = o->raw.place,
		.mean = o->mean.place,
		.deviation = o->deviation.place,
		.gamma = o->gamma.place,
		.beta = o->beta.place,
		.dgamma = o->dgamma.place,
		.dbeta = o->dbeta.place,
		.a = o->a.place,
		.b = o->b.place,
		.d = o->d.place,
		.shortcut = o->shortcut.place,
		.raw2 = o->raw2.place,
		.mean2 = o->mean2.place,
		.deviation2 = o->deviation2.place,
		.gamma2 = o->gamma2.place,
		.beta2 = o->beta2.place,
		.dgamma2 = o->dgamma2.place,
		.dbeta2 = o->dbeta2.place,
		.a2 = o->a2.place,
		.b2 = o->b2.place,
		.d2 = o->d2.place,
		.workspace = workspace,
	};
}

/* Runs the problem. The results lie in .data; .v keeps what was there before. False: there is no plan, on a device. */
static bool compute(struct fixture *f)
{
	const struct conv_engines *conv = &engines.conv;
	struct conv_arguments arguments;
	struct conv_plan *plan;
	struct conv_plan_info info;
	void *workspace;
	int r = conv->plan(conv->state, &f->problem, &plan);

	if (!emulated && r == -ENOENT) {
		unplanned++;
		return false;
	}
	if (r < 0)
		fail_msg("%s", conv->error(conv->state));
	planned++;
	conv->plan_info(plan, &info);
	assert_int_equal(gpu_allocate(info.workspace_bytes, &workspace), 0);
	arguments = arguments_of(f, workspace);
	for (size_t i = 0; i < OPERANDS; i++)
		copy_in(&f->o.list[i], f->stream);
	if (conv->execute(conv->state, plan, &arguments, f->stream) < 0)
		fail_msg("%s", conv->error(conv->state));
	for (size_t i = 0; i < OPERANDS; i++)
		copy_out(&f->o.list[i], f->stream);
	assert_int_equal(gpu_stream_synchronize(f->stream), 0);
	gpu_free(workspace);
	conv->plan_free(plan);
	return true;
}

static void expect(const struct fixture *f, const char *what, const struct operand *operand,
		   const double *reference)
{
	float *values = calloc(operand->count, sizeof(float));
	double error;
	char name[160];

	assert_non_null(values);
	elements_to_floats(operand->element, operand->data, values, operand->count);
	error = relative_error(values, reference, operand->count);
	free(values);
	conv_problem_name(&f->problem, name, sizeof(name));
	/* sums of many rounded numbers are as good as those; a device adds up in another order */
	if (!(error <= (emulated ? 4 : 8) * tolerances[f->problem.element]))
		fail_msg("%s: %s is off by %g", name, what, error);
}

static double *zeroes(size_t count)
{
	double *made = calloc(count, sizeof(double));

	assert_non_null(made);
	return made;
}

/* x' of the fixture, [n][h][w][c] */
static double *reference_prologue(const struct fixture *f)
{
	const union operands *o = &f->o;
	enum conv_prologue prologue = f->problem.prologue;
	double *made = zeroes(o->x.count);

	for (size_t i = 0; i < o->x.count; i++) {
		size_t c = i % f->problem.c;
		double v = o->x.v[i];

		if (prologue != CONV_PLAIN)
			v = o->scale.v[c] * v + o->bias.v[c];
		if (prologue == CONV_SCALE_BIAS_ADD_RELU)
			v += o->residual.v[i];
		if (prologue == CONV_DUAL_SCALE_BIAS_ADD_RELU)
			v += o->scale2.v[c] * o->residual.v[i] + o->bias2.v[c];
		if (prologue != CONV_PLAIN)
			v = element_round(f->problem.element, (float)fmax(v, 0));
		made[i] = v;
	}
	return made;
}

/* Calls for every product of the convolution: which x, which w, which y. */
struct product {
	size_t x, w, y;
};
typedef void (*product_function)(void *context, const struct product *product);

static void for_each_product(const struct conv_problem *p, product_function function, void *context)
{
	for (uint32_t n = 0; n < p->n; n++)
		for (uint32_t h = 0; h < p->h; h++)
			for (uint32_t w = 0; w < p->w; w++)
				for (uint32_t i = 0; i < p->r * p->s * p->k; i++) {
					uint32_t r = i / p->k / p->s, s = i / p->k % p->s;
					uint32_t k = i % p->k, up = h + p->pad - r;
					uint32_t left = w + p->pad - s;

					/* what lies before the first position wraps round */
					if (up % p->stride || up / p->stride >= p->p ||
					    left % p->stride || left / p->stride >= p->q ||
					    h + p->pad < r || w + p->pad < s)
						continue;
					for (uint32_t c = 0; c < p->c; c++)
						function(
							context,
							&(struct product){
								((n * p->h + h) * p->w + w) * p->c +
									c,
								((k * p->r + r) * p->s + s) * p->c +
									c,
								((n * p->p + up / p->stride) *
									 p->q +
								 left / p->stride) *
										p->k +
									k});
				}
}

struct sums {
	const double *x, *w, *y;
	double *to;
};

static void add_to_y(void *context, const struct product *product)
{
	struct sums *sums = context;

	sums->to[product->y] += sums->x[product->x] * sums->w[product->w];
}

static void add_to_x(void *context, const struct product *product)
{
	struct sums *sums = context;

	sums->to[product->x] += sums->y[product->y] * sums->w[product->w];
}

static void add_to_w(void *context, const struct product *product)
{
	struct sums *sums = context;

	sums->to[product->w] += sums->y[product->y] * sums->x[product->x];
}

static void check_forward(struct fixture *f)
{
	const struct conv_problem *problem = &f->problem;
	union operands *o = &f->o;
	double *x = reference_prologue(f), *y = zeroes(o->y.count);
	double *sum = zeroes(problem->k), *squares = zeroes(problem->k);

	if (!compute(f))
		goto out;
	for_each_product(problem, add_to_y, &(struct sums){.x = x, .w = o->w.v, .to = y});
	for (size_t i = 0; i < o->y.count; i++) {
		size_t k = i % problem->k;

		sum[k] += y[i];
		squares[k] += y[i] * y[i];
		if (problem->epilogue == CONV_BIAS)
			y[i] += o->channel_bias.v[k] + (problem->residual ? o->residual.v[i] : 0);
		if (problem->epilogue == CONV_BIAS && problem->activation == DEVICE_RELU)
			y[i] = fmax(y[i], 0);
		if (problem->epilogue == CONV_BIAS && problem->activation == DEVICE_GELU)
			y[i] *= 0.5 * erfc(-y[i] * M_SQRT1_2);
	}
	expect(f, "y", &o->y, y);
	if (problem->prologue >= CONV_SCALE_BIAS_ADD_RELU)
		expect(f, "activated", &o->activated, x);
	if (problem->epilogue == CONV_STATISTICS) {
		expect(f, "sum", &o->sum, sum);
		expect(f, "squares", &o->squares, squares);
	}
out:
	free(squares);
	free(sum);
	free(y);
	free(x);
}

/* One norm's vectors against the formulas in conv.h. */
static void check_norm(const struct fixture *f, const double *dz, const struct operand *raw,
		       const struct operand *mean)
{
	/* in the order of union operands */
	const struct operand *deviation = mean + 1, *gamma = mean + 2, *outputs = mean + 4;
	static const char *const names[] = {"dgamma", "dbeta", "a", "b", "d"};
	size_t channels = f->problem.c, m = raw->count / channels;
	double *made[5];

	for (size_t i = 0; i < 5; i++)
		made[i] = zeroes(channels);
	for (size_t i = 0; i < raw->count; i++) {
		size_t c = i % channels;

		made[0][c] += dz[i] * (raw->v[i] - mean->v[c]) * deviation->v[c];
		made[1][c] += dz[i];
	}
	for (size_t c = 0; c < channels; c++) {
		made[2][c] = gamma->v[c] * deviation->v[c];
		made[3][c] = -made[2][c] * deviation->v[c] * made[0][c] / (double)m;
		made[4][c] = -made[2][c] * made[1][c] / (double)m - made[3][c] * mean->v[c];
	}
	for (size_t i = 0; i < 5; i++) {
		expect(f, names[i], &outputs[i], made[i]);
		free(made[i]);
	}
}

static void check_data(struct fixture *f)
{
	const struct conv_problem *problem = &f->problem;
	union operands *o = &f->o;
	double *x = zeroes(o->x.count);

	if (!compute(f))
		goto out;
	for_each_product(problem, add_to_x, &(struct sums){.y = o->y.v, .w = o->w.v, .to = x});
	for (size_t i = 0; i < o->x.count; i++) {
		size_t c = i % problem->c;
		double z;

		if (problem->epilogue == CONV_ADD || problem->residual)
			x[i] += o->residual.v[i];
		if (problem->epilogue != CONV_RELU_NORM)
			continue;
		z = o->gamma.v[c] * (o->raw.v[i] - o->mean.v[c]) * o->deviation.v[c] + o->beta.v[c];
		if (problem->shortcut == CONV_SHORTCUT)
			z += o->shortcut.v[i];
		if (problem->shortcut == CONV_SHORTCUT_NORM)
			z += o->gamma2.v[c] * (o->raw2.v[i] - o->mean2.v[c]) * o->deviation2.v[c] +
			     o->beta2.v[c];
		/* as it is stored, so that the sums compare */
		x[i] = z > 0 ? element_round(problem->element, (float)x[i]) : 0;
	}
	expect(f, "dx", &o->x, x);
	if (problem->epilogue == CONV_RELU_NORM)
		check_norm(f, x, &o->raw, &o->mean);
	if (problem->shortcut == CONV_SHORTCUT_NORM)
		check_norm(f, x, &o->raw2, &o->mean2);
out:
	free(x);
}

static void check_weights(struct fixture *f)
{
	union operands *o = &f->o;
	double *x = reference_prologue(f), *w = zeroes(o->w.count);

	if (compute(f)) {
		for_each_product(&f->problem, add_to_w,
				 &(struct sums){.x = x, .y = o->y.v, .to = w});
		expect(f, "dw", &o->w, w);
	}
	free(w);
	free(x);
}

static struct conv_problem problem_of(const uint32_t *shape, enum conv_direction direction,
				      enum cuda_element element)
{
	struct conv_problem problem;

	conv_problem_init(&problem);
	problem.direction = direction;
	problem.element = problem.gradient = element;
	problem.n = shape[0];
	problem.h = shape[1];
	problem.w = shape[2];
	problem.c = shape[3];
	problem.k = shape[4];
	problem.r = shape[5];
	problem.s = shape[6];
	problem.stride = shape[7];
	problem.pad = shape[8];
	problem.p = (problem.h + 2 * problem.pad - problem.r) / problem.stride + 1;
	problem.q = (problem.w + 2 * problem.pad - problem.s) / problem.stride + 1;
	return problem;
}

/* n h w c k r s stride pad */
static const uint32_t shapes[][9] = {
	{2, 5, 7, 3, 5, 3, 3, 1, 1},  {1, 6, 5, 4, 8, 3, 3, 2, 1},  {3, 7, 7, 5, 3, 1, 1, 1, 0},
	{2, 8, 7, 3, 4, 1, 1, 2, 0},  {1, 11, 9, 3, 6, 7, 7, 2, 3}, {2, 4, 5, 2, 3, 3, 3, 2, 0},
	{1, 9, 10, 4, 4, 5, 3, 3, 2}, {1, 3, 3, 2, 2, 3, 3, 1, 2},  {1, 1, 1, 7, 9, 1, 1, 1, 0},
	{2, 3, 3, 1, 1, 3, 3, 1, 1},
};

typedef void (*check_function)(struct fixture *f);

static void check(const struct conv_problem *problem)
{
	static const check_function checks[] = {check_forward, check_data, check_weights};
	struct fixture f;

	open_fixture(&f, problem);
	checks[problem->direction](&f);
	close_fixture(&f);
}

static void each_shape(enum conv_direction direction, void (*function)(struct conv_problem problem))
{
	/* on a device a few: what is fused at such shapes cuDNN compiles, a second or so each */
	size_t count = emulated ? sizeof(shapes) / sizeof(shapes[0]) : 3;

	for (enum cuda_element element = CUDA_F32; element <= CUDA_BF16; element++)
		for (size_t i = 0; i < count; i++)
			function(problem_of(shapes[i], direction, element));
}

static void forward_patterns(struct conv_problem problem)
{
	for (int prologue = CONV_PLAIN; prologue <= CONV_DUAL_SCALE_BIAS_ADD_RELU; prologue++) {
		problem.prologue = (enum conv_prologue)prologue;
		problem.epilogue = CONV_STORE;
		check(&problem);
		problem.epilogue = CONV_STATISTICS;
		check(&problem);
	}
	problem.prologue = CONV_PLAIN;
	problem.epilogue = CONV_BIAS;
	for (int i = 0; i < 6; i += emulated ? 1 : 3) {
		problem.activation = (enum device_activation)(i / 2);
		problem.residual = i % 2;
		check(&problem);
	}
}

static void data_patterns(struct conv_problem problem)
{
	check(&problem);
	problem.epilogue = CONV_ADD;
	check(&problem);
	problem.epilogue = CONV_RELU_NORM;
	for (int i = 0; i < 6; i++) {
		problem.shortcut = (enum conv_shortcut)(i / 2);
		problem.residual = i % 2;
		check(&problem);
	}
}

static void weight_patterns(struct conv_problem problem)
{
	check(&problem);
	problem.prologue = CONV_SCALE_BIAS_RELU;
	check(&problem);
	problem.gradient = CUDA_F32;
	check(&problem);
}

static void test_forward(void **state)
{
	each_shape(CONV_FORWARD, forward_patterns);
}

static void test_data_gradient(void **state)
{
	each_shape(CONV_DATA, data_patterns);
}

static void test_weight_gradient(void **state)
{
	each_shape(CONV_WEIGHTS, weight_patterns);
}

/* What a net has, at shapes that cuDNN has engines for: fp16 fused on GPUs of compute capability 9.0. */
static void test_net(void **state)
{
	static const uint32_t net[][9] = {
		{2, 9, 10, 64, 64, 3, 3, 1, 1},
		{2, 9, 10, 64, 128, 1, 1, 1, 0},
	};
	bool hopper = gpu.compute_major == 9;

	for (size_t i = 0; i < sizeof(net) / sizeof(net[0]); i++) {
		bool pointwise = net[i][5] == 1;
		struct conv_problem problem = problem_of(net[i], CONV_FORWARD, CUDA_F16);
		enum conv_prologue last =
			pointwise ? CONV_DUAL_SCALE_BIAS_ADD_RELU : CONV_SCALE_BIAS_RELU;

		unplanned = 0;
		problem.epilogue = CONV_STATISTICS;
		for (int prologue = CONV_PLAIN; prologue <= (int)last; prologue++) {
			problem.prologue = (enum conv_prologue)prologue;
			check(&problem);
		}
		problem = problem_of(net[i], CONV_WEIGHTS, CUDA_F16);
		check(&problem);
		problem.prologue = CONV_SCALE_BIAS_RELU;
		check(&problem);
		problem = problem_of(net[i], CONV_DATA, CUDA_F16);
		data_patterns(problem);
		if (hopper)
			assert_int_equal(unplanned, 0);
	}
}

/* ---- what the backward epilogue makes of a norm, against central differences ---- */

#define EPSILON 1e-3

/* Mean and 1 / sqrt(variance + epsilon) of the batch. */
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

/* sum of y dy, where y = conv(a, w), plus sum of a residual, for a = relu(norm(raw) + norm(raw2)) */
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
	double at = *of, up, down;

	*of = at + step;
	up = loss(f);
	*of = at - step;
	down = loss(f);
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

/* Of raw, gamma and beta of one norm; mean is its first vector in union operands. */
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

static void test_norm_gradients(void **state)
{
	static const uint32_t shape[] = {2, 4, 3, 3, 4, 3, 3, 1, 1};
	struct conv_problem problem = problem_of(shape, CONV_DATA, CUDA_F32);
	struct fixture f;

	problem.epilogue = CONV_RELU_NORM;
	problem.residual = true;
	problem.shortcut = CONV_SHORTCUT_NORM;
	open_fixture(&f, &problem);
	batch_statistics(&f.o.raw, problem.c, f.o.mean.v, f.o.deviation.v);
	batch_statistics(&f.o.raw2, problem.c, f.o.mean2.v, f.o.deviation2.v);
	for (struct operand *i = &f.o.mean; i <= &f.o.deviation; i++)
		store(i);
	for (struct operand *i = &f.o.mean2; i <= &f.o.deviation2; i++)
		store(i);
	/* some of it below zero */
	for (size_t c = 0; c < problem.c; c++)
		f.o.beta.v[c] -= 0.75;
	store(&f.o.beta);
	/* cuDNN has this in fp16 alone, where differences say little */
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
	dnnl_memory_desc_t x, w, y;
	dnnl_dims_t strides, pads;
};

static void ok(dnnl_status_t status)
{
	assert_int_equal(status, dnnl_success);
}

static void dnnl_open(struct dnnl *d, const struct conv_problem *p)
{
	dnnl_dims_t x = {p->n, p->c, p->h, p->w}, w = {p->k, p->c, p->r, p->s};
	dnnl_dims_t y = {p->n, p->k, p->p, p->q};

	ok(dnnl_engine_create(&d->engine, dnnl_cpu, 0));
	ok(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags));
	ok(dnnl_memory_desc_init_by_tag(&d->x, 4, x, dnnl_f32, dnnl_nhwc));
	ok(dnnl_memory_desc_init_by_tag(&d->w, 4, w, dnnl_f32, dnnl_nhwc)); /* [k][r][s][c] */
	ok(dnnl_memory_desc_init_by_tag(&d->y, 4, y, dnnl_f32, dnnl_nhwc));
	for (int i = 0; i < 2; i++) {
		d->strides[i] = p->stride;
		d->pads[i] = p->pad;
	}
}

static void dnnl_run(struct dnnl *d, const dnnl_convolution_desc_t *conv,
		     dnnl_primitive_desc_t hint, const int *names,
		     const dnnl_memory_desc_t *const *descs, float *const *data)
{
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t args[3];

	ok(dnnl_primitive_desc_create(&desc, conv, NULL, d->engine, hint));
	ok(dnnl_primitive_create(&primitive, desc));
	for (int i = 0; i < 3; i++) {
		args[i].arg = names[i];
		ok(dnnl_memory_create(&args[i].memory, descs[i], d->engine, data[i]));
	}
	ok(dnnl_primitive_execute(primitive, d->stream, 3, args));
	ok(dnnl_stream_wait(d->stream));
	for (int i = 0; i < 3; i++)
		dnnl_memory_destroy(args[i].memory);
	dnnl_primitive_destroy(primitive);
	dnnl_primitive_desc_destroy(desc);
}

/* The result of oneDNN in place of the operand that the direction writes. */
static void dnnl_compute(const struct fixture *f, float *x, float *w, float *y)
{
	static const int names[][3] = {
		{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
		{DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
		{DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
	};
	struct dnnl d;
	dnnl_convolution_desc_t forward, conv;
	dnnl_primitive_desc_t hint;

	dnnl_open(&d, &f->problem);
	ok(dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training,
					      dnnl_convolution_direct, &d.x, &d.w, NULL, &d.y,
					      d.strides, d.pads, d.pads));
	ok(dnnl_primitive_desc_create(&hint, &forward, NULL, d.engine, NULL));
	conv = forward;
	if (f->problem.direction == CONV_DATA)
		ok(dnnl_convolution_backward_data_desc_init(&conv, dnnl_convolution_direct, &d.x,
							    &d.w, &d.y, d.strides, d.pads, d.pads));
	if (f->problem.direction == CONV_WEIGHTS)
		ok(dnnl_convolution_backward_weights_desc_init(&conv, dnnl_convolution_direct, &d.x,
							       &d.w, NULL, &d.y, d.strides, d.pads,
							       d.pads));
	dnnl_run(&d, &conv, f->problem.direction == CONV_FORWARD ? NULL : hint,
		 names[f->problem.direction], (const dnnl_memory_desc_t *[]){&d.x, &d.w, &d.y},
		 (float *[]){x, w, y});
	dnnl_primitive_desc_destroy(hint);
	dnnl_stream_destroy(d.stream);
	dnnl_engine_destroy(d.engine);
}

static void test_onednn(void **state)
{
	static const uint32_t larger[][9] = {
		{2, 14, 13, 32, 48, 3, 3, 2, 1},
		{2, 15, 15, 16, 24, 1, 1, 1, 0},
		{1, 23, 20, 4, 16, 7, 7, 2, 3},
	};

	for (size_t i = 0; i < 3 * sizeof(larger) / sizeof(larger[0]); i++) {
		struct conv_problem problem =
			problem_of(larger[i / 3], (enum conv_direction)(i % 3), CUDA_F32);
		struct fixture f;
		struct operand *result, *copies;
		float *floats[3];

		open_fixture(&f, &problem);
		copies = f.o.list; /* x, w, y */
		for (size_t j = 0; j < 3; j++) {
			floats[j] = calloc(copies[j].count, sizeof(float));
			assert_non_null(floats[j]);
			memcpy(floats[j], copies[j].data, copies[j].count * sizeof(float));
		}
		dnnl_compute(&f, floats[0], floats[1], floats[2]);
		assert_true(compute(&f));
		result = &copies[problem.direction == CONV_FORWARD ? 2
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

/* ---- the rest ---- */

static void test_elements(void **state)
{
	for (uint32_t i = 0; i < 0x10000; i++) {
		uint16_t half = (uint16_t)i;
		float value = half_to_float(half), next = half_to_float((uint16_t)(i + 1));
		bool nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);

		if (nan) {
			assert_true(isnan(value));
			assert_true(isnan(half_to_float(float_to_half(value))));
			continue;
		}
		assert_int_equal(float_to_half(value), half);
		/* half way goes to the even one, a little further does not */
		if ((i & 0x7fff) < 0x7bff) {
			float middle = (value + next) / 2;

			assert_int_equal(float_to_half(middle), i & 1 ? i + 1 : i);
			assert_int_equal(float_to_half(nextafterf(middle, next)), i + 1);
		}
		assert_int_equal(float_to_bfloat(bfloat_to_float(half)), half);
	}
	assert_int_equal(float_to_half(65519.f), 0x7bff);
	assert_int_equal(float_to_half(65520.f), 0x7c00);
	assert_int_equal(float_to_half(-INFINITY), 0xfc00);
	assert_int_equal(float_to_bfloat(1 + 0x1p-8f), 0x3f80);
	assert_int_equal(float_to_bfloat(1 + 3 * 0x1p-8f), 0x3f82);
	assert_true(isnan(bfloat_to_float(float_to_bfloat(NAN))));
}

static void test_matmul(void **state)
{
	static const uint32_t sizes[][3] = {{5, 7, 3}, {1, 10, 17}, {8, 1, 1}, {3, 3, 33}};
	const struct matmul_engines *matmul = &engines.matmul;
	gpu_stream stream;

	assert_int_equal(gpu_stream_new(&stream), 0);
	for (unsigned i = 0; i < 4 * 3 * 2 * 16; i++) {
		const uint32_t *size = sizes[i % 4];
		char name[160];
		struct matmul_problem p;
		struct matmul_plan *plan;
		struct conv_plan_info info;
		struct operand a, b, bias, d;
		void *workspace;
		float *values;
		int r;

		matmul_problem_init(&p);
		p.rows = size[0];
		p.columns = size[1];
		p.inner = size[2];
		p.element = (enum cuda_element)(i / 4 % 3);
		p.result = i / 12 % 2 ? p.element : CUDA_F32;
		p.transposed_a = i / 24 & 1;
		p.transposed_b = i / 24 & 2;
		p.bias = i / 24 & 4;
		p.accumulate = i / 24 & 8;
		r = matmul->plan(matmul->state, &p, &plan);
		if (!emulated && r == -ENOENT)
			continue;
		if (r < 0)
			fail_msg("%s", matmul->error(matmul->state));
		matmul->plan_info(plan, &info);
		assert_int_equal(gpu_allocate(info.workspace_bytes, &workspace), 0);
		a = operand_new((size_t)p.rows * p.inner, p.element, 1, -1, 1);
		b = operand_new((size_t)p.inner * p.columns, p.element, 2, -1, 1);
		bias = operand_new(p.columns, CUDA_F32, 3, -1, 1);
		d = operand_new((size_t)p.rows * p.columns, p.result, 4, -1, 1);
		copy_in(&a, stream);
		copy_in(&b, stream);
		copy_in(&bias, stream);
		copy_in(&d, stream);
		r = matmul->execute(matmul->state, plan,
				    &(struct matmul_arguments){a.place, b.place, bias.place,
							       d.place, workspace},
				    stream);
		if (r < 0)
			fail_msg("%s", matmul->error(matmul->state));
		copy_out(&d, stream);
		assert_int_equal(gpu_stream_synchronize(stream), 0);
		gpu_free(workspace);
		matmul->plan_free(plan);
		for (size_t j = 0; j < d.count; j++) {
			size_t row = j / p.columns, column = j % p.columns;
			double sum = p.accumulate ? d.v[j] : 0;

			for (size_t l = 0; l < p.inner; l++)
				sum += a.v[p.transposed_a ? l * p.rows + row : row * p.inner + l] *
				       b.v[p.transposed_b ? column * p.inner + l
							  : l * p.columns + column];
			d.v[j] = sum + (p.bias ? bias.v[column] : 0);
		}
		values = calloc(d.count, sizeof(float));
		assert_non_null(values);
		elements_to_floats(p.result, d.data, values, d.count);
		matmul_problem_name(&p, name, sizeof(name));
		if (!(relative_error(values, d.v, d.count) <= tolerances[p.result]))
			fail_msg("%s is off by %g", name, relative_error(values, d.v, d.count));
		free(values);
		operand_free(&a);
		operand_free(&b);
		operand_free(&bias);
		operand_free(&d);
	}
	gpu_stream_free(stream);
}

static void test_problems(void **state)
{
	static const uint32_t shape[] = {256, 56, 56, 64, 128, 3, 3, 2, 1};
	struct conv_problem problem = problem_of(shape, CONV_FORWARD, CUDA_F16);
	const double products = 256. * 28 * 28 * 128 * 3 * 3 * 64;
	const uint64_t x = 256 * 56 * 56 * 64 * 2, y = 256 * 28 * 28 * 128 * 2,
		       w = 128 * 9 * 64 * 2;
	struct conv_arguments arguments = {0};
	char name[160];

	problem.prologue = CONV_SCALE_BIAS_RELU;
	problem.epilogue = CONV_STATISTICS;
	conv_problem_name(&problem, name, sizeof(name));
	assert_string_equal(name, "forward 3x3/2 64>128 56x56 n256 f16 scale-bias-relu statistics");
	assert_true(conv_problem_flops(&problem) == 2 * products);
	assert_int_equal(conv_problem_bytes(&problem), x + y + w + 2 * 64 * 2 + 2 * 128 * 4);
	assert_string_equal(conv_arguments_missing(&problem, &arguments), "x");
	problem.direction = CONV_DATA;
	assert_int_equal(conv_problem_check(&problem), -EINVAL);
	problem.prologue = CONV_PLAIN;
	problem.epilogue = CONV_RELU_NORM;
	problem.residual = true;
	problem.shortcut = CONV_SHORTCUT;
	assert_int_equal(conv_problem_check(&problem), 0);
	assert_int_equal(conv_problem_bytes(&problem), 4 * x + y + w + 9 * 64 * 4);
	conv_problem_name(&problem, name, sizeof(name));
	assert_string_equal(name,
			    "data gradient 3x3/2 64>128 56x56 n256 f16 relu-norm-add-shortcut");
	problem.p++;
	assert_int_equal(conv_problem_check(&problem), -EINVAL);
	problem.p--;
	problem.direction = CONV_WEIGHTS;
	assert_int_equal(conv_problem_check(&problem), -EINVAL);
}

/* What is missing is told before anything is queued. */
static void test_missing(void **state)
{
	const struct conv_engines *conv = &engines.conv;
	static const uint32_t shape[] = {2, 9, 10, 64, 64, 3, 3, 1, 1};
	struct conv_problem problem = problem_of(shape, CONV_FORWARD, CUDA_F16);
	struct conv_plan_info info;
	struct conv_arguments arguments;
	struct conv_plan *plan;
	struct fixture f;

	open_fixture(&f, &problem);
	assert_int_equal(conv->plan(conv->state, &problem, &plan), 0);
	conv->plan_info(plan, &info);
	arguments = arguments_of(&f, &arguments);
	arguments.w = NULL;
	assert_int_equal(conv->execute(conv->state, plan, &arguments, f.stream), -EINVAL);
	assert_non_null(strstr(conv->error(conv->state), "without w"));
	arguments = arguments_of(&f, NULL);
	if (info.workspace_bytes) {
		assert_int_equal(conv->execute(conv->state, plan, &arguments, f.stream), -EINVAL);
		assert_non_null(strstr(conv->error(conv->state), "workspace"));
	}
	conv->plan_free(plan);
	close_fixture(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elements),	cmocka_unit_test(test_problems),
		cmocka_unit_test(test_forward),		cmocka_unit_test(test_data_gradient),
		cmocka_unit_test(test_weight_gradient), cmocka_unit_test(test_net),
		cmocka_unit_test(test_norm_gradients),	cmocka_unit_test(test_onednn),
		cmocka_unit_test(test_matmul),		cmocka_unit_test(test_missing),
	};

	struct engines_options options = {.gpu = &gpu, .plans = ""};
	char error[DEVICE_ERROR_MAX];
	int r = gpu_select(0, &gpu);

	if (r < 0) {
		fprintf(stderr, "skipped: %s\n", gpu_error());
		return 77;
	}
	if (engines_open(&options, &engines, error) < 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	emulated = strcmp(gpu.name, "emulated GPU") == 0;
	printf("%s, %s\n", gpu.name, engines.name);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	printf("%u problems were computed\n", planned);
	engines_close(&engines);
	return r;
}
