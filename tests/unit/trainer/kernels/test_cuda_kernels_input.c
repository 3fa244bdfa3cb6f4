/* The input against its definition in double precision. */
#include "tests/unit/trainer/kernels/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/input.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float means[4] = {123.5f, 0, 17.25f, 99}, deviations[4] = {58.5f, 1, 64, 0.5f};

struct input_case {
	uint32_t n, h, w, channels, padded;
	enum device_element batch;
	uint32_t batch_channels, count;
	bool flip;
};

static const struct input_case input_cases[] = {
	/* whole groups of pixels, from 3 and 4 bytes per pixel */
	{2, 3, 8, 3, 4, DEVICE_ELEMENT_U8, 3, 2, false},
	{3, 2, 12, 3, 4, DEVICE_ELEMENT_U8, 3, 3, true},
	{3, 2, 4, 3, 4, DEVICE_ELEMENT_U8, 4, 2, false},
	{2, 5, 8, 4, 4, DEVICE_ELEMENT_U8, 4, 2, true},
	{2, 5, 8, 1, 4, DEVICE_ELEMENT_U8, 3, 1, true},
	/* one pixel at a time */
	{2, 3, 7, 3, 4, DEVICE_ELEMENT_U8, 3, 2, true},
	{2, 3, 5, 3, 4, DEVICE_ELEMENT_U8, 4, 1, false},
	{1, 2, 8, 3, 3, DEVICE_ELEMENT_U8, 3, 1, false},
	{2, 2, 3, 1, 1, DEVICE_ELEMENT_U8, 1, 2, true},
	{2, 4, 4, 3, 8, DEVICE_ELEMENT_U8, 3, 2, false},
	{2, 3, 8, 3, 4, DEVICE_ELEMENT_F16, 3, 2, false},
	{2, 3, 8, 3, 4, DEVICE_ELEMENT_BF16, 4, 2, true},
	{3, 3, 5, 16, 16, DEVICE_ELEMENT_F32, 16, 2, true},
};

static const enum cuda_element of_batch[] = {[DEVICE_ELEMENT_F16] = CUDA_F16,
					     [DEVICE_ELEMENT_BF16] = CUDA_BF16,
					     [DEVICE_ELEMENT_F32] = CUDA_F32};

/* Returns the batch in GPU memory; *ret_values are its numbers. */
static struct array make_batch(const struct input_case *k, double **ret_values)
{
	uint64_t count = (uint64_t)k->count * k->h * k->w * k->batch_channels;
	double *values = kernels_zeros(count * sizeof(*values));
	uint8_t *bytes = kernels_zeros(count);
	struct array batch;

	*ret_values = values;
	if (kernels_timing)
		return array_bytes(NULL, count);
	for (uint64_t i = 0; i < count; i++)
		values[i] = bytes[i] = (uint8_t)(kernels_uniform(1, i) * 256);
	if (k->batch == DEVICE_ELEMENT_U8) {
		batch = array_bytes(bytes, count);
	} else {
		batch = array_coarse(count, of_batch[k->batch], 1);
		memcpy(values, batch.v, count * sizeof(*values));
	}
	free(bytes);
	return batch;
}

/* Tables in GPU memory that leave a batch unchanged. */
struct tables {
	struct array blends, rows, columns;
};

static struct array make_taps(uint32_t count)
{
	struct device_tap *taps = calloc(count, sizeof(*taps));
	struct array array;

	for (uint32_t i = 0; i < count; i++)
		taps[i] = (struct device_tap){i, 1, {1}};
	array = array_bytes(taps, count * sizeof(*taps));
	free(taps);
	return array;
}

static struct tables make_tables(const struct input_case *k, struct step_arguments *step)
{
	struct device_blend *blends = calloc(k->n, sizeof(*blends));
	struct tables tables = {.rows = make_taps(k->h), .columns = make_taps(k->w)};

	for (uint32_t i = 0; i < k->n; i++)
		blends[i] = (struct device_blend){.partner = i, .share = 1};
	tables.blends = array_bytes(blends, k->n * sizeof(*blends));
	free(blends);
	step->height = k->h;
	step->width = k->w;
	step->blends = array_uses(&tables.blends);
	step->rows = array_uses(&tables.rows);
	step->columns = array_uses(&tables.columns);
	return tables;
}

