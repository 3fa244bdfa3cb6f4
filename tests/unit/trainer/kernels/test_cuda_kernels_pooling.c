/*
 * Pools, forward and backward, against plain loops in double precision. Coarse values give many
 * equal maxima.
 */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/pooling.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pool_test {
	struct pool_shape shape;
	struct array x, y, dy, dy2, dx, index; /* index holds bytes */
	struct array scale, bias, mean, deviation, a, b, c;
	struct array sum, products, partial;
	double *z; /* of x */
	double *expected_y, *expected_dx;
	uint8_t *expected_index;
};

/* n, h, w, channels, window, stride, pad */
static const uint32_t shapes[][7] = {
	{2, 9, 7, 8, 3, 2, 1},    {1, 1, 1, 1, 1, 1, 0},    {3, 8, 8, 3, 2, 2, 0},
	{1, 13, 10, 24, 3, 1, 1}, {2, 5, 6, 10, 5, 3, 4},   {1, 20, 17, 4, 7, 2, 3},
	{2, 6, 6, 136, 3, 2, 1},  {1, 3, 3, 2048, 2, 1, 0}, {1, 18, 18, 8, 16, 1, 2},
	{2, 5, 5, 16, 2, 3, 0},   {2, 7, 9, 16, 2, 2, 0},   {1, 6, 5, 8, 2, 2, 0},
};

#define SHAPES (sizeof(shapes) / sizeof(*shapes))

static struct pool_test pool_test_new(const uint32_t *s, enum cuda_element element)
{
	struct pool_test t = {.shape = {s[0], s[1], s[2], s[3], (s[1] + 2 * s[6] - s[4]) / s[5] + 1,
					(s[2] + 2 * s[6] - s[4]) / s[5] + 1, s[4], s[5], s[6],
					element}};
	uint64_t in = (uint64_t)s[0] * s[1] * s[2] * s[3],
		 out = (uint64_t)s[0] * t.shape.p * t.shape.q * s[3];
	struct array *vectors[] = {&t.scale, &t.bias, &t.mean, &t.deviation, &t.a, &t.b, &t.c};

	t.x = array_coarse(in, element, 1);
	t.y = array_blank(out, element);
	t.dy = array_coarse(out, element, 2);
	t.dy2 = array_coarse(out, element, 3);
	t.dx = array_blank(in, element);
	t.index = array_bytes(NULL, out);
	for (unsigned i = 0; i < 7; i++)
		*vectors[i] = array_coarse(s[3], CUDA_F32, 10 + i);
	t.sum = array_blank(s[3], CUDA_F32);
	t.products = array_blank(s[3], CUDA_F32);
	t.partial = array_bytes(
		NULL, columns_workspace(kernels_device.multiprocessors, out / s[3], s[3]));
	t.z = kernels_zeros(in * sizeof(double));
	t.expected_y = kernels_zeros(out * sizeof(double));
	t.expected_dx = kernels_zeros(in * sizeof(double));
	t.expected_index = kernels_zeros(out);
	return t;
}

