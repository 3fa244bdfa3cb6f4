/*
 * Batch norm, residual and activation, forward and backward, against plain loops in double
 * precision.
 */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/norm.h"
#include "trainer/device/ops.h"

#include <errno.h>
#include <math.h>

/*
 * Channels that form whole groups and that do not; one tile and several; partial tiles. The last
 * two: with one multiprocessor a block takes several turns, and some of its threads have no work in
 * the last turn.
 */
static const struct kernel_shape shapes[] = {
	{1, 1, 1, 1},    {3, 1, 1, 3},     {50, 1, 1, 4},   {7, 1, 1, 8},     {129, 1, 1, 10},
	{333, 1, 1, 16}, {1000, 1, 1, 24}, {40, 1, 1, 64},  {5, 1, 1, 136},   {65, 1, 1, 264},
	{2, 1, 1, 2048}, {70, 1, 1, 300},  {38, 1, 1, 129}, {185, 1, 1, 264},
};
/* More blocks than the second stage of sums adds in one iteration. */
static const struct kernel_shape many_blocks[] = {{2600, 1, 1, 64}};
static const struct kernel_shape vectors[] = {
	{64, 1, 1, 300}, {1, 1, 1, 300}, {1 << 20, 1, 1, 300}};

static uint64_t rows_of(const struct kernel_case *k)
{
	return (uint64_t)k->n * k->h * k->w;
}

/* Returns arguments with the fields that all kernels over a matrix need. */
static struct norm_arguments arguments_of(const struct kernel_case *k, enum cuda_element element)
{
	return (struct norm_arguments){.rows = rows_of(k), .channels = k->c, .element = element};
}

static struct array *matrix(const struct kernel_case *k, enum cuda_element element)
{
	return new_coarse(rows_of(k) * k->c, element);
}

