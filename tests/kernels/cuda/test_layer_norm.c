/* Layer norm, forward and backward, against plain loops in double precision. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/norm.h"

#include <errno.h>
#include <math.h>

#define EPSILON 1e-3

/*
 * Channels that form whole packs and that do not; rows that a warp's registers hold, rows that are
 * read twice, and rows that take a block; more rows than a block has warps, and several blocks of
 * sums.
 */
static const struct kernel_shape shapes[] = {
	{1, 1, 1, 1},    {3, 1, 1, 7},    {129, 1, 1, 10}, {5, 1, 1, 32},   {7, 1, 1, 192},
	{17, 1, 1, 384}, {5, 1, 1, 768},  {9, 1, 1, 1000}, {3, 1, 1, 1030}, {2, 1, 1, 4096},
	{2, 1, 1, 4100}, {3, 1, 1, 8201}, {700, 1, 1, 24},
};

/* A matrix and the expected statistics of its rows. */
struct rows {
	struct norm_arguments a;
	uint64_t rows;
	uint32_t channels;
	struct array *x, *gamma;
	double *mean, *deviation; /* [rows] */
};

static struct rows new_rows(const struct kernel_case *k, enum cuda_element element)
{
	uint64_t rows = (uint64_t)k->n * k->h * k->w;
	struct rows r = {
		.a = {.rows = rows,
		      .channels = k->c,
		      .element = element,
		      .epsilon = (float)EPSILON},
		.rows = rows,
		.channels = k->c,
		.x = new_uniform(rows * k->c, element, -1, 3),
		.gamma = new_uniform(k->c, CUDA_F32, -1, 2),
		.mean = new_doubles(rows),
		.deviation = new_doubles(rows),
	};

	r.a.x = array_reads(r.x);
	r.a.gamma = array_reads(r.gamma);
	return r;
}

static void find_statistics(struct rows *r)
{
	for (uint64_t row = 0; row < r->rows; row++) {
		const double *x = r->x->v + row * r->channels;
		double mean = 0, variance = 0;

		for (uint32_t c = 0; c < r->channels; c++)
			mean += x[c] / r->channels;
		for (uint32_t c = 0; c < r->channels; c++)
			variance += (x[c] - mean) * (x[c] - mean) / r->channels;
		r->mean[row] = mean;
		r->deviation[row] = 1 / sqrt(variance + EPSILON);
	}
}

static double xhat_of(const struct rows *r, uint64_t at)
{
	return (r->x->v[at] - r->mean[at / r->channels]) * r->deviation[at / r->channels];
}

struct forward_case {
	bool statistics, in_place;
};

static const struct forward_case forward_cases[] = {{false, false}, {false, true}, {true, false}};

static void forward(const struct kernel_case *k, enum cuda_element element)
{
	const struct forward_case *settings = k->settings;
	struct rows r = new_rows(k, element);
	struct array *beta = new_uniform(k->c, CUDA_F32, -1, 1),
		     *y = settings->in_place ? r.x : new_blank(r.x->count, element);
	struct array *mean = new_blank(r.rows, CUDA_F32), *deviation = new_blank(r.rows, CUDA_F32);

	r.a.beta = array_reads(beta);
	r.a.y = array_writes(y);
	r.a.mean = settings->statistics ? array_writes(mean) : NULL;
	r.a.deviation = settings->statistics ? array_writes(deviation) : NULL;
	if (queued(layer_norm_forward(&kernels_device, &r.a)))
		return;
	find_statistics(&r);
	for (uint64_t i = 0; i < y->count; i++)
		want(y)[i] = xhat_of(&r, i) * r.gamma->v[i % k->c] + beta->v[i % k->c];
	expect(y, 2 * element_tolerance(element), "y");
	for (uint64_t row = 0; row < r.rows; row++) {
		want(mean)[row] = r.mean[row];
		want(deviation)[row] = r.deviation[row];
	}
	if (settings->statistics) {
		expect(mean, 1e-6, "means");
		expect(deviation, 2e-6, "deviations");
	}
}

/* The variance is computed about the mean, so a large mean costs no precision. */
static void large_mean(void)
{
	const struct kernel_case k = {.n = 4, .h = 1, .w = 1, .c = 768};
	struct rows r = new_rows(&k, CUDA_F32);
	struct array *y = new_blank(r.x->count, CUDA_F32);
	struct array *mean = new_blank(4, CUDA_F32), *deviation = new_blank(4, CUDA_F32);

	for (uint64_t i = 0; i < r.x->count; i++)
		r.x->v[i] = element_round(r.x->v[i] + 4096, CUDA_F32);
	array_write(r.x);
	r.a.y = y->data;
	r.a.mean = mean->data;
	r.a.deviation = deviation->data;
	queued(layer_norm_forward(&kernels_device, &r.a));
	find_statistics(&r);
	for (uint64_t row = 0; row < r.rows; row++)
		want(deviation)[row] = r.deviation[row];
	expect(deviation, 1e-5, "deviations about a large mean");
}

struct backward_case {
	bool dx, dgamma, dbeta, add_dgamma, add_dbeta;
};

static const struct backward_case backward_cases[] = {
	{.dx = true},
	{.dgamma = true, .dbeta = true},
	{.dx = true, .dgamma = true, .dbeta = true, .add_dgamma = true, .add_dbeta = true},
	{.dx = true, .dgamma = true, .add_dgamma = true},
	{.dbeta = true},
};

/* Computes dx of one row, and adds to the expected dgamma and dbeta. */
static void reference_row(const struct rows *r, uint64_t row, const double *dy, struct array *dx,
			  struct array *dgamma, struct array *dbeta)
{
	uint64_t first = row * r->channels;
	double sum = 0, products = 0;