static void pool_test_free(struct pool_test *t)
{
	struct array *arrays[] = {&t->x,    &t->y,         &t->dy,       &t->dy2,
				  &t->dx,   &t->index,     &t->scale,    &t->bias,
				  &t->mean, &t->deviation, &t->a,        &t->b,
				  &t->c,    &t->sum,       &t->products, &t->partial};

	for (unsigned i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		array_free(arrays[i]);
	free(t->z);
	free(t->expected_y);
	free(t->expected_dx);
	free(t->expected_index);
}

typedef void (*window_visit)(struct pool_test *t, uint64_t output, uint64_t input,
			     uint32_t position);

/* Calls `visit` for each output and each element of x in its window, in the order of windows. */
static void for_all_windows(struct pool_test *t, window_visit visit)
{
	const struct pool_shape *s = &t->shape;

	for (uint64_t i = 0; i < t->y.count; i++) {
		uint64_t c = i % s->channels, q = i / s->channels % s->q,
			 p = i / s->channels / s->q % s->p;
		uint64_t n = i / s->channels / s->q / s->p;

		for (uint32_t r = 0; r < s->window; r++) {
			for (uint32_t k = 0; k < s->window; k++) {
				int64_t h = (int64_t)(p * s->stride + r) - s->pad,
					w = (int64_t)(q * s->stride + k) - s->pad;

				if (h >= 0 && w >= 0 && h < s->h && w < s->w)
					visit(t, i,
					      ((n * s->h + (uint64_t)h) * s->w + (uint64_t)w) *
							      s->channels +
						      c,
					      r * s->window + k);
			}
		}
	}
}

static void take_maximum(struct pool_test *t, uint64_t output, uint64_t input, uint32_t position)
{
	if (isnan(t->expected_y[output]))
		return;
	if (t->expected_index[output] == UINT8_MAX || t->z[input] > t->expected_y[output] ||
	    isnan(t->z[input])) {
		t->expected_y[output] = t->z[input];
		t->expected_index[output] = (uint8_t)position;
	}
}

/*
 * Computes t->z, the maxima and their positions. UINT8_MAX means none yet; windows of 256 positions
 * are not tested.
 */
static void reference_max(struct pool_test *t, bool scaled, enum device_activation activation)
{
	for (uint64_t i = 0; i < t->x.count; i++) {
		uint64_t c = i % t->shape.channels;

		t->z[i] = scaled ? t->scale.v[c] * t->x.v[i] + t->bias.v[c] : t->x.v[i];
		if (scaled && activation == DEVICE_RELU && t->z[i] < 0)
			t->z[i] = 0;
	}
	memset(t->expected_index, UINT8_MAX, t->y.count);
	memset(t->expected_y, 0, t->y.count * sizeof(double));
	for_all_windows(t, take_maximum);
}

static bool two_gradients;

static void route_maximum(struct pool_test *t, uint64_t output, uint64_t input, uint32_t position)
{
	if (t->expected_index[output] == position)
		t->expected_dx[input] += t->dy.v[output] + (two_gradients ? t->dy2.v[output] : 0);
}

static void run_max(struct pool_test *t, bool scaled, enum device_activation activation,
		    bool indexed)
{
	struct pool_arguments max = {
		.x = array_reads(&t->x),
		.scale = scaled ? array_reads(&t->scale) : NULL,
		.bias = scaled ? array_reads(&t->bias) : NULL,
		.activation = activation,
		.y = array_writes(&t->y),
		.index = indexed ? array_writes(&t->index) : NULL,
		.shape = t->shape,
	};

	assert_int_equal(pool_max(&kernels_device, &max), 0);
}

static void check_max(struct pool_test *t, bool scaled, enum device_activation activation)
{
	uint8_t *index = kernels_zeros(t->y.count);

	reference_max(t, scaled, activation);
	if (t->shape.window == POOL_WINDOW_MAX)
		run_max(t, scaled, activation, false);
	run_max(t, scaled, activation, true);
	array_expect(&t->y, t->expected_y, element_tolerance(t->shape.element),
		     "max of window %u, %u channels", t->shape.window, t->shape.channels);
	array_read_bytes(&t->index, index);
	if (memcmp(index, t->expected_index, t->y.count) != 0)
		fail_msg("places of the maxima of window %u, %u channels differ", t->shape.window,
			 t->shape.channels);
	free(index);
}

static void check_max_backward(struct pool_test *t, bool two)
{
	struct pool_arguments backward = {
		.dy = array_reads(&t->dy),
		.dy2 = two ? array_reads(&t->dy2) : NULL,
		.index = array_reads(&t->index),
		.dx = array_writes(&t->dx),
		.shape = t->shape,
	};

	assert_int_equal(pool_max_backward(&kernels_device, &backward), 0);
	if (kernels_timing)
		return;
	two_gradients = two;
	memset(t->expected_dx, 0, t->x.count * sizeof(double));
	for_all_windows(t, route_maximum);
	array_expect(&t->dx, t->expected_dx, element_tolerance(t->shape.element),
		     "max backward of window %u, %u channels", t->shape.window, t->shape.channels);
}

static void check_norm_reduce(struct pool_test *t, enum device_activation activation, bool two)
{
	uint32_t channels = t->shape.channels;
	double *sums = kernels_zeros(channels * sizeof(double)),
	       *products = kernels_zeros(channels * sizeof(double));
	struct pool_arguments reduce = {
		.dy = array_reads(&t->dy),
		.dy2 = two ? array_reads(&t->dy2) : NULL,
		.index = array_reads(&t->index),
		.x = array_reads(&t->x),
		.scale = array_reads(&t->scale),
		.bias = array_reads(&t->bias),
		.mean = array_reads(&t->mean),
		.deviation = array_reads(&t->deviation),
		.activation = activation,
		.sum = array_writes(&t->sum),
		.products = array_writes(&t->products),
		.partial = array_uses(&t->partial),
		.shape = t->shape,
	};

	assert_int_equal(pool_max_norm_reduce(&kernels_device, &reduce), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < t->x.count; i++) {
		uint64_t c = i % channels;
		double dz = activation == DEVICE_RELU && t->z[i] <= 0 ? 0 : t->expected_dx[i];

		sums[c] += dz;
		products[c] += dz * (t->x.v[i] - t->mean.v[c]) * t->deviation.v[c];
	}
	array_expect(&t->sum, sums, 1e-5, "sum dz under a pool of window %u, %u channels",
		     t->shape.window, channels);
	array_expect(&t->products, products, 1e-5,
		     "sum dz xhat under a pool of window %u, %u channels", t->shape.window,
		     channels);
	free(sums);
	free(products);
}

static void check_norm_apply(struct pool_test *t, enum device_activation activation, bool two)
{
	struct pool_arguments apply = {
		.dy = array_reads(&t->dy),
		.dy2 = two ? array_reads(&t->dy2) : NULL,
		.index = array_reads(&t->index),
		.x = array_reads(&t->x),
		.scale = array_reads(&t->scale),
		.bias = array_reads(&t->bias),
		.a = array_reads(&t->a),
		.b = array_reads(&t->b),
		.c = array_reads(&t->c),
		.activation = activation,
		.dx = array_writes(&t->dx),
		.shape = t->shape,
	};

	assert_int_equal(pool_max_norm_apply(&kernels_device, &apply), 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < t->x.count; i++) {
		uint64_t c = i % t->shape.channels;
		double dz = activation == DEVICE_RELU && t->z[i] <= 0 ? 0 : t->expected_dx[i];

		t->expected_dx[i] = t->a.v[c] * dz + t->b.v[c] * t->x.v[i] + t->c.v[c];
	}
	array_expect(&t->dx, t->expected_dx, element_tolerance(t->shape.element),
		     "dx under a pool of window %u, %u channels", t->shape.window,
		     t->shape.channels);
}

static void check_max_all(struct pool_test *t)
{
	check_max(t, false, DEVICE_IDENTITY);
	check_max_backward(t, false);
	check_max_backward(t, true);
	for (int activation = DEVICE_IDENTITY; activation <= DEVICE_RELU; activation++) {
		check_max(t, true, (enum device_activation)activation);
		check_max_backward(t, activation == DEVICE_RELU);
		check_norm_reduce(t, (enum device_activation)activation, activation == DEVICE_RELU);
		check_norm_apply(t, (enum device_activation)activation, activation == DEVICE_RELU);
	}
}

static double window_count[1 << 16];

static void count_window(struct pool_test *t, uint64_t output, uint64_t input, uint32_t position)
{
	window_count[output]++;
	t->expected_y[output] += t->x.v[input];
}

static void spread_window(struct pool_test *t, uint64_t output, uint64_t input, uint32_t position)
{
	t->expected_dx[input] += t->dy.v[output] / window_count[output];
}

static void run_average(struct pool_test *t, bool backward)
{
	struct pool_arguments average = {
		.x = backward ? NULL : array_reads(&t->x),
		.y = backward ? NULL : array_writes(&t->y),
		.dy = backward ? array_reads(&t->dy) : NULL,
		.dx = backward ? array_writes(&t->dx) : NULL,
		.shape = t->shape,
	};

	assert_int_equal(
		(backward ? pool_average_backward : pool_average)(&kernels_device, &average), 0);
}

static void check_average(struct pool_test *t)
{
	assert_true(t->y.count <= sizeof(window_count) / sizeof(*window_count));
	memset(window_count, 0, sizeof(window_count));
	for_all_windows(t, count_window);
	for_all_windows(t, spread_window);
	for (uint64_t i = 0; i < t->y.count; i++)
		t->expected_y[i] /= window_count[i];
	run_average(t, false);
	array_expect(&t->y, t->expected_y, element_tolerance(t->shape.element),
		     "mean of window %u, %u channels", t->shape.window, t->shape.channels);
	run_average(t, true);
	array_expect(&t->dx, t->expected_dx, element_tolerance(t->shape.element),
		     "mean backward of window %u, %u channels", t->shape.window, t->shape.channels);
}

/* Quotients of the smallest and largest dividends, on both sides of each change. */
static void test_dividers(void **state)
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

static void for_all_shapes(void (*check)(struct pool_test *t))
{
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int element = 0; element < ELEMENTS; element++) {
			for (unsigned i = 0; i < SHAPES; i++) {
				struct pool_test t =
					pool_test_new(shapes[i], (enum cuda_element)element);

				check(&t);
				pool_test_free(&t);
			}
		}
	}
}