static struct array *new_partial(const struct kernel_case *k)
{
	return new_bytes(NULL,
			 row_reduce_workspace(kernels_device.multiprocessors, rows_of(k), k->c));
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

static double activation_grad(double z, enum device_activation activation)
{
	if (activation == DEVICE_RELU)
		return z > 0;
	if (activation == DEVICE_LOGISTIC)
		return 1 / (2 + exp(z) + exp(-z));
	return activation == DEVICE_GELU ? normal(z) + z * exp(-z * z / 2) / sqrt(2 * acos(-1)) : 1;
}

/* ---- statistics ---- */

static void norm_statistics_sums(const struct kernel_case *k, enum cuda_element element)
{
	struct norm_arguments a = arguments_of(k, element);
	struct array *x = matrix(k, element), *sum = new_blank(k->c, CUDA_F32),
		     *products = new_blank(k->c, CUDA_F32);

	a.x = array_reads(x);
	a.sum = array_writes(sum);
	a.products = array_writes(products);
	a.partial = array_uses(new_partial(k));
	if (queued(norm_statistics(&kernels_device, &a)))
		return;
	for (uint64_t i = 0; i < x->count; i++) {
		want(sum)[i % k->c] += x->v[i];
		want(products)[i % k->c] += x->v[i] * x->v[i];
	}
	/* multiples of 1/64 below 2^17: exact in fp32 */
	expect(sum, 0, "sum x");
	expect(products, 0, "sum x x");
}

/*
 * A grid of a kernel with partial sums must be resident as a whole: one additional block would
 * start only after the others have finished.
 */
static void grids_are_resident(void)
{
	const struct kernel_device device = {.multiprocessors = 132};
	struct row_grid grid;

	for (uint32_t channels = 8; channels <= 8192; channels += 8) {
		for (uint32_t resident = 1; resident <= ROW_GRID_RESIDENT_MAX; resident++) {
			row_grid_init(&grid, &device, 1000000, channels, CUDA_F16, resident);
			if (grid.blocks_x * grid.blocks_y > resident * device.multiprocessors)
				fail_msg("%u channels, %u blocks for each multiprocessor: %u x %u",
					 channels, resident, grid.blocks_x, grid.blocks_y);
		}
	}
}

/* ---- vectors: one thread per channel ---- */

struct finalize_case {
	bool halves, running;
};

static const struct finalize_case finalize_cases[] = {{true, true}, {false, true}, {true, false}};

static void norm_finalized(const struct kernel_case *k, enum cuda_element element)
{
	const struct finalize_case *settings = k->settings;
	struct norm_arguments a = arguments_of(k, element);
	double rows = (double)rows_of(k);
	struct array *sum = new_coarse(k->c, CUDA_F32), *squares = new_blank(k->c, CUDA_F32);
	struct array *gamma = new_coarse(k->c, CUDA_F32), *beta = new_coarse(k->c, CUDA_F32);
	struct array *running_mean = new_coarse(k->c, CUDA_F32),
		     *running_var = new_uniform(k->c, CUDA_F32, 0.1, 4);
	struct array *mean = new_blank(k->c, CUDA_F32), *deviation = new_blank(k->c, CUDA_F32);
	struct array *scale = new_blank(k->c, CUDA_F32), *bias = new_blank(k->c, CUDA_F32);
	struct array *scale16 = new_blank(k->c, element), *bias16 = new_blank(k->c, element);

	a.epsilon = 1e-3f;
	a.momentum = 0.25f;
	a.sum = array_reads(sum);
	a.products = array_reads(squares);
	a.gamma = array_reads(gamma);
	a.beta = array_reads(beta);
	a.mean = array_writes(mean);
	a.deviation = array_writes(deviation);
	a.scale = array_writes(scale);
	a.bias = array_writes(bias);
	a.scale16 = settings->halves ? array_writes(scale16) : NULL;
	a.bias16 = settings->halves ? array_writes(bias16) : NULL;
	a.running_mean = settings->running ? array_updates(running_mean) : NULL;
	a.running_var = settings->running ? array_updates(running_var) : NULL;
	for (unsigned c = 0; c < k->c && !kernels_timing; c++) {
		sum->v[c] *= rows;
		double m = sum->v[c] / rows;
		/* makes the computed variance of channel 0 negative */
		squares->v[c] = element_round((c ? m * m + 0.75 * (c % 5) : m * m * 0.999) * rows,
					      CUDA_F32);
		double variance = fmax(squares->v[c] / rows - m * m, 0);
		double unbiased = variance * (rows > 1 ? rows / (rows - 1) : 1);
		double s = gamma->v[c] / sqrt(variance + (double)1e-3f);
		want(mean)[c] = m;
		want(deviation)[c] = 1 / sqrt(variance + (double)1e-3f);
		want(scale)[c] = want(scale16)[c] = s;
		want(bias)[c] = want(bias16)[c] = beta->v[c] - m * s;
		want(running_mean)[c] = running_mean->v[c] + 0.25 * (m - running_mean->v[c]);
		want(running_var)[c] = running_var->v[c] + 0.25 * (unbiased - running_var->v[c]);
	}
	array_write(sum);
	array_write(squares);
	if (queued(norm_finalize(&kernels_device, &a)))
		return;
	expect(mean, 2e-6, "mean");
	expect(deviation, 2e-6, "deviation");
	expect(scale, 2e-6, "scale");
	expect(bias, 2e-6, "bias");
	if (settings->halves) {
		expect(scale16, element_tolerance(element), "scale16");
		expect(bias16, element_tolerance(element), "bias16");
	}
	if (settings->running) {
		expect(running_mean, 2e-6, "running mean");
		expect(running_var, 2e-6, "running variance");
	}
}

static void norm_of_running(const struct kernel_case *k, enum cuda_element element)
{
	struct norm_arguments a = arguments_of(k, element);
	struct array *mean = new_coarse(k->c, CUDA_F32),
		     *variance = new_uniform(k->c, CUDA_F32, 0, 4);
	struct array *gamma = new_coarse(k->c, CUDA_F32), *beta = new_coarse(k->c, CUDA_F32);
	struct array *scale = new_blank(k->c, CUDA_F32), *bias = new_blank(k->c, CUDA_F32);
	struct array *scale16 = new_blank(k->c, element), *bias16 = new_blank(k->c, element);

	a.epsilon = 0.125f;
	a.running_mean = array_reads(mean);
	a.running_var = array_reads(variance);
	a.gamma = array_reads(gamma);
	a.beta = array_reads(beta);
	a.scale = array_writes(scale);
	a.bias = array_writes(bias);
	a.scale16 = array_writes(scale16);
	a.bias16 = array_writes(bias16);
	if (queued(norm_running(&kernels_device, &a)))
		return;
	for (unsigned c = 0; c < k->c; c++) {
		double s = gamma->v[c] / sqrt(variance->v[c] + 0.125);

		want(scale)[c] = want(scale16)[c] = s;
		want(bias)[c] = want(bias16)[c] = beta->v[c] - mean->v[c] * s;
	}
	expect(scale, 1e-6, "scale");
	expect(bias, 1e-6, "bias");
	expect(scale16, element_tolerance(element), "scale16");
	expect(bias16, element_tolerance(element), "bias16");
}

struct backward_finalize_case {
	bool dgamma, add_dgamma, dbeta, add_dbeta, factors, fixed;
};

static const struct backward_finalize_case backward_finalize_cases[] = {
	{true, false, true, false, true, false}, {true, true, true, true, false, false},
	{false, false, true, true, true, false}, {true, true, false, false, true, false},
	{true, false, true, false, true, true},
};

static void norm_backward_finalized(const struct kernel_case *k, enum cuda_element element)
{
	const struct backward_finalize_case *settings = k->settings;
	struct norm_arguments a = arguments_of(k, element);
	double rows = (double)rows_of(k);
	struct array *sum = new_coarse(k->c, CUDA_F32), *products = new_coarse(k->c, CUDA_F32);
	struct array *gamma = new_coarse(k->c, CUDA_F32), *mean = new_coarse(k->c, CUDA_F32);
	struct array *deviation = new_coarse(k->c, CUDA_F32);
	struct array *out[5];

	for (int i = 0; i < 5; i++)
		out[i] = new_coarse(k->c, CUDA_F32);
	a.sum = array_reads(sum);
	a.products = array_reads(products);
	a.gamma = array_reads(gamma);
	a.mean = array_reads(mean);
	a.deviation = array_reads(deviation);
	a.dgamma = settings->dgamma ? array_writes(out[0]) : NULL;
	a.dbeta = settings->dbeta ? array_writes(out[1]) : NULL;
	a.a = settings->factors ? array_writes(out[2]) : NULL;
	a.b = settings->factors ? array_writes(out[3]) : NULL;
	a.c = settings->factors ? array_writes(out[4]) : NULL;
	a.add_dgamma = settings->add_dgamma;
	a.add_dbeta = settings->add_dbeta;
	a.fixed = settings->fixed;
	if (queued(norm_backward_finalize(&kernels_device, &a)))
		return;
	for (unsigned c = 0; c < k->c; c++) {
		double scale = gamma->v[c] * deviation->v[c],
		       b = -scale * deviation->v[c] * products->v[c] / rows;
		double results[5] = {
			products->v[c] + (settings->add_dgamma ? out[0]->v[c] : 0),
			sum->v[c] + (settings->add_dbeta ? out[1]->v[c] : 0),
			scale,
			settings->fixed ? 0 : b,
			settings->fixed ? 0 : -scale * sum->v[c] / rows - b * mean->v[c],
		};
		bool written[5] = {settings->dgamma, settings->dbeta, settings->factors,
				   settings->factors, settings->factors};

		for (int i = 0; i < 5; i++)
			want(out[i])[c] = written[i] ? results[i] : out[i]->v[c];
	}
	for (int i = 0; i < 5; i++)
		expect(out[i], 1e-6, i == 0 ? "dgamma" : i == 1 ? "dbeta" : "a, b or c");
}

/* ---- z = scale x + bias + residual, with its own scale and bias if there are two norms ---- */

enum form { PLAIN, BIAS_ONLY, AFFINE, RESIDUAL, AFFINE_RESIDUAL, DUAL };

/* The test sets x. The other operands are those of the form, or NULL. */
struct affine {
	struct array *x, *residual, *scale, *bias, *scale2, *bias2;
};

static struct affine new_affine(const struct kernel_case *k, enum cuda_element element,
				enum form form)
{
	bool scale = form == AFFINE || form == AFFINE_RESIDUAL || form == DUAL;
	bool residual = form == RESIDUAL || form == AFFINE_RESIDUAL || form == DUAL;

