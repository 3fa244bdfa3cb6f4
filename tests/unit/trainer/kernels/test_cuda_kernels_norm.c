/*
 * Batch norm, residual and activation, forward and backward, against plain loops in double
 * precision.
 */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/norm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Channels that form whole groups and that do not; one tile and several; partial tiles. */
/*
 * The last two: with one multiprocessor a block takes several turns, and some of its threads have
 * no work in the last turn.
 */
static const uint32_t shapes[][2] = {
	/* rows, channels */
	{1, 1},   {3, 3},   {50, 4},   {7, 8},    {129, 10}, {333, 16}, {1000, 24},
	{40, 64}, {5, 136}, {65, 264}, {2, 2048}, {70, 300}, {38, 129}, {185, 264},
};

#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* All operands of the kernels over a matrix; freed together. */
struct operands {
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	struct array x, residual, dy, dy2, y;                     /* [rows][channels] */
	struct array scale, bias, scale2, bias2, mean, deviation; /* [channels] */
	struct array out, sum, products, partial;
	double *z, *expected;  /* [rows][channels] */
	double *sums, *second; /* [channels] */
};

static double *doubles(uint64_t count)
{
	return kernels_zeros(count * sizeof(double));
}

static struct operands operands_new(uint64_t rows, uint32_t c, enum cuda_element element)
{
	uint64_t count = rows * c;

	return (struct operands){
		.rows = rows,
		.channels = c,
		.element = element,
		.x = array_coarse(count, element, 1),
		.residual = array_coarse(count, element, 2),
		.dy = array_coarse(count, element, 3),
		.dy2 = array_coarse(count, element, 4),
		.y = array_coarse(count, element, 5),
		.scale = array_coarse(c, CUDA_F32, 6),
		.bias = array_coarse(c, CUDA_F32, 7),
		.scale2 = array_coarse(c, CUDA_F32, 8),
		.bias2 = array_coarse(c, CUDA_F32, 9),
		.mean = array_coarse(c, CUDA_F32, 10),
		.deviation = array_uniform(c, CUDA_F32, 11, 0.5, 2),
		.out = array_blank(count, element),
		.sum = array_blank(c, CUDA_F32),
		.products = array_blank(c, CUDA_F32),
		.partial = array_bytes(NULL,
				       columns_workspace(kernels_device.multiprocessors, rows, c)),
		.z = doubles(count),
		.expected = doubles(count),
		.sums = doubles(c),
		.second = doubles(c),
	};
}