static void test_max(void **state)
{
	for_all_shapes(check_max_all);
}

static void test_average(void **state)
{
	for_all_shapes(check_average);
}

/*
 * A NaN is the largest value, and the first one wins; a window of only minus infinity has a
 * position too.
 */
static void test_extremes(void **state)
{
	struct pool_test t = pool_test_new(shapes[0], CUDA_F16);

	for (uint64_t i = 0; i < t.x.count; i++)
		t.x.v[i] = i % 11 == 3 ? NAN : i % 3 ? -INFINITY : INFINITY;
	array_write(&t.x);
	check_max(&t, false, DEVICE_IDENTITY);
	for (uint64_t i = 0; i < t.x.count; i++)
		t.x.v[i] = -INFINITY;
	array_write(&t.x);
	check_max(&t, false, DEVICE_IDENTITY);
	pool_test_free(&t);
}

static void test_refused(void **state)
{
	struct pool_test t = pool_test_new(shapes[0], CUDA_F16);
	struct pool_arguments max = {.x = t.x.data,
				     .scale = t.scale.data,
				     .bias = t.bias.data,
				     .y = t.y.data,
				     .shape = t.shape};
	struct pool_arguments reduce = {.shape = t.shape, .activation = DEVICE_GELU};
	struct pool_arguments apply = {.shape = t.shape, .activation = DEVICE_GELU};

	assert_int_equal(pool_max_norm_reduce(&kernels_device, &reduce), -EINVAL);
	assert_int_equal(pool_max_norm_apply(&kernels_device, &apply), -EINVAL);
	max.activation = DEVICE_GELU;
	assert_int_equal(pool_max(&kernels_device, &max), -EINVAL);
	max.activation = DEVICE_RELU;
	max.shape.window = POOL_WINDOW_MAX + 1;
	assert_int_equal(pool_max(&kernels_device, &max), -EINVAL);
	max.shape.window = max.shape.pad = 3;
	assert_int_equal(pool_max(&kernels_device, &max), -EINVAL);
	pool_test_free(&t);
}

