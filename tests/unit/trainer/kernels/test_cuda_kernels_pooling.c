/*
 * Pools, forward and backward, against plain loops in double precision. Coarse values make many
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
	struct array x, y, dy, dy2, dx, index; /* index as bytes */
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

static void *zeros(uint64_t bytes)
{
	void *memory = calloc(bytes ? bytes : 1, 1);

	assert_non_null(memory);
	return memory;
}

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
	t.z = zeros(in * sizeof(double));
	t.expected_y = zeros(out * sizeof(double));
	t.expected_dx = zeros(in * sizeof(double));
	t.expected_index = zeros(out);
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

/* Calls for every pair of an output and an element of x in its window, windows in order. */
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
 * t->z, maxima and their places; UINT8_MAX stands for "none yet", windows of 256 positions are not
 * tested.
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
	struct pool_max max = {
		.x = t->x.data,
		.scale = scaled ? t->scale.data : NULL,
		.bias = scaled ? t->bias.data : NULL,
		.activation = activation,
		.y = t->y.data,
		.index = indexed ? t->index.data : NULL,
		.shape = t->shape,
	};

	assert_int_equal(pool_max(&kernels_device, &max), 0);
}

static void check_max(struct pool_test *t, bool scaled, enum device_activation activation)
{
	uint8_t *index = zeros(t->y.count);

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
	struct pool_max_backward backward = {
		.dy = t->dy.data,
		.dy2 = two ? t->dy2.data : NULL,
		.index = t->index.data,
		.dx = t->dx.data,
		.shape = t->shape,
	};

	two_gradients = two;
	memset(t->expected_dx, 0, t->x.count * sizeof(double));
	for_all_windows(t, route_maximum);
	assert_int_equal(pool_max_backward(&kernels_device, &backward), 0);
	array_expect(&t->dx, t->expected_dx, element_tolerance(t->shape.element),
		     "max backward of window %u, %u channels", t->shape.window, t->shape.channels);
}