/* If `resamples`, runs the kernel that can resample. */
static void check_input(const struct input_case *k, enum cuda_element element, bool resamples)
{
	double *values;
	struct array batch = make_batch(k, &values),
		     y = array_blank((uint64_t)k->n * k->h * k->w * k->padded, element);
	struct step_arguments step = {
		.images = array_reads(&batch),
		.count = k->count,
		.channels = k->batch_channels,
		.element = k->batch,
		.flip = k->flip,
	};
	struct tables tables = make_tables(k, &step);
	struct array arguments = array_bytes(&step, sizeof(step));
	double *expected = kernels_zeros(y.count * sizeof(*expected));
	struct input_normalize input = {
		.step = array_uses(&arguments),
		.y = array_writes(&y),
		.n = k->n,
		.h = k->h,
		.w = k->w,
		.channels = k->channels,
		.padded = k->padded,
		.element = element,
	};

	memcpy(input.mean, means, sizeof(means));
	memcpy(input.std, deviations, sizeof(deviations));
	assert_int_equal(resamples ? input_resample(&kernels_device, &input)
				   : input_normalize(&kernels_device, &input),
			 0);
	if (kernels_timing)
		return;
	for (uint64_t i = 0; i < y.count; i++) {
		uint64_t c = i % k->padded, x = i / k->padded % k->w, line = i / k->padded / k->w;

		if (line / k->h >= k->count || c >= k->channels)
			continue;
		x = k->flip ? k->w - 1 - x : x;
		expected[i] = values[(line * k->w + x) * k->batch_channels + c];
		if (k->batch == DEVICE_ELEMENT_U8)
			expected[i] = (expected[i] - (double)means[c]) / (double)deviations[c];
	}
	array_expect(&y, expected, element_tolerance(element),
		     "%u x %u x %u, %u channels of kind %d to %u", k->n, k->h, k->w,
		     k->batch_channels, k->batch, k->padded);
	free(values);
	free(expected);
	array_free(&batch);
	array_free(&y);
	array_free(&arguments);
	array_free(&tables.blends);
	array_free(&tables.rows);
	array_free(&tables.columns);
}

static void test_input(void **state)
{
	for (unsigned variation = 0; variation < KERNELS_VARIATIONS; variation++) {
		kernels_vary(variation);
		for (int element = 0; element < ELEMENTS; element++)
			for (unsigned i = 0; i < sizeof(input_cases) / sizeof(*input_cases); i++)
				for (int resamples = 0; resamples < 2; resamples++)
					check_input(&input_cases[i], (enum cuda_element)element,
						    resamples);
	}
}

static void test_input_refused(void **state)
{
	struct input_normalize input = {.n = 1, .h = 1, .w = 1, .channels = 5, .padded = 4};

	assert_int_equal(input_normalize(&kernels_device, &input), -EINVAL);
}

/* ---- timed ---- */

static void input(const struct kernel_case *k, enum cuda_element element)
{
	const struct input_case how = {k->n, k->h, k->w, 3, k->c, DEVICE_ELEMENT_U8,
				       3,    k->n, false};

	check_input(&how, element, false);
}

static void resampled(const struct kernel_case *k, enum cuda_element element)
{
	const struct input_case how = {k->n, k->h, k->w, 3, k->c, DEVICE_ELEMENT_U8,
				       3,    k->n, false};

	check_input(&how, element, true);
}

static const struct kernel_case timed[] = {
	{"input_normalize", "bytes 224x224x3 to 4", input, 224, 224, 4},
	{"input_resample", "bytes 224x224x3 to 4", resampled, 224, 224, 4},
};

#define TIMED (sizeof(timed) / sizeof(*timed))

static void test_timed(void **state)
{
	kernels_check(timed, TIMED);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_input),
		cmocka_unit_test(test_input_refused),
		cmocka_unit_test(test_timed),
	};

	if (argc > 1)
		return kernels_bench(argc, argv, timed, TIMED);
	return cmocka_run_group_tests_name("kernels: input", tests, kernels_test_open,
					   kernels_test_close);
}