/* ---- over whole images ---- */

/* n, positions, channels. In the last two a thread has more positions than it loads at once. */
static const uint32_t global_shapes[][3] = {{3, 49, 24}, {2, 1, 8},     {4, 1, 1},
					    {2, 65, 3},  {2, 16, 2048}, {3, 10, 136},
					    {5, 7, 300}, {2, 130, 136}, {1, 50, 300}};

struct global_test {
	uint32_t n, positions, channels;
	enum cuda_element element;
	bool maximum;
	struct array x, y, dy, dx, index;
};

static struct global_test global_test_new(const uint32_t *shape, enum cuda_element element,
					  bool maximum)
{
	uint32_t n = shape[0], positions = shape[1], channels = shape[2];
	uint64_t in = (uint64_t)n * positions * channels, out = (uint64_t)n * channels;

	return (struct global_test){
		.n = n,
		.positions = positions,
		.channels = channels,
		.element = element,
		.maximum = maximum,
		.x = array_coarse(in, element, 1),
		.y = array_blank(out, element),
		.dy = array_coarse(out, element, 2),
		.dx = array_blank(in, element),
		.index = array_bytes(NULL, out * sizeof(uint32_t)),
	};
}

static void global_test_free(struct global_test *t)
{
	array_free(&t->x);
	array_free(&t->y);
	array_free(&t->dy);
	array_free(&t->dx);
	array_free(&t->index);
}

