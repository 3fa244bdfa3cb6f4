/* Layer norm, forward and backward, against plain loops in double precision. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/norm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-3

/*
 * Channels that form whole packs and that do not; rows that a warp's registers hold, rows that are
 * read twice, and rows that take a block; more rows than a block has warps, and several blocks of
 * sums.
 */
static const uint32_t shapes[][2] = {
	/* rows, channels */
	{1, 1},    {3, 7},    {129, 10}, {5, 32},   {7, 192},  {17, 384}, {5, 768},
	{9, 1000}, {3, 1030}, {2, 4096}, {2, 4100}, {3, 8201}, {700, 24},
};

#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* All operands of the kernels; freed together. */
struct operands {
	uint64_t rows;
	uint32_t channels;
	enum cuda_element element;
	struct array x, dy, out;                 /* [rows][channels] */
	struct array gamma, beta, dgamma, dbeta; /* [channels] */
	struct array mean, deviation;            /* [rows] */
	struct array partial;
	double *expected;           /* [rows][channels] */
	double *means, *deviations; /* [rows] */
	double *gammas, *betas;     /* [channels]: gradients */
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
		.x = array_uniform(count, element, 1, -1, 3),
		.dy = array_uniform(count, element, 2, -1, 1),
		.out = array_blank(count, element),
		.gamma = array_uniform(c, CUDA_F32, 3, -1, 2),
		.beta = array_uniform(c, CUDA_F32, 4, -1, 1),
		.dgamma = array_blank(c, CUDA_F32),
		.dbeta = array_blank(c, CUDA_F32),
		.mean = array_blank(rows, CUDA_F32),
		.deviation = array_blank(rows, CUDA_F32),
		.partial = array_bytes(NULL,
				       columns_workspace(kernels_device.multiprocessors, rows, c)),
		.expected = doubles(count),
		.means = doubles(rows),
		.deviations = doubles(rows),
		.gammas = doubles(c),
		.betas = doubles(c),
	};
}