	for (uint32_t c = 0; c < r->channels; c++) {
		double xhat = xhat_of(r, first + c);

		sum += dy[c] * r->gamma->v[c] / r->channels;
		products += dy[c] * r->gamma->v[c] * xhat / r->channels;
		want(dbeta)[c] += dy[c];
		want(dgamma)[c] += dy[c] * xhat;
	}
	for (uint32_t c = 0; c < r->channels; c++)
		want(dx)[first + c] = r->deviation[row] * (dy[c] * r->gamma->v[c] - sum -
							   xhat_of(r, first + c) * products);
}

static void backward(const struct kernel_case *k, enum cuda_element element)
{
	const struct backward_case *settings = k->settings;
	struct rows r = new_rows(k, element);
	/* tolerance of fp32 sums of this many terms, with fp32 statistics */
	double tolerance = 2e-6 * (8 + sqrt((double)r.rows));
	struct array *dy = new_uniform(r.x->count, element, -1, 1),
		     *dx = new_blank(r.x->count, element);
	struct array *dgamma = new_uniform(k->c, CUDA_F32, -1, 1),
		     *dbeta = new_uniform(k->c, CUDA_F32, -1, 1);
	struct array *mean = new_blank(r.rows, CUDA_F32), *deviation = new_blank(r.rows, CUDA_F32);
	uint64_t partial = row_reduce_workspace(kernels_device.multiprocessors, r.rows, k->c);

	if (!kernels_timing) {
		find_statistics(&r);
		for (uint64_t row = 0; row < r.rows; row++) {
			mean->v[row] = r.mean[row];
			deviation->v[row] = r.deviation[row];
		}
	}
	array_write(mean);
	array_write(deviation);
	r.a.dy = array_reads(dy);
	r.a.mean = array_reads(mean);
	r.a.deviation = array_reads(deviation);
	r.a.dx = settings->dx ? array_writes(dx) : NULL;
	r.a.dgamma = settings->dgamma ? array_writes(dgamma) : NULL;
	r.a.dbeta = settings->dbeta ? array_writes(dbeta) : NULL;
	r.a.add_dgamma = settings->add_dgamma;
	r.a.add_dbeta = settings->add_dbeta;
	r.a.partial =
		settings->dgamma || settings->dbeta ? array_uses(new_bytes(NULL, partial)) : NULL;
	if (queued(layer_norm_backward(&kernels_device, &r.a)))
		return;
	for (uint32_t c = 0; c < k->c; c++) {
		want(dgamma)[c] = settings->add_dgamma ? dgamma->v[c] : 0;
		want(dbeta)[c] = settings->add_dbeta ? dbeta->v[c] : 0;
	}
	for (uint64_t row = 0; row < r.rows; row++)
		reference_row(&r, row, dy->v + row * k->c, dx, dgamma, dbeta);
	if (settings->dx)
		expect(dx, 8 * element_tolerance(element), "dx");
	if (settings->dgamma)
		expect(dgamma, tolerance, "dgamma");
	if (settings->dbeta)
		expect(dbeta, tolerance, "dbeta");
}

/* Sums are added in one order, whatever the order of threads, so runs are equal bit for bit. */
static void gradients_repeat(void)
{
	const struct kernel_case k = {.n = 999, .h = 1, .w = 1, .c = 136};
	struct rows r = new_rows(&k, CUDA_BF16);
	struct array *dy = new_uniform(r.x->count, CUDA_BF16, -1, 1);
	struct array *mean = new_uniform(999, CUDA_F32, 0, 1),
		     *deviation = new_uniform(999, CUDA_F32, 0.5, 2);
	struct array *sums[2][2];
	float first[136];

	r.a.dy = dy->data;
	r.a.mean = mean->data;
	r.a.deviation = deviation->data;
	r.a.partial = new_bytes(NULL, row_reduce_workspace(33, r.rows, k.c))->data;
	for (int i = 0; i < 2; i++) {
		kernels_vary(2);
		sums[i][0] = new_blank(k.c, CUDA_F32);
		sums[i][1] = new_blank(k.c, CUDA_F32);
		r.a.dgamma = sums[i][0]->data;
		r.a.dbeta = sums[i][1]->data;
		queued(layer_norm_backward(&kernels_device, &r.a));
	}
	array_read_bytes(sums[0][0], first);
	expect_bytes(sums[1][0], first, "dgamma again");
	array_read_bytes(sums[0][1], first);
	expect_bytes(sums[1][1], first, "dbeta again");
}

static void refused(void)
{
	struct norm_arguments a = {.rows = (uint64_t)1 << 31, .channels = 8};

	assert_int_equal(layer_norm_forward(&kernels_device, &a), -EINVAL);
}

static const struct kernel_test tests[] = {
	CHECK_EACH(forward, shapes, forward_cases),
	CHECK_EACH(backward, shapes, backward_cases),
	ONCE(large_mean),
	ONCE(gradients_repeat),
	ONCE(refused),
};

/* Timed: layer norms of vision transformers. */
static const struct backward_case all = {.dx = true, .dgamma = true, .dbeta = true};

static const struct kernel_case timed[] = {
	{"layer_norm", "14x14x192", forward, 14, 14, 192, &forward_cases[2]},
	{"layer_norm", "14x14x384", forward, 14, 14, 384, &forward_cases[2]},
	{"layer_norm", "14x14x768", forward, 14, 14, 768, &forward_cases[2]},
	{"layer_norm_backward", "14x14x192", backward, 14, 14, 192, &all},
	{"layer_norm_backward", "14x14x384", backward, 14, 14, 384, &all},
	{"layer_norm_backward", "14x14x768", backward, 14, 14, 768, &all},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