static void run_global(struct global_test *t, bool backward)
{
	struct pool_global a = {
		.from = array_reads(backward ? &t->dy : &t->x),
		.to = array_writes(backward ? &t->dx : &t->y),
		.index = t->maximum ? array_writes(&t->index) : NULL,
		.n = t->n,
		.positions = t->positions,
		.channels = t->channels,
		.element = t->element,
	};
	int r;

	if (backward)
		r = (t->maximum ? pool_global_max_backward
				: pool_global_average_backward)(&kernels_device, &a);
	else
		r = (t->maximum ? pool_global_max : pool_global_average)(&kernels_device, &a);
	assert_int_equal(r, 0);
}

static void check_global(struct global_test *t)
{
	uint32_t positions = t->positions, channels = t->channels;
	uint64_t in = t->x.count, out = t->y.count;
	bool maximum = t->maximum;
	uint32_t *got = kernels_zeros(out * sizeof(*got)),
		 *first = kernels_zeros(out * sizeof(*first));
	double *expected = kernels_zeros(out * sizeof(double)),
	       *expected_dx = kernels_zeros(in * sizeof(double));

	for (uint64_t i = 0; i < out; i++) {
		const double *image = t->x.v + i / channels * positions * channels + i % channels;

		for (uint32_t p = 0; p < positions; p++) {
			expected[i] += image[(uint64_t)p * channels] / positions;
			if (image[(uint64_t)p * channels] > image[(uint64_t)first[i] * channels])
				first[i] = p;
		}
		if (maximum)
			expected[i] = image[(uint64_t)first[i] * channels];
		for (uint32_t p = 0; p < positions; p++)
			expected_dx[i / channels * positions * channels + (uint64_t)p * channels +
				    i % channels] =
				maximum ? (p == first[i] ? t->dy.v[i] : 0) : t->dy.v[i] / positions;
	}
	run_global(t, false);
	array_expect(&t->y, expected, element_tolerance(t->element),
		     "over %u positions, %u channels", positions, channels);
	if (maximum) {
		array_read_bytes(&t->index, got);
		if (memcmp(got, first, out * sizeof(*got)) != 0)
			fail_msg("places of the maxima over %u positions, %u channels differ",
				 positions, channels);
	}
	run_global(t, true);
	array_expect(&t->dx, expected_dx, element_tolerance(t->element),
		     "backward over %u positions, %u channels", positions, channels);
	free(got);
	free(first);
	free(expected);
	free(expected_dx);
}

static void check_global_shape(const uint32_t *shape, enum cuda_element element, bool maximum)
{
	struct global_test t = global_test_new(shape, element, maximum);

	check_global(&t);
	global_test_free(&t);
}

static void test_global(void **state)
{
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int element = 0; element < ELEMENTS; element++)
			for (unsigned i = 0; i < sizeof(global_shapes) / sizeof(*global_shapes);
			     i++) {
				check_global_shape(global_shapes[i], (enum cuda_element)element,
						   false);
				check_global_shape(global_shapes[i], (enum cuda_element)element,
						   true);
			}
	}
}

/* ---- timed ---- */