static void operands_free(struct operands *o)
{
	struct array *arrays[] = {&o->x,      &o->dy,    &o->out,  &o->gamma,     &o->beta,
				  &o->dgamma, &o->dbeta, &o->mean, &o->deviation, &o->partial};

	for (unsigned i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		array_free(arrays[i]);
	free(o->expected);
	free(o->means);
	free(o->deviations);
	free(o->gammas);
	free(o->betas);
}

static void reference_statistics(struct operands *o)
{
	for (uint64_t row = 0; row < o->rows; row++) {
		const double *x = o->x.v + row * o->channels;
		double mean = 0, variance = 0;

		for (uint32_t c = 0; c < o->channels; c++)
			mean += x[c] / o->channels;
		for (uint32_t c = 0; c < o->channels; c++)
			variance += (x[c] - mean) * (x[c] - mean) / o->channels;
		o->means[row] = mean;
		o->deviations[row] = 1 / sqrt(variance + EPSILON);
	}
}

static double reference_xhat(const struct operands *o, uint64_t at)
{
	uint64_t row = at / o->channels;

	return (o->x.v[at] - o->means[row]) * o->deviations[row];
}

static void reference_backward(struct operands *o)
{
	memset(o->gammas, 0, o->channels * sizeof(double));
	memset(o->betas, 0, o->channels * sizeof(double));
	for (uint64_t row = 0; row < o->rows; row++) {
		uint64_t first = row * o->channels;
		double sum = 0, products = 0;

		for (uint32_t c = 0; c < o->channels; c++) {
			double dy = o->dy.v[first + c], xhat = reference_xhat(o, first + c);

			sum += dy * o->gamma.v[c] / o->channels;
			products += dy * o->gamma.v[c] * xhat / o->channels;
			o->betas[c] += dy;
			o->gammas[c] += dy * xhat;
		}
		for (uint32_t c = 0; c < o->channels; c++)
			o->expected[first + c] =
				o->deviations[row] * (o->dy.v[first + c] * o->gamma.v[c] - sum -
						      reference_xhat(o, first + c) * products);
	}
}

static void check_forward(struct operands *o, bool statistics, bool in_place)
{
	struct array *result = in_place ? &o->x : &o->out;
	double *before;
	struct norm_arguments a = {
		.x = array_reads(&o->x),
		.gamma = array_reads(&o->gamma),
		.beta = array_reads(&o->beta),
		.y = array_writes(result),
		.mean = statistics ? array_writes(&o->mean) : NULL,
		.deviation = statistics ? array_writes(&o->deviation) : NULL,
		.rows = o->rows,
		.channels = o->channels,
		.element = o->element,
		.epsilon = (float)EPSILON,
	};

	assert_int_equal(layer_norm_forward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	reference_statistics(o);
	for (uint64_t i = 0; i < o->x.count; i++)
		o->expected[i] = reference_xhat(o, i) * o->gamma.v[i % o->channels] +
				 o->beta.v[i % o->channels];
	before = doubles(o->x.count);
	memcpy(before, o->x.v, o->x.count * sizeof(*before));
	array_expect(result, o->expected, 2 * element_tolerance(o->element),
		     "y of %llu x %u, in place %d", (unsigned long long)o->rows, o->channels,
		     in_place);
	if (statistics) {
		array_expect(&o->mean, o->means, 1e-6, "means of %llu x %u",
			     (unsigned long long)o->rows, o->channels);
		array_expect(&o->deviation, o->deviations, 2e-6, "deviations of %llu x %u",
			     (unsigned long long)o->rows, o->channels);
	}
	memcpy(o->x.v, before, o->x.count * sizeof(*before));
	array_write(&o->x);
	free(before);
}

struct backward_case {
	bool dx, dgamma, dbeta, add_dgamma, add_dbeta;
};

/* Runs after check_forward() with statistics. */
static void check_backward(struct operands *o, const struct backward_case *k)
{
	/* fp32 sums of this many terms, from statistics in fp32 */
	double tolerance = 2e-6 * (8 + sqrt((double)o->rows));
	bool sums = k->dgamma || k->dbeta;
	struct norm_arguments a = {
		.dy = array_reads(&o->dy),
		.x = array_reads(&o->x),
		.gamma = array_reads(&o->gamma),
		.mean = array_reads(&o->mean),
		.deviation = array_reads(&o->deviation),
		.dx = k->dx ? array_writes(&o->out) : NULL,
		.dgamma = k->dgamma ? array_writes(&o->dgamma) : NULL,
		.dbeta = k->dbeta ? array_writes(&o->dbeta) : NULL,
		.add_dgamma = k->add_dgamma,
		.add_dbeta = k->add_dbeta,
		.partial = sums ? array_uses(&o->partial) : NULL,
		.rows = o->rows,
		.channels = o->channels,
		.element = o->element,
	};

	assert_int_equal(layer_norm_backward(&kernels_device, &a), 0);
	if (kernels_timing)
		return;
	reference_backward(o);
	for (uint32_t c = 0; c < o->channels; c++) {
		o->gammas[c] += k->add_dgamma ? o->dgamma.v[c] : 0;
		o->betas[c] += k->add_dbeta ? o->dbeta.v[c] : 0;
	}
	if (k->dx)
		array_expect(&o->out, o->expected, 8 * element_tolerance(o->element),
			     "dx of %llu x %u", (unsigned long long)o->rows, o->channels);
	if (k->dgamma)
		array_expect(&o->dgamma, o->gammas, tolerance, "dgamma of %llu x %u",
			     (unsigned long long)o->rows, o->channels);
	if (k->dbeta)
		array_expect(&o->dbeta, o->betas, tolerance, "dbeta of %llu x %u",
			     (unsigned long long)o->rows, o->channels);
}

static const struct backward_case backward_cases[] = {
	{.dx = true},
	{.dgamma = true, .dbeta = true},
	{.dx = true, .dgamma = true, .dbeta = true, .add_dgamma = true, .add_dbeta = true},
	{.dx = true, .dgamma = true, .add_dgamma = true},
	{.dbeta = true},
};

static void test_layer_norm(void **state)
{
	for (unsigned i = 0; i < SHAPES * ELEMENTS * KERNELS_VARIATIONS; i++) {
		const uint32_t *shape = shapes[i / KERNELS_VARIATIONS / ELEMENTS];
		struct operands o;

		kernels_vary(i % KERNELS_VARIATIONS);
		o = operands_new(shape[0], shape[1],
				 (enum cuda_element)(i / KERNELS_VARIATIONS % ELEMENTS));
		check_forward(&o, false, false);
		check_forward(&o, false, true);
		check_forward(&o, true, false);
		for (unsigned k = 0; k < sizeof(backward_cases) / sizeof(*backward_cases); k++)
			check_backward(&o, &backward_cases[k]);
		operands_free(&o);
	}
}

/* The variance is computed about the mean, so a large mean costs no precision. */
static void test_large_mean(void **state)
{
	struct operands o;

	kernels_vary(0);
	o = operands_new(4, 768, CUDA_F32);
	for (uint64_t i = 0; i < o.x.count; i++)
		o.x.v[i] = element_round(o.x.v[i] + 4096, CUDA_F32);
	array_write(&o.x);
	assert_int_equal(layer_norm_forward(&kernels_device,
					    &(struct norm_arguments){
						    .x = o.x.data,
						    .gamma = o.gamma.data,
						    .beta = o.beta.data,
						    .y = o.out.data,
						    .mean = o.mean.data,
						    .deviation = o.deviation.data,
						    .rows = o.rows,
						    .channels = o.channels,
						    .element = CUDA_F32,
						    .epsilon = (float)EPSILON,
					    }),
			 0);
	reference_statistics(&o);
	array_expect(&o.deviation, o.deviations, 1e-5, "deviations about a large mean");
	operands_free(&o);
}

/* Sums are added in one order, whatever the order of threads, so runs are equal bit for bit. */
static void test_gradients_repeat(void **state)
{
	static const struct backward_case gradients = {.dgamma = true, .dbeta = true};
	float first[2][136], again[136];
	struct operands o;

	kernels_vary(2);
	o = operands_new(999, 136, CUDA_BF16);
	check_forward(&o, true, false);
	check_backward(&o, &gradients);
	array_read_bytes(&o.dgamma, first[0]);
	array_read_bytes(&o.dbeta, first[1]);
	check_backward(&o, &gradients);
	array_read_bytes(&o.dgamma, again);
	assert_memory_equal(again, first[0], sizeof(again));
	array_read_bytes(&o.dbeta, again);
	assert_memory_equal(again, first[1], sizeof(again));
	operands_free(&o);
}

static void test_refused(void **state)
{
	struct norm_arguments a = {.rows = (uint64_t)1 << 31, .channels = 8};

	assert_int_equal(layer_norm_forward(&kernels_device, &a), -EINVAL);
}

/* ---- timed: vision transformers ---- */

static void forward(const struct kernel_case *k, enum cuda_element element)
{
	struct operands o = operands_new((uint64_t)k->n * k->h * k->w, k->c, element);

	check_forward(&o, true, false);
	operands_free(&o);
}

static void backward(const struct kernel_case *k, enum cuda_element element)
{
	static const struct backward_case all = {.dx = true, .dgamma = true, .dbeta = true};
	struct operands o = operands_new((uint64_t)k->n * k->h * k->w, k->c, element);

	if (!kernels_timing)
		check_forward(&o, true, false);
	check_backward(&o, &all);
	operands_free(&o);
}

/* clang-format off */
static const struct kernel_case timed[] = {
	{"layer_norm", "14x14x192", forward, 14, 14, 192},
	{"layer_norm", "14x14x384", forward, 14, 14, 384},
	{"layer_norm", "14x14x768", forward, 14, 14, 768},
	{"layer_norm_backward", "14x14x192", backward, 14, 14, 192},
	{"layer_norm_backward", "14x14x384", backward, 14, 14, 384},
	{"layer_norm_backward", "14x14x768", backward, 14, 14, 768},
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
		cmocka_unit_test(test_layer_norm),
		cmocka_unit_test(test_large_mean),
		cmocka_unit_test(test_gradients_repeat),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: layer norm", tests, kernels_test_open,
					   kernels_test_close);
}
