/*
 * Pools, forward and backward, against plain loops in double precision. Coarse values give many
 * equal maxima.
 */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/pooling.h"
#include "trainer/device/ops.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- over windows ---- */

/* n, h, w, channels; window, stride, pad */
static const struct kernel_shape windows[] = {
	{2, 9, 7, 8, {3, 2, 1}},    {1, 1, 1, 1, {1, 1, 0}},    {3, 8, 8, 3, {2, 2, 0}},
	{1, 13, 10, 24, {3, 1, 1}}, {2, 5, 6, 10, {5, 3, 4}},   {1, 20, 17, 4, {7, 2, 3}},
	{2, 6, 6, 136, {3, 2, 1}},  {1, 3, 3, 2048, {2, 1, 0}}, {1, 18, 18, 8, {16, 1, 2}},
	{2, 5, 5, 16, {2, 3, 0}},   {2, 7, 9, 16, {2, 2, 0}},   {1, 6, 5, 8, {2, 2, 0}},
};

/*
 * A pool of one window, and what x is before the maximum: z = scale x + bias, then the activation.
 * The index of each maximum is computed here; UINT8_MAX means none yet, so windows of 256 positions
 * are not tested.
 */
struct pool {
	struct pool_arguments a;
	struct array *x, *dy, *dy2, *scale, *bias;
	uint64_t outputs;
	double *z, *largest, *g; /* g: the gradient of z, before the activation */
	uint8_t index[1 << 18];
};

static struct pool_shape shape_of(const struct kernel_case *k, enum cuda_element element)
{
	uint32_t window = k->more[0], stride = k->more[1], pad = k->more[2];

	return (struct pool_shape){.n = k->n,
				   .h = k->h,
				   .w = k->w,
				   .channels = k->c,
				   .p = (k->h + 2 * pad - window) / stride + 1,
				   .q = (k->w + 2 * pad - window) / stride + 1,
				   .window = window,
				   .stride = stride,
				   .pad = pad,
				   .element = element};
}

/*
 * Calls `visit` for every pair of an output and an element of x in its window, in the order of the
 * windows.
 */
static void for_all_windows(struct pool *p, void (*visit)(struct pool *p, uint64_t output,
							  uint64_t input, uint32_t position))
{
	const struct pool_shape *s = &p->a.shape;

	for (uint64_t i = 0; i < p->outputs; i++) {
		uint64_t c = i % s->channels, q = i / s->channels % s->q,
			 row = i / s->channels / s->q % s->p, n = i / s->channels / s->q / s->p;

		for (uint32_t place = 0; place < s->window * s->window; place++) {
			int64_t h = (int64_t)(row * s->stride + place / s->window) - s->pad,
				w = (int64_t)(q * s->stride + place % s->window) - s->pad;
			uint64_t line = n * s->h + (uint64_t)h;

			if (h >= 0 && w >= 0 && h < s->h && w < s->w)
				visit(p, i, (line * s->w + (uint64_t)w) * s->channels + c, place);
		}
	}
}

static void take_maximum(struct pool *p, uint64_t output, uint64_t input, uint32_t position)
{
	if (isnan(p->largest[output]))
		return;
	if (p->index[output] == UINT8_MAX || p->z[input] > p->largest[output] ||
	    isnan(p->z[input])) {
		p->largest[output] = p->z[input];
		p->index[output] = (uint8_t)position;
	}
}

static void route_maximum(struct pool *p, uint64_t output, uint64_t input, uint32_t position)
{
	if (p->index[output] == position)
		p->g[input] += p->dy->v[output] + (p->a.dy2 ? p->dy2->v[output] : 0);
}

enum form { PLAIN, SCALED, SCALED_RELU };

struct max_case {
	enum form form;
	bool two; /* dy2 is present */
};

static const struct max_case max_cases[] = {
	{PLAIN, false}, {PLAIN, true}, {SCALED, false}, {SCALED_RELU, true}};