static void operands_free(struct operands *o)
{
	struct array *arrays[] = {&o->x,     &o->residual, &o->dy,        &o->dy2,
				  &o->y,     &o->scale,    &o->bias,      &o->scale2,
				  &o->bias2, &o->mean,     &o->deviation, &o->out,
				  &o->sum,   &o->products, &o->partial};

	for (unsigned i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		array_free(arrays[i]);
	free(o->z);
	free(o->expected);
	free(o->sums);
	free(o->second);
}

static double normal(double z)
{
	return 0.5 * erfc(-z / sqrt(2));
}

static double activate(double z, enum device_activation activation)
{
	return activation == DEVICE_RELU       ? (z > 0 ? z : 0)
	       : activation == DEVICE_GELU     ? z * normal(z)
	       : activation == DEVICE_LOGISTIC ? 1 / (1 + exp(-z))
					       : z;
}

static double slope(double z, enum device_activation activation)
{
	if (activation == DEVICE_RELU)
		return z > 0;
	if (activation == DEVICE_LOGISTIC)
		return 1 / (2 + exp(z) + exp(-z));
	return activation == DEVICE_GELU ? normal(z) + z * exp(-z * z / 2) / sqrt(2 * acos(-1)) : 1;
}

enum form { PLAIN, BIAS_ONLY, AFFINE, RESIDUAL, AFFINE_RESIDUAL, DUAL, FORMS };

static bool has_scale(enum form form)
{
	return form == AFFINE || form == AFFINE_RESIDUAL || form == DUAL;
}

static bool has_bias(enum form form)
{
	return has_scale(form) || form == BIAS_ONLY;
}

static bool has_residual(enum form form)
{
	return form == RESIDUAL || form == AFFINE_RESIDUAL || form == DUAL;
}

static void reference_z(struct operands *o, enum form form)
{
	for (uint64_t i = 0; i < o->x.count; i++) {
		uint32_t c = (uint32_t)(i % o->channels);

		o->z[i] = (has_scale(form) ? o->scale.v[c] : 1) * o->x.v[i] +
			  (has_bias(form) ? o->bias.v[c] : 0);
		if (has_residual(form))
			o->z[i] += (form == DUAL ? o->scale2.v[c] : 1) * o->residual.v[i] +
				   (form == DUAL ? o->bias2.v[c] : 0);
	}
}

static void check_statistics(struct operands *o)
{
	struct norm_arguments a = {
		.x = array_reads(&o->x),
		.rows = o->rows,
		.channels = o->channels,
		.element = o->element,
		.sum = array_writes(&o->sum),
		.products = array_writes(&o->products),
		.partial = array_uses(&o->partial),
	};

	assert_int_equal(norm_statistics(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < o->x.count; i++) {
		o->sums[i % o->channels] += o->x.v[i];
		o->second[i % o->channels] += o->x.v[i] * o->x.v[i];
	}
	/* multiples of 1/64 below 2^17: exact in fp32 */
	array_expect(&o->sum, o->sums, 0, "sums of %llu x %u", (unsigned long long)o->rows,
		     o->channels);
	array_expect(&o->products, o->second, 0, "squares of %llu x %u",
		     (unsigned long long)o->rows, o->channels);
}

static void check_apply(struct operands *o, enum form form, enum device_activation activation,
			unsigned place)
{
	struct array *result = place == 0 ? &o->out : place == 1 ? &o->x : &o->residual;
	double *before;
	struct norm_arguments a = {
		.x = array_reads(&o->x),
		.residual = has_residual(form) ? array_reads(&o->residual) : NULL,
		.scale = has_scale(form) ? array_reads(&o->scale) : NULL,
		.bias = has_bias(form) ? array_reads(&o->bias) : NULL,
		.scale2 = form == DUAL ? array_reads(&o->scale2) : NULL,
		.bias2 = form == DUAL ? array_reads(&o->bias2) : NULL,
		.y = array_writes(result),
		.rows = o->rows,
		.channels = o->channels,
		.element = o->element,
		.activation = activation,
	};

	assert_int_equal(norm_apply(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	reference_z(o, form);
	for (uint64_t i = 0; i < o->x.count; i++)
		o->expected[i] = activate(o->z[i], activation);
	before = doubles(o->x.count);
	memcpy(before, result->v, o->x.count * sizeof(*before));
	array_expect(result, o->expected, element_tolerance(o->element),
		     "apply %d of %llu x %u, activation %d, to %u", form,
		     (unsigned long long)o->rows, o->channels, activation, place);
	memcpy(result->v, before, o->x.count * sizeof(*before));
	array_write(result);
	free(before);
}

struct backward_case {
	enum form form;
	enum device_activation activation;
	bool from_y, two, store, sum, products, add;
};

static void reference_backward(struct operands *o, const struct backward_case *k)
{
	bool relu_y = k->activation == DEVICE_RELU && k->from_y;

	reference_z(o, k->form);
	memset(o->sums, 0, o->channels * sizeof(double));
	memset(o->second, 0, o->channels * sizeof(double));
	for (uint64_t i = 0; i < o->x.count; i++) {
		uint32_t c = (uint32_t)(i % o->channels);
		double dz = o->dy.v[i] + (k->two ? o->dy2.v[i] : 0);

		dz *= relu_y ? o->y.v[i] > 0 : slope(o->z[i], k->activation);
		o->expected[i] = dz;
		o->sums[c] += dz;
		o->second[c] += dz * (o->x.v[i] - o->mean.v[c]) * o->deviation.v[c];
	}
}

static void check_backward(struct operands *o, const struct backward_case *k)
{
	bool from_x = k->activation >= DEVICE_GELU || (k->activation == DEVICE_RELU && !k->from_y);
	/* fp32 sums of this many terms of up to 32 */
	double tolerance = 1e-6 * (32 + sqrt((double)o->rows));
	struct norm_arguments a = {
		.dy = array_reads(&o->dy),
		.dy2 = k->two ? array_reads(&o->dy2) : NULL,
		.y = k->from_y ? array_reads(&o->y) : NULL,
		.x = from_x || k->products ? array_reads(&o->x) : NULL,
		.residual = from_x && has_residual(k->form) ? array_reads(&o->residual) : NULL,
		.scale = from_x && has_scale(k->form) ? array_reads(&o->scale) : NULL,
		.bias = from_x && has_bias(k->form) ? array_reads(&o->bias) : NULL,
		.scale2 = from_x && k->form == DUAL ? array_reads(&o->scale2) : NULL,
		.bias2 = from_x && k->form == DUAL ? array_reads(&o->bias2) : NULL,
		.mean = k->products ? array_reads(&o->mean) : NULL,
		.deviation = k->products ? array_reads(&o->deviation) : NULL,
		.dz = k->store ? array_writes(&o->out) : NULL,
		.sum = k->sum ? array_writes(&o->sum) : NULL,
		.products = k->products ? array_writes(&o->products) : NULL,
		.add_sum = k->add,
		.partial = k->sum ? array_uses(&o->partial) : NULL,
		.rows = o->rows,
		.channels = o->channels,
		.element = o->element,
		.activation = k->activation,
	};

	if (k->add)
		array_read(&o->sum);
	assert_int_equal(norm_backward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	reference_backward(o, k);
	for (uint32_t c = 0; c < o->channels && k->add; c++)
		o->sums[c] += o->sum.v[c];
	if (k->store)
		array_expect(&o->out, o->expected, element_tolerance(o->element),
			     "dz of %llu x %u, form %d, activation %d", (unsigned long long)o->rows,
			     o->channels, k->form, k->activation);
	if (k->sum)
		array_expect(&o->sum, o->sums, tolerance,
			     "sum dz of %llu x %u, form %d, activation %d",
			     (unsigned long long)o->rows, o->channels, k->form, k->activation);
	if (k->products)
		array_expect(&o->products, o->second, tolerance,
			     "sum dz xhat of %llu x %u, form %d, activation %d",
			     (unsigned long long)o->rows, o->channels, k->form, k->activation);
}

/* The cases that lowering uses. */
static const struct backward_case backward_cases[] = {
	{PLAIN, DEVICE_IDENTITY, .sum = true},
	{PLAIN, DEVICE_IDENTITY, .sum = true, .add = true},
	{PLAIN, DEVICE_IDENTITY, .two = true, .store = true, .sum = true, .products = true},
	{PLAIN, DEVICE_RELU, .from_y = true, .store = true},
	{PLAIN, DEVICE_RELU, .from_y = true, .two = true, .store = true, .sum = true,
	 .products = true},
	{AFFINE, DEVICE_RELU, .sum = true, .products = true},
	{AFFINE, DEVICE_RELU, .two = true, .store = true, .sum = true, .products = true},
	{RESIDUAL, DEVICE_RELU, .store = true},
	{DUAL, DEVICE_RELU, .store = true, .sum = true, .products = true},
	{PLAIN, DEVICE_GELU, .store = true},
	{BIAS_ONLY, DEVICE_GELU, .store = true, .sum = true},
	{AFFINE, DEVICE_GELU, .sum = true, .products = true},
	{AFFINE, DEVICE_GELU, .two = true, .sum = true, .products = true},
	{AFFINE_RESIDUAL, DEVICE_GELU, .sum = true, .products = true},
	{AFFINE_RESIDUAL, DEVICE_GELU, .two = true, .store = true, .sum = true, .products = true},
	{DUAL, DEVICE_GELU, .store = true},
	{PLAIN, DEVICE_LOGISTIC, .store = true},
	{AFFINE_RESIDUAL, DEVICE_LOGISTIC, .two = true, .store = true, .sum = true,
	 .products = true},
};

static void check_backward_apply(struct operands *o, bool scaled, enum device_activation activation,
				 bool in_place)
{
	struct array a = array_coarse(o->channels, CUDA_F32, 20),
		     b = array_coarse(o->channels, CUDA_F32, 21),
		     c = array_coarse(o->channels, CUDA_F32, 22);
	struct norm_arguments apply = {
		.dz = array_reads(&o->dy),
		.x = array_reads(&o->x),
		.a = array_reads(&a),
		.b = array_reads(&b),
		.c = array_reads(&c),
		.scale = scaled ? array_reads(&o->scale) : NULL,
		.bias = scaled ? array_reads(&o->bias) : NULL,
		.dx = array_writes(in_place ? &o->dy : &o->out),
		.rows = o->rows,
		.channels = o->channels,
		.element = o->element,
		.activation = activation,
	};

	assert_int_equal(norm_backward_apply(&kernels_device, &apply), 0);
	if (kernels_timing)
		return;
	reference_z(o, AFFINE);
	for (uint64_t i = 0; i < o->x.count; i++) {
		uint32_t k = (uint32_t)(i % o->channels);
		double dz = o->dy.v[i] * (scaled ? slope(o->z[i], activation) : 1);

		o->expected[i] = a.v[k] * dz + b.v[k] * o->x.v[i] + c.v[k];
	}
	array_expect(in_place ? &o->dy : &o->out, o->expected, element_tolerance(o->element),
		     "dx of %llu x %u, activation %d", (unsigned long long)o->rows, o->channels,
		     activation);
	array_free(&a);
	array_free(&b);
	array_free(&c);
}

typedef void (*check_operands)(struct operands *o);

static void for_all_operands(check_operands check)
{
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int element = 0; element < ELEMENTS; element++) {
			for (unsigned i = 0; i < SHAPES; i++) {
				struct operands o = operands_new(shapes[i][0], shapes[i][1],
								 (enum cuda_element)element);

				check(&o);
				operands_free(&o);
			}
		}
	}
}

static void test_statistics(void **state)
{
	for_all_operands(check_statistics);
}

/* More blocks than the second stage of sums takes at once. */
static void test_many_blocks(void **state)
{
	struct operands o;

	kernels_vary(2);
	o = operands_new(2600, 64, CUDA_F32);
	check_statistics(&o);
	operands_free(&o);
}

/*
 * A grid that leaves partial sums must be resident as a whole: one more block would run after all
 * others have finished.
 */
static void test_grids(void **state)
{
	const struct kernel_device device = {.multiprocessors = 132};
	struct columns columns;

	for (uint32_t channels = 8; channels <= 8192; channels += 8) {
		for (uint32_t resident = 1; resident <= COLUMNS_RESIDENT_MAX; resident++) {
			columns_init(&columns, &device, 1000000, channels, CUDA_F16, resident);
			if (columns.blocks_x * columns.blocks_y > resident * device.multiprocessors)
				fail_msg("%u channels, %u blocks for each multiprocessor: %u x %u",
					 channels, resident, columns.blocks_x, columns.blocks_y);
		}
	}
}

static void check_applies(struct operands *o)
{
	for (int form = 0; form < FORMS; form++) {
		check_apply(o, (enum form)form, (enum device_activation)(form % DEVICE_ACTIVATIONS),
			    0);
		check_apply(o, (enum form)form,
			    (enum device_activation)((form + 1) % DEVICE_ACTIVATIONS), 1);
	}
	check_apply(o, DUAL, DEVICE_RELU, 2);
}

static void test_apply(void **state)
{
	for_all_operands(check_applies);
}

static void check_backwards(struct operands *o)
{
	for (unsigned i = 0; i < sizeof(backward_cases) / sizeof(*backward_cases); i++)
		check_backward(o, &backward_cases[i]);
}

static void test_backward(void **state)
{
	for_all_operands(check_backwards);
}

static void check_backward_applies(struct operands *o)
{
	check_backward_apply(o, false, DEVICE_IDENTITY, false);
	check_backward_apply(o, true, DEVICE_RELU, false);
	check_backward_apply(o, true, DEVICE_GELU, true);
	check_backward_apply(o, true, DEVICE_LOGISTIC, false);
}

static void test_backward_apply(void **state)
{
	for_all_operands(check_backward_applies);
}

/* An overflowed gradient does not pass a closed ReLU, and passes an open one. */
static void test_overflow(void **state)
{
	struct operands o = operands_new(4, 8, CUDA_F16);
	struct norm_arguments a = {
		.dy = o.dy.data,
		.y = o.y.data,
		.dz = o.out.data,
		.rows = 4,
		.channels = 8,
		.element = CUDA_F16,
		.activation = DEVICE_RELU,
	};

	o.dy.v[3] = INFINITY;
	o.y.v[3] = 0;
	o.dy.v[9] = INFINITY;
	o.y.v[9] = 1;
	array_write(&o.dy);
	array_write(&o.y);
	for (unsigned i = 0; i < 32; i++)
		o.expected[i] = o.y.v[i] > 0 ? o.dy.v[i] : 0;
	assert_int_equal(norm_backward(&kernels_device, &a), 0);
	array_expect(&o.out, o.expected, 0, "overflow");
	operands_free(&o);
}

static void test_refused(void **state)
{
	struct operands o = operands_new(4, 8, CUDA_F32);
	struct norm_arguments nothing = {.dy = o.dy.data, .rows = 4, .channels = 8};
	struct norm_arguments relu = {.dy = o.dy.data,
				      .dz = o.out.data,
				      .rows = 4,
				      .channels = 8,
				      .activation = DEVICE_RELU};
	struct norm_arguments sums = {.dy = o.dy.data, .sum = o.sum.data, .rows = 4, .channels = 8};

	assert_int_equal(norm_backward(&kernels_device, &nothing), -EINVAL);
	assert_int_equal(norm_backward(&kernels_device, &relu), -EINVAL);
	assert_int_equal(norm_backward(&kernels_device, &sums), -EINVAL);
	operands_free(&o);
}

/* ---- vectors ---- */

enum { CHANNELS = 300, CHANNELS_MAX = 2048 };

static void check_finalize(enum cuda_element element, bool halves, bool running, uint64_t rows,
			   uint32_t channels)
{
	struct array sum = array_coarse(channels, CUDA_F32, 1),
		     squares = array_blank(channels, CUDA_F32);
	struct array gamma = array_coarse(channels, CUDA_F32, 2),
		     beta = array_coarse(channels, CUDA_F32, 3);
	struct array running_mean = array_coarse(channels, CUDA_F32, 4),
		     running_var = array_uniform(channels, CUDA_F32, 5, 0.1, 4);
	struct array out[4],
		out16[2] = {array_blank(channels, element), array_blank(channels, element)};
	double expected[6][CHANNELS_MAX];
	struct norm_arguments a = {
		.gamma = array_reads(&gamma),
		.beta = array_reads(&beta),
		.scale16 = halves ? array_writes(&out16[0]) : NULL,
		.bias16 = halves ? array_writes(&out16[1]) : NULL,
		.running_mean = running ? array_updates(&running_mean) : NULL,
		.running_var = running ? array_updates(&running_var) : NULL,
		.rows = rows,
		.channels = channels,
		.element = element,
		.epsilon = 1e-3f,
		.momentum = 0.25f,
	};

	for (int i = 0; i < 4; i++)
		out[i] = array_blank(channels, CUDA_F32);
	a.mean = array_writes(&out[0]);
	a.deviation = array_writes(&out[1]);
	a.scale = array_writes(&out[2]);
	a.bias = array_writes(&out[3]);
	a.sum = array_reads(&sum);
	a.products = array_reads(&squares);
	for (unsigned c = 0; c < channels && !kernels_timing; c++) {
		double mean, variance;

		sum.v[c] *= (double)rows;
		mean = sum.v[c] / (double)rows;
		/* for channel 0 the rounded difference is negative */
		squares.v[c] = element_round(
			(c ? mean * mean + 0.75 * (c % 5) : mean * mean * 0.999) * (double)rows,
			CUDA_F32);
		variance = fmax(squares.v[c] / (double)rows - mean * mean, 0);
		expected[0][c] = mean;
		expected[1][c] = 1 / sqrt(variance + (double)1e-3f);
		expected[2][c] = gamma.v[c] * expected[1][c];
		expected[3][c] = beta.v[c] - mean * expected[2][c];
		expected[4][c] = running_mean.v[c] + 0.25 * (mean - running_mean.v[c]);
		expected[5][c] =
			running_var.v[c] +
			0.25 * (variance * (rows > 1 ? (double)rows / (double)(rows - 1) : 1) -
				running_var.v[c]);
	}
	array_write(&sum);
	array_write(&squares);
	assert_int_equal(norm_finalize(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	for (int i = 0; i < 4; i++)
		array_expect(&out[i], expected[i], 2e-6, "finalize, result %d of %llu rows", i,
			     (unsigned long long)rows);
	for (int i = 0; i < 2 && halves; i++)
		array_expect(&out16[i], expected[2 + i], element_tolerance(element),
			     "finalize, half result %d", i);
	if (running) {
		array_expect(&running_mean, expected[4], 2e-6, "running mean");
		array_expect(&running_var, expected[5], 2e-6, "running variance of %llu rows",
			     (unsigned long long)rows);
	}
	array_free(&sum);
	array_free(&squares);
	array_free(&gamma);
	array_free(&beta);
	array_free(&running_mean);
	array_free(&running_var);
	for (int i = 0; i < 4; i++)
		array_free(&out[i]);
	array_free(&out16[0]);
	array_free(&out16[1]);
}

static void test_finalize(void **state)
{
	for (int element = 0; element < ELEMENTS; element++) {
		kernels_vary((unsigned)element);
		check_finalize((enum cuda_element)element, true, true, 64, CHANNELS);
		check_finalize((enum cuda_element)element, false, true, 1, CHANNELS);
		check_finalize((enum cuda_element)element, true, false, 1 << 20, CHANNELS);
	}
}

static void check_running(enum cuda_element element, uint32_t channels)
{
	struct array mean = array_coarse(channels, CUDA_F32, 1),
		     variance = array_uniform(channels, CUDA_F32, 2, 0, 4);
	struct array gamma = array_coarse(channels, CUDA_F32, 3),
		     beta = array_coarse(channels, CUDA_F32, 4);
	struct array scale = array_blank(channels, CUDA_F32),
		     bias = array_blank(channels, CUDA_F32);
	struct array scale16 = array_blank(channels, element),
		     bias16 = array_blank(channels, element);
	double expected[2][CHANNELS_MAX];
	struct norm_arguments a = {
		.running_mean = array_reads(&mean),
		.running_var = array_reads(&variance),
		.gamma = array_reads(&gamma),
		.beta = array_reads(&beta),
		.scale = array_writes(&scale),
		.bias = array_writes(&bias),
		.scale16 = array_writes(&scale16),
		.bias16 = array_writes(&bias16),
		.channels = channels,
		.element = element,
		.epsilon = 0.125f,
	};

	assert_int_equal(norm_running(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	for (unsigned c = 0; c < channels; c++) {
		expected[0][c] = gamma.v[c] / sqrt(variance.v[c] + 0.125);
		expected[1][c] = beta.v[c] - mean.v[c] * expected[0][c];
	}
	array_expect(&scale, expected[0], 1e-6, "scale");
	array_expect(&bias, expected[1], 1e-6, "bias");
	array_expect(&scale16, expected[0], element_tolerance(element), "scale16");
	array_expect(&bias16, expected[1], element_tolerance(element), "bias16");
	array_free(&mean);
	array_free(&variance);
	array_free(&gamma);
	array_free(&beta);
	array_free(&scale);
	array_free(&bias);
	array_free(&scale16);
	array_free(&bias16);
}

static void test_running(void **state)
{
	for (int element = 0; element < ELEMENTS; element++)
		check_running((enum cuda_element)element, CHANNELS);
}

static void check_backward_finalize(bool dgamma, bool add_dgamma, bool dbeta, bool add_dbeta,
				    bool constants, uint64_t rows, uint32_t channels)
{
	struct array in[5], out[5];
	double expected[5][CHANNELS_MAX];

	for (int i = 0; i < 5; i++) {
		in[i] = array_coarse(channels, CUDA_F32, 30 + (uint64_t)i);
		out[i] = array_coarse(channels, CUDA_F32, 40 + (uint64_t)i);
	}
	struct norm_arguments a = {
		.sum = array_reads(&in[0]),
		.products = array_reads(&in[1]),
		.gamma = array_reads(&in[2]),
		.mean = array_reads(&in[3]),
		.deviation = array_reads(&in[4]),
		.dgamma = dgamma ? array_writes(&out[0]) : NULL,
		.dbeta = dbeta ? array_writes(&out[1]) : NULL,
		.add_dgamma = add_dgamma,
		.add_dbeta = add_dbeta,
		.a = constants ? array_writes(&out[2]) : NULL,
		.b = constants ? array_writes(&out[3]) : NULL,
		.c = constants ? array_writes(&out[4]) : NULL,
		.rows = rows,
		.channels = channels,
	};

	assert_int_equal(norm_backward_finalize(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	for (unsigned c = 0; c < channels; c++) {
		double scale = in[2].v[c] * in[4].v[c],
		       b = -scale * in[4].v[c] * in[1].v[c] / (double)rows;

		expected[0][c] = dgamma ? in[1].v[c] + (add_dgamma ? out[0].v[c] : 0) : out[0].v[c];
		expected[1][c] = dbeta ? in[0].v[c] + (add_dbeta ? out[1].v[c] : 0) : out[1].v[c];
		expected[2][c] = constants ? scale : out[2].v[c];
		expected[3][c] = constants ? b : out[3].v[c];
		expected[4][c] = constants ? -scale * in[0].v[c] / (double)rows - b * in[3].v[c]
					   : out[4].v[c];
	}
	for (int i = 0; i < 5; i++)
		array_expect(&out[i], expected[i], 1e-6, "backward finalize, result %d", i);
	for (int i = 0; i < 5; i++) {
		array_free(&in[i]);
		array_free(&out[i]);
	}
}

static void test_backward_finalize(void **state)
{
	check_backward_finalize(true, false, true, false, true, 12, CHANNELS);
	check_backward_finalize(true, true, true, true, false, 12, CHANNELS);
	check_backward_finalize(false, false, true, true, true, 12, CHANNELS);
	check_backward_finalize(true, true, false, false, true, 12, CHANNELS);
}

/* ---- timed ---- */

static uint64_t rows_of(const struct kernel_case *k)
{
	return (uint64_t)k->n * k->h * k->w;
}

static void statistics(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new(rows_of(k), k->c, element);

	check_statistics(&o);
	operands_free(&o);
}

static void finalize(const struct kernel_case *k, enum cuda_element element)
{
	check_finalize(element, true, true, rows_of(k), k->c);
}

static void running(const struct kernel_case *k, enum cuda_element element)
{
	check_running(element, k->c);
}

struct apply_case {
	enum form form;
	enum device_activation activation;
};

static void apply(const struct kernel_case *k, enum cuda_element element)
{
	const struct apply_case *how = k->how;
	struct operands o = operands_new(rows_of(k), k->c, element);

	check_apply(&o, how->form, how->activation, 0);
	operands_free(&o);
}

static void backward(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new(rows_of(k), k->c, element);

	check_backward(&o, k->how);
	operands_free(&o);
}

static void backward_finalize(const struct kernel_case *k, enum cuda_element element)
{
	check_backward_finalize(true, false, true, false, true, rows_of(k), k->c);
}

static void backward_apply(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new(rows_of(k), k->c, element);

	check_backward_apply(&o, k->how != NULL, DEVICE_RELU, false);
	operands_free(&o);
}

static const struct apply_case relu = {AFFINE, DEVICE_RELU}, gelu = {AFFINE, DEVICE_GELU},
			       residual = {AFFINE_RESIDUAL, DEVICE_RELU},
			       two_norms = {DUAL, DEVICE_RELU};

static const struct backward_case bias_gradient = {PLAIN, DEVICE_IDENTITY, .sum = true};
static const struct backward_case relu_sums = {AFFINE, DEVICE_RELU, .sum = true, .products = true};
static const struct backward_case gelu_sums = {AFFINE, DEVICE_GELU, .sum = true, .products = true};
static const struct backward_case end_of_block = {
	PLAIN,         DEVICE_RELU, .from_y = true,   .two = true,
	.store = true, .sum = true, .products = true,
};

/* clang-format off */
static const struct kernel_case timed[] = {
	{"norm_statistics", "112x112x64", statistics, 112, 112, 64},
	{"norm_statistics", "56x56x256", statistics, 56, 56, 256},
	{"norm_statistics", "14x14x1024", statistics, 14, 14, 1024},
	{"norm_statistics", "7x7x2048", statistics, 7, 7, 2048},
	{"norm_finalize", "256", finalize, 56, 56, 256},
	{"norm_finalize", "2048", finalize, 7, 7, 2048},
	{"norm_running", "2048", running, 7, 7, 2048},
	{"norm_apply", "relu 112x112x64", apply, 112, 112, 64, &relu},
	{"norm_apply", "relu 56x56x64", apply, 56, 56, 64, &relu},
	{"norm_apply", "relu 14x14x256", apply, 14, 14, 256, &relu},
	{"norm_apply", "gelu 56x56x64", apply, 56, 56, 64, &gelu},
	{"norm_apply", "residual relu 56x56x256", apply, 56, 56, 256, &residual},
	{"norm_apply", "residual relu 14x14x1024", apply, 14, 14, 1024, &residual},
	{"norm_apply", "residual relu 7x7x2048", apply, 7, 7, 2048, &residual},
	{"norm_apply", "two norms relu 56x56x256", apply, 56, 56, 256, &two_norms},
	{"norm_backward", "relu from x, sums 56x56x64", backward, 56, 56, 64, &relu_sums},
	{"norm_backward", "relu from x, sums 14x14x256", backward, 14, 14, 256, &relu_sums},
	{"norm_backward", "gelu from x, sums 56x56x64", backward, 56, 56, 64, &gelu_sums},
	{"norm_backward", "end of block 56x56x256", backward, 56, 56, 256, &end_of_block},
	{"norm_backward", "end of block 14x14x1024", backward, 14, 14, 1024, &end_of_block},
	{"norm_backward", "end of block 7x7x2048", backward, 7, 7, 2048, &end_of_block},
	{"norm_backward", "bias 1000", backward, 1, 1, 1000, &bias_gradient},
	{"norm_backward_finalize", "256", backward_finalize, 56, 56, 256},
	{"norm_backward_apply", "56x56x256", backward_apply, 56, 56, 256},
	{"norm_backward_apply", "14x14x1024", backward_apply, 14, 14, 1024},
	{"norm_backward_apply", "relu from x 56x56x64", backward_apply, 56, 56, 64, &relu},
};
/* clang-format on */

#define TIMED (sizeof(timed) / sizeof(*timed))

static void test_timed(void **state)
{
	kernels_check(timed, TIMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statistics), cmocka_unit_test(test_finalize),
		cmocka_unit_test(test_running),    cmocka_unit_test(test_apply),
		cmocka_unit_test(test_backward),   cmocka_unit_test(test_backward_finalize),
		cmocka_unit_test(test_overflow),   cmocka_unit_test(test_backward_apply),
		cmocka_unit_test(test_refused),    cmocka_unit_test(test_many_blocks),
		cmocka_unit_test(test_grids),      cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: norm", tests, kernels_test_open,
					   kernels_test_close);
}