static void check_norm_reduce(struct pool_test *t, enum device_activation activation, bool two)
{
	uint32_t channels = t->shape.channels;
	double *sums = zeros(channels * sizeof(double)),
	       *products = zeros(channels * sizeof(double));
	struct pool_max_norm_reduce reduce = {
		.dy = t->dy.data,
		.dy2 = two ? t->dy2.data : NULL,
		.index = t->index.data,
		.x = t->x.data,
		.scale = t->scale.data,
		.bias = t->bias.data,
		.mean = t->mean.data,
		.deviation = t->deviation.data,
		.activation = activation,
		.sum = t->sum.data,
		.products = t->products.data,
		.partial = t->partial.data,
		.shape = t->shape,
	};

	for (uint64_t i = 0; i < t->x.count; i++) {
		uint64_t c = i % channels;
		double dz = activation == DEVICE_RELU && t->z[i] <= 0 ? 0 : t->expected_dx[i];

		sums[c] += dz;
		products[c] += dz * (t->x.v[i] - t->mean.v[c]) * t->deviation.v[c];
	}
	assert_int_equal(pool_max_norm_reduce(&kernels_device, &reduce), 0);
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
	struct pool_max_norm_apply apply = {
		.dy = t->dy.data,
		.dy2 = two ? t->dy2.data : NULL,
		.index = t->index.data,
		.x = t->x.data,
		.scale = t->scale.data,
		.bias = t->bias.data,
		.a = t->a.data,
		.b = t->b.data,
		.c = t->c.data,
		.activation = activation,
		.dx = t->dx.data,
		.shape = t->shape,
	};

	for (uint64_t i = 0; i < t->x.count; i++) {
		uint64_t c = i % t->shape.channels;
		double dz = activation == DEVICE_RELU && t->z[i] <= 0 ? 0 : t->expected_dx[i];

		t->expected_dx[i] = t->a.v[c] * dz + t->b.v[c] * t->x.v[i] + t->c.v[c];
	}
	assert_int_equal(pool_max_norm_apply(&kernels_device, &apply), 0);
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

static void check_average(struct pool_test *t)
{
	struct pool_average forward = {.from = t->x.data, .to = t->y.data, .shape = t->shape};
	struct pool_average backward = {.from = t->dy.data, .to = t->dx.data, .shape = t->shape};

	assert_true(t->y.count <= sizeof(window_count) / sizeof(*window_count));
	memset(window_count, 0, sizeof(window_count));
	for_all_windows(t, count_window);
	for_all_windows(t, spread_window);
	for (uint64_t i = 0; i < t->y.count; i++)
		t->expected_y[i] /= window_count[i];
	assert_int_equal(pool_average(&kernels_device, &forward), 0);
	array_expect(&t->y, t->expected_y, element_tolerance(t->shape.element),
		     "mean of window %u, %u channels", t->shape.window, t->shape.channels);
	assert_int_equal(pool_average_backward(&kernels_device, &backward), 0);
	array_expect(&t->dx, t->expected_dx, element_tolerance(t->shape.element),
		     "mean backward of window %u, %u channels", t->shape.window, t->shape.channels);
}

/* Quotients next to where they change, and of the largest numbers. */
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

/* A NaN is the largest, and the first one stays; all of minus infinity has a place, too. */
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
	struct pool_max max = {.x = t.x.data,
			       .scale = t.scale.data,
			       .bias = t.bias.data,
			       .y = t.y.data,
			       .shape = t.shape};
	struct pool_max_norm_reduce reduce = {.shape = t.shape, .activation = DEVICE_GELU};
	struct pool_max_norm_apply apply = {.shape = t.shape, .activation = DEVICE_GELU};

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

/* n, positions, channels. The last two: a thread has more positions than it loads at once. */
static const uint32_t global_shapes[][3] = {{3, 49, 24}, {2, 1, 8},     {4, 1, 1},
					    {2, 65, 3},  {2, 16, 2048}, {3, 10, 136},
					    {5, 7, 300}, {2, 130, 136}, {1, 50, 300}};

static void check_global(const uint32_t *shape, enum cuda_element element, bool maximum)
{
	uint32_t n = shape[0], positions = shape[1], channels = shape[2];
	uint64_t in = (uint64_t)n * positions * channels, out = (uint64_t)n * channels;
	struct array x = array_coarse(in, element, 1), y = array_blank(out, element),
		     dy = array_coarse(out, element, 2), dx = array_blank(in, element),
		     index = array_bytes(NULL, out * sizeof(uint32_t));
	uint32_t *got = zeros(out * sizeof(*got)), *first = zeros(out * sizeof(*first));
	double *expected = zeros(out * sizeof(double)), *expected_dx = zeros(in * sizeof(double));
	struct pool_global forward = {x.data,    y.data,   index.data, n,
				      positions, channels, element,    {0}};
	struct pool_global backward = {dy.data,   dx.data,  index.data, n,
				       positions, channels, element,    {0}};

	for (uint64_t i = 0; i < out; i++) {
		const double *image = x.v + i / channels * positions * channels + i % channels;

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
				maximum ? (p == first[i] ? dy.v[i] : 0) : dy.v[i] / positions;
	}
	assert_int_equal(
		(maximum ? pool_global_max : pool_global_average)(&kernels_device, &forward), 0);
	array_expect(&y, expected, element_tolerance(element), "over %u positions, %u channels",
		     positions, channels);
	if (maximum) {
		array_read_bytes(&index, got);
		if (memcmp(got, first, out * sizeof(*got)) != 0)
			fail_msg("places of the maxima over %u positions, %u channels differ",
				 positions, channels);
	}
	assert_int_equal((maximum ? pool_global_max_backward
				  : pool_global_average_backward)(&kernels_device, &backward),
			 0);
	array_expect(&dx, expected_dx, element_tolerance(element),
		     "backward over %u positions, %u channels", positions, channels);
	free(got);
	free(first);
	free(expected);
	free(expected_dx);
	array_free(&x);
	array_free(&y);
	array_free(&dy);
	array_free(&dx);
	array_free(&index);
}

static void test_global(void **state)
{
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int element = 0; element < ELEMENTS; element++)
			for (unsigned i = 0; i < sizeof(global_shapes) / sizeof(*global_shapes);
			     i++) {
				check_global(global_shapes[i], (enum cuda_element)element, false);
				check_global(global_shapes[i], (enum cuda_element)element, true);
			}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dividers), cmocka_unit_test(test_max),
		cmocka_unit_test(test_average),  cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_refused),  cmocka_unit_test(test_global),
	};

	return cmocka_run_group_tests_name("kernels: pool", tests, kernels_test_open,
					   kernels_test_close);
}