static void find_maxima(struct pool *p)
{
	for (uint64_t i = 0; i < p->x->count; i++) {
		uint64_t c = i % p->a.shape.channels;

		p->z[i] = p->a.scale ? p->scale->v[c] * p->x->v[i] + p->bias->v[c] : p->x->v[i];
		if (p->a.activation == DEVICE_RELU && p->z[i] < 0)
			p->z[i] = 0;
	}
	memset(p->index, UINT8_MAX, sizeof(p->index));
	for_all_windows(p, take_maximum);
}

static struct pool *new_pool(const struct kernel_case *k, enum form form, bool two,
			     enum cuda_element element)
{
	static struct pool pool;
	struct pool_shape s = shape_of(k, element);
	uint64_t in = (uint64_t)s.n * s.h * s.w * s.channels,
		 out = (uint64_t)s.n * s.p * s.q * s.channels;

	pool = (struct pool){
		.a = {.activation = form == SCALED_RELU ? DEVICE_RELU : DEVICE_IDENTITY,
		      .shape = s},
		.x = new_coarse(in, element),
		.dy = new_coarse(out, element),
		.dy2 = new_coarse(out, element),
		.scale = new_coarse(s.channels, CUDA_F32),
		.bias = new_coarse(s.channels, CUDA_F32),
		.outputs = out,
		.z = new_doubles(in),
		.largest = new_doubles(out),
		.g = new_doubles(in),
	};
	assert_true(kernels_timing || out <= sizeof(pool.index));
	if (form != PLAIN) {
		pool.a.scale = array_reads(pool.scale);
		pool.a.bias = array_reads(pool.bias);
	}
	if (two)
		pool.a.dy2 = array_reads(pool.dy2);
	return &pool;
}

/* The operands of a backward kernel: dy, and the index of the maxima. */
static struct pool *new_pool_backward(const struct kernel_case *k, enum cuda_element element)
{
	const struct max_case *settings = k->settings;
	struct pool *p = new_pool(k, settings->form, settings->two, element);

	if (!kernels_timing) {
		find_maxima(p);
		for_all_windows(p, route_maximum);
	}
	p->a.dy = array_reads(p->dy);
	p->a.index = array_reads(new_bytes(kernels_timing ? NULL : p->index, p->outputs));
	return p;
}

static void check_max(struct pool *p, bool indexed)
{
	struct array *y = new_blank(p->outputs, p->a.shape.element),
		     *index = new_bytes(NULL, p->outputs);

	p->a.x = array_reads(p->x);
	p->a.y = array_writes(y);
	p->a.index = indexed ? array_writes(index) : NULL;
	if (queued(pool_max(&kernels_device, &p->a)))
		return;
	find_maxima(p);
	memcpy(want(y), p->largest, p->outputs * sizeof(double));
	expect(y, element_tolerance(p->a.shape.element), "y");
	if (indexed)
		expect_bytes(index, p->index, "places of the maxima");
}

static void max_forward(const struct kernel_case *k, enum cuda_element element)
{
	const struct max_case *settings = k->settings;
	struct pool *p = new_pool(k, settings->form, false, element);

	check_max(p, true);
	if (k->more[0] == POOL_WINDOW_MAX)
		check_max(new_pool(k, settings->form, false, element), false);
}

static void max_backward(const struct kernel_case *k, enum cuda_element element)
{
	struct pool *p = new_pool_backward(k, element);
	struct array *dx = new_blank(p->x->count, element);

	p->a.dx = array_writes(dx);
	if (queued(pool_max_backward(&kernels_device, &p->a)))
		return;
	memcpy(want(dx), p->g, dx->count * sizeof(double));
	expect(dx, element_tolerance(element), "dx");
}

/* Gradient of scale x + bias, the output of the norm. */
static double dz_of(const struct pool *p, uint64_t i)
{
	return p->a.activation == DEVICE_RELU && p->z[i] <= 0 ? 0 : p->g[i];
}