enum pass { FORWARD, BACKWARD, NORM_REDUCE, NORM_APPLY };

struct window_case {
	uint32_t window, stride, pad;
	enum pass pass;
	bool scaled; /* forward: with scale, bias and ReLU */
};

static struct pool_test window_test(const struct kernel_case *k, enum cuda_element element)
{
	const struct window_case *how = k->how;
	const uint32_t shape[] = {k->n, k->h, k->w, k->c, how->window, how->stride, how->pad};

	return pool_test_new(shape, element);
}

static void maximum(const struct kernel_case *k, enum cuda_element element)
{
	const struct window_case *how = k->how;
	struct pool_test t = window_test(k, element);

	if (!kernels_timing)
		check_max_all(&t);
	else if (how->pass == FORWARD)
		run_max(&t, how->scaled, DEVICE_RELU, true);
	else if (how->pass == BACKWARD)
		check_max_backward(&t, false);
	else if (how->pass == NORM_REDUCE)
		check_norm_reduce(&t, DEVICE_RELU, false);
	else
		check_norm_apply(&t, DEVICE_RELU, false);
	pool_test_free(&t);
}

static void average(const struct kernel_case *k, enum cuda_element element)
{
	const struct window_case *how = k->how;
	struct pool_test t = window_test(k, element);

	if (kernels_timing)
		run_average(&t, how->pass == BACKWARD);
	else
		check_average(&t);
	pool_test_free(&t);
}

struct global_case {
	enum pass pass;
	bool maximum;
};

static void global(const struct kernel_case *k, enum cuda_element element)
{
	const struct global_case *how = k->how;
	const uint32_t shape[] = {k->n, k->h * k->w, k->c};
	struct global_test t = global_test_new(shape, element, how->maximum);

	if (kernels_timing)
		run_global(&t, how->pass == BACKWARD);
	else
		check_global(&t);
	global_test_free(&t);
}

static const struct window_case stem = {3, 2, 1, FORWARD, true}, stem_back = {3, 2, 1, BACKWARD},
				stem_reduce = {3, 2, 1, NORM_REDUCE},
				stem_apply = {3, 2, 1, NORM_APPLY},
				/* windows that do not overlap */
	pairs = {2, 2, 0, FORWARD}, pairs_back = {2, 2, 0, BACKWARD};
static const struct global_case means = {FORWARD}, means_back = {BACKWARD},
				maxima = {FORWARD, true}, maxima_back = {BACKWARD, true};

/* clang-format off */
static const struct kernel_case timed[] = {
	{"pool_max", "norm relu 3x3/2 112x112x64", maximum, 112, 112, 64, &stem},
	{"pool_max", "2x2/2 31x31x64", maximum, 31, 31, 64, &pairs},
	{"pool_max_backward", "3x3/2 112x112x64", maximum, 112, 112, 64, &stem_back},
	{"pool_max_backward", "2x2/2 31x31x64", maximum, 31, 31, 64, &pairs_back},
	{"pool_max_norm_reduce", "3x3/2 112x112x64", maximum, 112, 112, 64, &stem_reduce},
	{"pool_max_norm_apply", "3x3/2 112x112x64", maximum, 112, 112, 64, &stem_apply},
	{"pool_average", "3x3/2 56x56x256", average, 56, 56, 256, &stem},
	{"pool_average_backward", "3x3/2 56x56x256", average, 56, 56, 256, &stem_back},
	{"pool_global_average", "7x7x2048", global, 7, 7, 2048, &means},
	{"pool_global_average_backward", "7x7x2048", global, 7, 7, 2048, &means_back},
	{"pool_global_max", "7x7x2048", global, 7, 7, 2048, &maxima},
	{"pool_global_max_backward", "7x7x2048", global, 7, 7, 2048, &maxima_back},
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
		cmocka_unit_test(test_dividers), cmocka_unit_test(test_max),
		cmocka_unit_test(test_average),  cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_refused),  cmocka_unit_test(test_global),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: pool", tests, kernels_test_open,
					   kernels_test_close);
}