	return (struct affine){
		.x = matrix(k, element),
		.residual = residual ? matrix(k, element) : NULL,
		.scale = scale ? new_coarse(k->c, CUDA_F32) : NULL,
		.bias = scale || form == BIAS_ONLY ? new_coarse(k->c, CUDA_F32) : NULL,
		.scale2 = form == DUAL ? new_coarse(k->c, CUDA_F32) : NULL,
		.bias2 = form == DUAL ? new_coarse(k->c, CUDA_F32) : NULL,
	};
}

static void *reads(struct array *array)
{
	return array ? array_reads(array) : NULL;
}

static void set_affine(struct norm_arguments *a, const struct affine *affine)
{
	a->residual = reads(affine->residual);
	a->scale = reads(affine->scale);
	a->bias = reads(affine->bias);
	a->scale2 = reads(affine->scale2);
	a->bias2 = reads(affine->bias2);
}

static double value(const struct array *array, uint64_t i, double otherwise)
{
	return array ? array->v[i] : otherwise;
}

static double z_of(const struct affine *affine, uint64_t i, uint32_t channels)
{
	uint64_t c = i % channels;

	return value(affine->scale, c, 1) * affine->x->v[i] + value(affine->bias, c, 0) +
	       value(affine->scale2, c, 1) * value(affine->residual, i, 0) +
	       value(affine->bias2, c, 0);
}

struct apply_case {
	enum form form;
	enum device_activation activation;
	enum { TO_Y, TO_X, TO_RESIDUAL } place;
};

static const struct apply_case apply_cases[] = {
	{PLAIN, DEVICE_IDENTITY, TO_Y},
	{PLAIN, DEVICE_RELU, TO_X},
	{BIAS_ONLY, DEVICE_RELU, TO_Y},
	{BIAS_ONLY, DEVICE_GELU, TO_X},
	{AFFINE, DEVICE_GELU, TO_Y},
	{AFFINE, DEVICE_LOGISTIC, TO_X},
	{RESIDUAL, DEVICE_LOGISTIC, TO_Y},
	{RESIDUAL, DEVICE_IDENTITY, TO_X},
	{AFFINE_RESIDUAL, DEVICE_RELU, TO_X},
	{AFFINE_RESIDUAL, DEVICE_IDENTITY, TO_Y},
	{DUAL, DEVICE_RELU, TO_Y},
	{DUAL, DEVICE_GELU, TO_X},
	{DUAL, DEVICE_RELU, TO_RESIDUAL},
};

static void norm_applied(const struct kernel_case *k, enum cuda_element element)
{
	const struct apply_case *settings = k->settings;
	struct norm_arguments a = arguments_of(k, element);
	struct affine affine = new_affine(k, element, settings->form);
	struct array *y = settings->place == TO_Y   ? new_blank(rows_of(k) * k->c, element)
			  : settings->place == TO_X ? affine.x
						    : affine.residual;

	a.activation = settings->activation;
	a.x = array_reads(affine.x);
	a.y = array_writes(y);
	set_affine(&a, &affine);
	if (queued(norm_apply(&kernels_device, &a)))
		return;
	for (uint64_t i = 0; i < y->count; i++)
		want(y)[i] = activate(z_of(&affine, i, k->c), settings->activation);
	expect(y, element_tolerance(element), "y");
}

/* ---- backward ---- */

struct backward_case {
	enum form form;
	enum device_activation activation;
	bool from_y, two, store, sum, products, add;
};

/* Combinations of operands that lowering uses. */
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

static void norm_differentiated(const struct kernel_case *k, enum cuda_element element)
{
	const struct backward_case *settings = k->settings;
	struct norm_arguments a = arguments_of(k, element);
	bool from_x = settings->activation >= DEVICE_GELU ||
		      (settings->activation == DEVICE_RELU && !settings->from_y);
	/* tolerance of fp32 sums of this many terms of up to 32 */
	double tolerance = 1e-6 * (32 + sqrt((double)rows_of(k)));
	struct affine affine = new_affine(k, element, settings->form);
	struct array *dy = matrix(k, element), *dy2 = matrix(k, element), *y = matrix(k, element);
	struct array *dz = new_blank(rows_of(k) * k->c, element);
	struct array *mean = new_coarse(k->c, CUDA_F32),
		     *deviation = new_uniform(k->c, CUDA_F32, 0.5, 2);
	struct array *sum = new_coarse(k->c, CUDA_F32), *products = new_blank(k->c, CUDA_F32);

	a.activation = settings->activation;
	a.dy = array_reads(dy);
	a.dy2 = settings->two ? array_reads(dy2) : NULL;
	a.y = settings->from_y ? array_reads(y) : NULL;
	a.x = from_x || settings->products ? array_reads(affine.x) : NULL;
	if (from_x)
		set_affine(&a, &affine);
	a.mean = settings->products ? array_reads(mean) : NULL;
	a.deviation = settings->products ? array_reads(deviation) : NULL;
	a.dz = settings->store ? array_writes(dz) : NULL;
	a.sum = settings->sum ? array_writes(sum) : NULL;
	a.products = settings->products ? array_writes(products) : NULL;
	a.add_sum = settings->add;
	a.partial = settings->sum ? array_uses(new_partial(k)) : NULL;
	if (queued(norm_backward(&kernels_device, &a)))
		return;
	for (uint32_t c = 0; c < k->c && settings->add; c++)
		want(sum)[c] = sum->v[c];
	for (uint64_t i = 0; i < dz->count; i++) {
		uint64_t c = i % k->c;
		double g = dy->v[i] + (settings->two ? dy2->v[i] : 0);

		g *= settings->from_y
			     ? y->v[i] > 0
			     : activation_grad(z_of(&affine, i, k->c), settings->activation);
		want(dz)[i] = g;
		want(sum)[c] += g;
		want(products)[c] += g * (affine.x->v[i] - mean->v[c]) * deviation->v[c];
	}
	if (settings->store)
		expect(dz, element_tolerance(element), "dz");
	if (settings->sum)
		expect(sum, tolerance, "sum dz");
	if (settings->products)
		expect(products, tolerance, "sum dz xhat");
}

struct backward_apply_case {
	bool scaled;
	enum device_activation activation;
	bool in_place;
};

static const struct backward_apply_case backward_apply_cases[] = {
	{false, DEVICE_IDENTITY, false},
	{true, DEVICE_RELU, false},
	{true, DEVICE_GELU, true},
	{true, DEVICE_LOGISTIC, false},
};

static void norm_backward_applied(const struct kernel_case *k, enum cuda_element element)
{
	const struct backward_apply_case *settings = k->settings;
	struct norm_arguments arguments = arguments_of(k, element);
	struct affine affine = new_affine(k, element, settings->scaled ? AFFINE : PLAIN);
	struct array *dz = matrix(k, element),
		     *dx = settings->in_place ? dz : new_blank(dz->count, element);
	struct array *a = new_coarse(k->c, CUDA_F32), *b = new_coarse(k->c, CUDA_F32),
		     *c = new_coarse(k->c, CUDA_F32);

	arguments.activation = settings->activation;
	arguments.dz = array_reads(dz);
	arguments.x = array_reads(affine.x);
	arguments.a = array_reads(a);
	arguments.b = array_reads(b);
	arguments.c = array_reads(c);
	arguments.dx = array_writes(dx);
	set_affine(&arguments, &affine);
	if (queued(norm_backward_apply(&kernels_device, &arguments)))
		return;
	for (uint64_t i = 0; i < dx->count; i++) {
		double g = dz->v[i];

		if (settings->scaled)
			g *= activation_grad(z_of(&affine, i, k->c), settings->activation);
		want(dx)[i] = a->v[i % k->c] * g + b->v[i % k->c] * affine.x->v[i] + c->v[i % k->c];
	}
	expect(dx, element_tolerance(element), "dx");
}

/* An infinite gradient becomes 0 where the ReLU is inactive, and passes where it is active. */
static void overflow(void)
{
	const struct kernel_case k = {.n = 4, .h = 1, .w = 1, .c = 8};
	struct norm_arguments a = arguments_of(&k, CUDA_F16);
	struct array *dy = matrix(&k, CUDA_F16), *y = matrix(&k, CUDA_F16),
		     *dz = new_blank(32, CUDA_F16);

	dy->v[3] = dy->v[9] = INFINITY;
	y->v[3] = 0;
	y->v[9] = 1;
	array_write(dy);
	array_write(y);
	a.dy = dy->data;
	a.y = y->data;
	a.dz = dz->data;
	a.activation = DEVICE_RELU;
	queued(norm_backward(&kernels_device, &a));
	for (unsigned i = 0; i < 32; i++)
		want(dz)[i] = y->v[i] > 0 ? dy->v[i] : 0;
	expect(dz, 0, "overflow");
}

static void refused(void)
{
	float memory[32];
	struct norm_arguments nothing = {.dy = memory, .rows = 4, .channels = 8};
	struct norm_arguments relu = nothing, sums = nothing;

	relu.dz = memory;
	relu.activation = DEVICE_RELU;
	sums.sum = memory;
	assert_int_equal(norm_backward(&kernels_device, &nothing), -EINVAL);
	assert_int_equal(norm_backward(&kernels_device, &relu), -EINVAL);
	assert_int_equal(norm_backward(&kernels_device, &sums), -EINVAL);
}

static const struct kernel_test tests[] = {
	CHECK(norm_statistics_sums, shapes),
	CHECK(norm_statistics_sums, many_blocks),
	CHECK_EACH(norm_finalized, vectors, finalize_cases),
	CHECK(norm_of_running, vectors),
	CHECK_EACH(norm_applied, shapes, apply_cases),
	CHECK_EACH(norm_differentiated, shapes, backward_cases),
	CHECK_EACH(norm_backward_finalized, vectors, backward_finalize_cases),
	CHECK_EACH(norm_backward_applied, shapes, backward_apply_cases),
	ONCE(grids_are_resident),
	ONCE(overflow),
	ONCE(refused),
};

static const struct apply_case relu = {AFFINE, DEVICE_RELU, TO_Y},
			       gelu = {AFFINE, DEVICE_GELU, TO_Y},
			       residual = {AFFINE_RESIDUAL, DEVICE_RELU, TO_Y},
			       two_norms = {DUAL, DEVICE_RELU, TO_Y};
static const struct backward_case bias_gradient = {PLAIN, DEVICE_IDENTITY, .sum = true},
				  relu_sums = {AFFINE, DEVICE_RELU, .sum = true, .products = true},
				  gelu_sums = {AFFINE, DEVICE_GELU, .sum = true, .products = true},
				  end_of_block = {PLAIN,           DEVICE_RELU,   .from_y = true,
						  .two = true,     .store = true, .sum = true,
						  .products = true};

/* clang-format off */
static const struct kernel_case timed[] = {
	{"norm_statistics", "112x112x64", norm_statistics_sums, 112, 112, 64},
	{"norm_statistics", "56x56x256", norm_statistics_sums, 56, 56, 256},
	{"norm_statistics", "14x14x1024", norm_statistics_sums, 14, 14, 1024},
	{"norm_statistics", "7x7x2048", norm_statistics_sums, 7, 7, 2048},
	{"norm_finalize", "256", norm_finalized, 56, 56, 256, &finalize_cases[0]},
	{"norm_finalize", "2048", norm_finalized, 7, 7, 2048, &finalize_cases[0]},
	{"norm_running", "2048", norm_of_running, 7, 7, 2048},
	{"norm_apply", "relu 112x112x64", norm_applied, 112, 112, 64, &relu},
	{"norm_apply", "relu 56x56x64", norm_applied, 56, 56, 64, &relu},
	{"norm_apply", "relu 14x14x256", norm_applied, 14, 14, 256, &relu},
	{"norm_apply", "gelu 56x56x64", norm_applied, 56, 56, 64, &gelu},
	{"norm_apply", "residual relu 56x56x256", norm_applied, 56, 56, 256, &residual},
	{"norm_apply", "residual relu 14x14x1024", norm_applied, 14, 14, 1024, &residual},
	{"norm_apply", "residual relu 7x7x2048", norm_applied, 7, 7, 2048, &residual},
	{"norm_apply", "two norms relu 56x56x256", norm_applied, 56, 56, 256, &two_norms},
	{"norm_backward", "relu from x, sums 56x56x64", norm_differentiated, 56, 56, 64, &relu_sums},
	{"norm_backward", "relu from x, sums 14x14x256", norm_differentiated, 14, 14, 256, &relu_sums},
	{"norm_backward", "gelu from x, sums 56x56x64", norm_differentiated, 56, 56, 64, &gelu_sums},
	{"norm_backward", "end of block 56x56x256", norm_differentiated, 56, 56, 256, &end_of_block},
	{"norm_backward", "end of block 14x14x1024", norm_differentiated, 14, 14, 1024, &end_of_block},
	{"norm_backward", "end of block 7x7x2048", norm_differentiated, 7, 7, 2048, &end_of_block},
	{"norm_backward", "bias 1000", norm_differentiated, 1, 1, 1000, &bias_gradient},
	{"norm_backward_finalize", "256", norm_backward_finalized, 56, 56, 256, &backward_finalize_cases[0]},
	{"norm_backward_apply", "56x56x256", norm_backward_applied, 56, 56, 256, &backward_apply_cases[0]},
	{"norm_backward_apply", "14x14x1024", norm_backward_applied, 14, 14, 1024, &backward_apply_cases[0]},
	{"norm_backward_apply", "relu from x 56x56x64", norm_backward_applied, 56, 56, 64, &backward_apply_cases[1]},
};
/* clang-format on */

KERNELS_MAIN(&cuda_kernels, tests, timed)