static void max_norm_reduce(const struct kernel_case *k, enum cuda_element element)
{
	struct pool *p = new_pool_backward(k, element);
	struct array *mean = new_coarse(k->c, CUDA_F32), *deviation = new_coarse(k->c, CUDA_F32);
	struct array *sum = new_blank(k->c, CUDA_F32), *products = new_blank(k->c, CUDA_F32);

	p->a.x = array_reads(p->x);
	p->a.mean = array_reads(mean);
	p->a.deviation = array_reads(deviation);
	p->a.sum = array_writes(sum);
	p->a.products = array_writes(products);
	p->a.partial =
		array_uses(new_bytes(NULL, row_reduce_workspace(kernels_device.multiprocessors,
								p->outputs / k->c, k->c)));
	if (queued(pool_max_norm_reduce(&kernels_device, &p->a)))
		return;
	for (uint64_t i = 0; i < p->x->count; i++) {
		uint64_t c = i % k->c;

		want(sum)[c] += dz_of(p, i);
		want(products)[c] += dz_of(p, i) * (p->x->v[i] - mean->v[c]) * deviation->v[c];
	}
	expect(sum, 1e-5, "sum dz");
	expect(products, 1e-5, "sum dz xhat");
}

static void max_norm_apply(const struct kernel_case *k, enum cuda_element element)
{
	struct pool *p = new_pool_backward(k, element);
	struct array *a = new_coarse(k->c, CUDA_F32), *b = new_coarse(k->c, CUDA_F32),
		     *c = new_coarse(k->c, CUDA_F32), *dx = new_blank(p->x->count, element);

	p->a.x = array_reads(p->x);
	p->a.a = array_reads(a);
	p->a.b = array_reads(b);
	p->a.c = array_reads(c);
	p->a.dx = array_writes(dx);
	if (queued(pool_max_norm_apply(&kernels_device, &p->a)))
		return;
	for (uint64_t i = 0; i < dx->count; i++)
		want(dx)[i] =
			a->v[i % k->c] * dz_of(p, i) + b->v[i % k->c] * p->x->v[i] + c->v[i % k->c];
	expect(dx, element_tolerance(element), "dx");
}

/*
 * A NaN is larger than any value, and the first NaN wins. If all values of a window are minus
 * infinity, the index is still in the window.
 */
static void extremes(void)
{
	const struct kernel_case k = {.n = 2, .h = 9, .w = 7, .c = 8, .more = {3, 2, 1}};

	for (unsigned way = 0; way < 2; way++) {
		struct pool *p = new_pool(&k, PLAIN, false, CUDA_F16);

		for (uint64_t i = 0; i < p->x->count; i++)
			p->x->v[i] = way           ? -INFINITY
				     : i % 11 == 3 ? NAN
				     : i % 3       ? -INFINITY
						   : INFINITY;
		array_write(p->x);
		check_max(p, true);
	}
}

static void count_window(struct pool *p, uint64_t output, uint64_t input, uint32_t position)
{
	p->largest[output]++;
	p->z[output] += p->x->v[input];
}

static void spread_window(struct pool *p, uint64_t output, uint64_t input, uint32_t position)
{
	p->g[input] += p->dy->v[output] / p->largest[output];
}

static void average_forward(const struct kernel_case *k, enum cuda_element element)
{
	struct pool *p = new_pool(k, PLAIN, false, element);
	struct array *y = new_blank(p->outputs, element);

	p->z = new_doubles(p->outputs);
	p->a.x = array_reads(p->x);
	p->a.y = array_writes(y);
	if (queued(pool_average(&kernels_device, &p->a)))
		return;
	for_all_windows(p, count_window);
	for (uint64_t i = 0; i < y->count; i++)
		want(y)[i] = p->z[i] / p->largest[i];
	expect(y, element_tolerance(element), "y");
}

