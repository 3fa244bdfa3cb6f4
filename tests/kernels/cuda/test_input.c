/* The input against its definition in double precision. */
#include "tests/kernels/cuda/cuda_kernels_test.h"

#include "trainer/device/cuda/kernels/input.h"
#include "trainer/device/steps.h"

#include <errno.h>
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
	/* whole groups of pixels, with 3 and with 4 bytes per pixel */
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

static const struct kernel_shape any[] = {{1, 1, 1, 1}};

/* Returns the batch in GPU memory; its numbers are in `values`, unless kernels are timed. */
static struct array *new_batch(const struct input_case *k, double *values)
{
	uint64_t count = (uint64_t)k->count * k->h * k->w * k->batch_channels;
	uint8_t *bytes = kernels_zeros(count);
	struct array *batch;

	for (uint64_t i = 0; values && i < count; i++)
		values[i] = bytes[i] = (uint8_t)(kernels_uniform(1, i) * 256);
	if (k->batch == DEVICE_ELEMENT_U8) {
		batch = new_bytes(bytes, count);
	} else {
		batch = new_coarse(count, of_batch[k->batch]);
		memcpy(values, batch->v, count * sizeof(*values));
	}
	free(bytes);
	return batch;
}

static void *new_taps(uint32_t count)
{
	struct device_tap *taps = calloc(count, sizeof(*taps));

	for (uint32_t i = 0; i < count; i++)
		taps[i] = (struct device_tap){i, 1, {1}};
	struct array *array = new_bytes(taps, count * sizeof(*taps));
	free(taps);
	return array_uses(array);
}

/* Sets tables that leave a batch unchanged. */
static void set_tables(const struct input_case *k, struct step_arguments *step)
{
	struct device_blend *blends = calloc(k->n, sizeof(*blends));

	for (uint32_t i = 0; i < k->n; i++)
		blends[i] = (struct device_blend){.partner = i, .share = 1};
	step->height = k->h;
	step->width = k->w;
	step->blends = array_uses(new_bytes(blends, k->n * sizeof(*blends)));
	step->rows = new_taps(k->h);
	step->columns = new_taps(k->w);
	free(blends);
}

typedef int (*input_kernel)(const struct kernel_device *device,
			    const struct input_normalize *arguments);

static void check_input(const struct input_case *k, enum cuda_element element, input_kernel kernel)
{
	double *values = new_doubles((uint64_t)k->count * k->h * k->w * k->batch_channels);
	struct array *batch = new_batch(k, values),
		     *y = new_blank((uint64_t)k->n * k->h * k->w * k->padded, element);
	struct step_arguments step = {
		.images = array_reads(batch),
		.count = k->count,
		.channels = k->batch_channels,
		.element = k->batch,
		.flip = k->flip,
	};
	struct input_normalize input = {
		.y = array_writes(y),
		.n = k->n,
		.h = k->h,
		.w = k->w,
		.channels = k->channels,
		.padded = k->padded,
		.element = element,
	};

	set_tables(k, &step);
	input.step = array_uses(new_bytes(&step, sizeof(step)));
	memcpy(input.mean, means, sizeof(means));
	memcpy(input.std, deviations, sizeof(deviations));
	if (queued(kernel(&kernels_device, &input)))
		return;
	for (uint64_t i = 0; i < y->count; i++) {
		uint64_t c = i % k->padded, x = i / k->padded % k->w, line = i / k->padded / k->w;

		if (line / k->h >= k->count || c >= k->channels)
			continue;
		x = k->flip ? k->w - 1 - x : x;
		want(y)[i] = values[(line * k->w + x) * k->batch_channels + c];
		if (k->batch == DEVICE_ELEMENT_U8)
			want(y)[i] = (want(y)[i] - (double)means[c]) / (double)deviations[c];
	}
	expect(y, element_tolerance(element), "y");
}

static void normalized(const struct kernel_case *k, enum cuda_element element)
{
	check_input(k->settings, element, input_normalize);
}

static void resampled(const struct kernel_case *k, enum cuda_element element)
{
	check_input(k->settings, element, input_resample);
}

static void refused(void)
{
	struct input_normalize input = {.n = 1, .h = 1, .w = 1, .channels = 5, .padded = 4};

	assert_int_equal(input_normalize(&kernels_device, &input), -EINVAL);
}

static const struct kernel_test tests[] = {
	CHECK_EACH(normalized, any, input_cases),
	CHECK_EACH(resampled, any, input_cases),
	ONCE(refused),
};

/* Whole images of three bytes a pixel. */
static struct input_case timed_case(const struct kernel_case *k)
{
	return (struct input_case){k->n, k->h, k->w, 3, k->c, DEVICE_ELEMENT_U8, 3, k->n, false};
}

static void timed_normalized(const struct kernel_case *k, enum cuda_element element)
{
	const struct input_case settings = timed_case(k);

	check_input(&settings, element, input_normalize);
}

static void timed_resampled(const struct kernel_case *k, enum cuda_element element)
{
	const struct input_case settings = timed_case(k);

	check_input(&settings, element, input_resample);
}

static const struct kernel_case timed[] = {
	{"input_normalize", "bytes 224x224x3 to 4", timed_normalized, 224, 224, 4},
	{"input_resample", "bytes 224x224x3 to 4", timed_resampled, 224, 224, 4},
};

KERNELS_MAIN(&cuda_kernels, tests, timed)