static void average_backward(const struct kernel_case *k, enum cuda_element element)
{
	struct pool *p = new_pool(k, PLAIN, false, element);
	struct array *dx = new_blank(p->x->count, element);

	p->z = new_doubles(p->outputs);
	p->a.dy = array_reads(p->dy);
	p->a.dx = array_writes(dx);
	if (queued(pool_average_backward(&kernels_device, &p->a)))
		return;
	for_all_windows(p, count_window);
	for_all_windows(p, spread_window);
	memcpy(want(dx), p->g, dx->count * sizeof(double));
	expect(dx, element_tolerance(element), "dx");
}

static void refused(void)
{
	const struct pool_shape shape = {2, 9, 7, 8, 5, 4, 3, 2, 1, CUDA_F16};
	struct pool_arguments a = {.shape = shape, .activation = DEVICE_GELU};

	assert_int_equal(pool_max_norm_reduce(&kernels_device, &a), -EINVAL);
	assert_int_equal(pool_max_norm_apply(&kernels_device, &a), -EINVAL);
	assert_int_equal(pool_max(&kernels_device, &a), -EINVAL);
	a.activation = DEVICE_RELU;
	a.shape.window = POOL_WINDOW_MAX + 1;
	assert_int_equal(pool_max(&kernels_device, &a), -EINVAL);
	a.shape.window = a.shape.pad = 3;
	assert_int_equal(pool_max(&kernels_device, &a), -EINVAL);
}

/*
 * Dividers give exact quotients for the smallest and largest dividends, and on both sides of each
 * change of the quotient.
 */
static void dividers(void)
{
	for (uint32_t divisor = 1; divisor < 100000; divisor += 1 + divisor / 50) {
		struct divider d = divider_of(divisor);
		uint32_t largest = INT32_MAX / divisor;

		for (uint32_t i = 0; i < 64; i++) {
			uint32_t quotient =
				i < 32 ? i % (largest + 1) : largest - (i - 32) % largest;
			uint64_t n = (uint64_t)quotient * divisor;

			assert_int_equal(n * d.factor >> d.shift, quotient);
			if (n + divisor - 1 <= INT32_MAX)
				assert_int_equal((n + divisor - 1) * d.factor >> d.shift, quotient);
		}
	}
}

/* ---- over whole images ---- */

struct global {
	struct pool_global a;
	bool maximum;
	uint64_t outputs;
	struct array *from, *index;
};

static struct global new_global_pool(const struct kernel_case *k, enum cuda_element element,
				     bool backward)
{
	struct global g = {
		.a = {.n = k->n, .positions = k->h * k->w, .channels = k->c, .element = element},
		.maximum = *(const bool *)k->settings,
		.outputs = (uint64_t)k->n * k->c,
	};

	g.from = new_coarse(backward ? g.outputs : g.outputs * g.a.positions, element);
	g.a.from = array_reads(g.from);
	return g;
}

static void global_forward(const struct kernel_case *k, enum cuda_element element)
{
	struct global g = new_global_pool(k, element, false);
	struct array *y = new_blank(g.outputs, element), *index = new_blank(g.outputs, CUDA_F32);
	uint32_t positions = g.a.positions, *first = kernels_zeros(g.outputs * sizeof(*first));

	g.a.to = array_writes(y);
	g.a.index = g.maximum ? array_writes(index) : NULL;
	if (queued((g.maximum ? pool_global_max : pool_global_average)(&kernels_device, &g.a)))
		return;
	for (uint64_t i = 0; i < g.outputs; i++) {
		const double *image = g.from->v + i / k->c * positions * k->c + i % k->c;

		for (uint64_t p = 0; p < positions; p++) {
			want(y)[i] += image[p * k->c] / positions;
			if (image[p * k->c] > image[(uint64_t)first[i] * k->c])
				first[i] = (uint32_t)p;
		}
		if (g.maximum)
			want(y)[i] = image[(uint64_t)first[i] * k->c];
	}
	expect(y, element_tolerance(element), "y");
	if (g.maximum)
		expect_bytes(index, first, "places of the maxima");
	free(first);
}

static void global_backward(const struct kernel_case *k, enum cuda_element element)
{
	struct global g = new_global_pool(k, element, true);
	uint32_t positions = g.a.positions, *index = kernels_zeros(g.outputs * sizeof(*index));
	struct array *dx = new_blank(g.outputs * positions, element);

	for (uint64_t i = 0; i < g.outputs && index; i++)
		index[i] = (uint32_t)(kernels_uniform(9, i) * positions);
	g.a.to = array_writes(dx);
	if (g.maximum)
		g.a.index = array_reads(new_bytes(index, g.outputs * sizeof(*index)));
	if (queued((g.maximum ? pool_global_max_backward
			      : pool_global_average_backward)(&kernels_device, &g.a)))
		return;
	for (uint64_t i = 0; i < dx->count; i++) {
		uint64_t output = i / k->c / positions * k->c + i % k->c,
			 position = i / k->c % positions;

		want(dx)[i] = !g.maximum                  ? g.from->v[output] / positions
			      : position == index[output] ? g.from->v[output]
							  : 0;
	}
	expect(dx, element_tolerance(element), "dx");
	free(index);
}

static const struct max_case reduce_cases[] = {{SCALED, false}, {SCALED_RELU, true}};
static const bool maxima[] = {false, true};

/* n, positions, -, channels. In the last two a thread has more positions than it loads at once. */
static const struct kernel_shape images[] = {
	{3, 7, 7, 24},   {2, 1, 1, 8},   {4, 1, 1, 1},     {2, 65, 1, 3},   {2, 4, 4, 2048},
	{3, 10, 1, 136}, {5, 7, 1, 300}, {2, 130, 1, 136}, {1, 50, 1, 300},
};

static const struct kernel_test tests[] = {
	CHECK_EACH(max_forward, windows, max_cases),
	CHECK_EACH(max_backward, windows, max_cases),
	CHECK_EACH(max_norm_reduce, windows, reduce_cases),
	CHECK_EACH(max_norm_apply, windows, reduce_cases),
	CHECK(average_forward, windows),
	CHECK(average_backward, windows),
	CHECK_EACH(global_forward, images, maxima),
	CHECK_EACH(global_backward, images, maxima),
	ONCE(dividers),
	ONCE(extremes),
	ONCE(refused),
};

static const struct max_case plain = {PLAIN, false}, norm = {SCALED_RELU, false};

/* clang-format off */
static const struct kernel_case timed[] = {
	{"pool_max", "norm relu 3x3/2 112x112x64", max_forward, 112, 112, 64, &norm, .more = {3, 2, 1}},
	/* windows that do not overlap */
	{"pool_max", "2x2/2 31x31x64", max_forward, 31, 31, 64, &plain, .more = {2, 2, 0}},
	{"pool_max_backward", "3x3/2 112x112x64", max_backward, 112, 112, 64, &plain, .more = {3, 2, 1}},
	{"pool_max_backward", "2x2/2 31x31x64", max_backward, 31, 31, 64, &plain, .more = {2, 2, 0}},
	{"pool_max_norm_reduce", "3x3/2 112x112x64", max_norm_reduce, 112, 112, 64, &norm, .more = {3, 2, 1}},
	{"pool_max_norm_apply", "3x3/2 112x112x64", max_norm_apply, 112, 112, 64, &norm, .more = {3, 2, 1}},
	{"pool_average", "3x3/2 56x56x256", average_forward, 56, 56, 256, .more = {3, 2, 1}},
	{"pool_average_backward", "3x3/2 56x56x256", average_backward, 56, 56, 256, .more = {3, 2, 1}},
	{"pool_global_average", "7x7x2048", global_forward, 7, 7, 2048, &maxima[0]},
	{"pool_global_average_backward", "7x7x2048", global_backward, 7, 7, 2048, &maxima[0]},
	{"pool_global_max", "7x7x2048", global_forward, 7, 7, 2048, &maxima[1]},
	{"pool_global_max_backward", "7x7x2048", global_backward, 7, 7, 2048, &maxima[1]},
};
/* clang-format on */

KERNELS_MAIN(&cuda_kernels, tests, timed)
