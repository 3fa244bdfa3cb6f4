/* Kernels and launchers of input.h. */
extern "C" {
#include "trainer/device/cuda/kernels/input.h"
}

#include "trainer/device/cuda/kernels/common/launch.h"
#include "trainer/device/steps.h"

#include <errno.h>

/* ---- the step ---- */

/* Runs as one block. */
static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	step_store_kernel(const __grid_constant__ struct step_store a)
{
	if (threadIdx.x == 0)
		*a.to = a.arguments;
}

int step_store(const struct kernel_device *device, const struct step_store *arguments)
{
	return launch(device, KERNEL(step_store_kernel), 1, arguments);
}

/* ---- input ---- */

#define QUAD 4 /* pixels per thread, if the row length is a multiple of QUAD */

/*
 * The fields of struct step_arguments that describe the batch, copied to registers. Read through
 * the pointer, the compiler would have to reload them after each store to y.
 */
struct batch {
	const void *images;
	uint32_t count, channels, element, flip;
};

DEVICE struct batch batch_of(const struct step_arguments *step)
{
	struct batch batch;

	batch.images = step->images;
	batch.count = step->count;
	batch.channels = step->channels;
	batch.element = step->element;
	batch.flip = step->flip;
	return batch;
}

/* Source pixels for one or more consecutive pixels of y. */
struct source {
	uint64_t first; /* first source pixel in the batch */
	bool valid;     /* the batch contains this image; else y is zero */
};

DEVICE struct source find_source(const struct input_normalize *a, const struct batch *batch,
				 uint32_t pixel, uint32_t pixels)
{
	uint32_t line = kernel_divide(pixel, a->by_w), x = pixel - line * a->w;
	struct source source;

	source.valid = kernel_divide(line, a->by_h) < batch->count;
	source.first = line * a->w + (batch->flip ? a->w - pixels - x : x);
	return source;
}

DEVICE float batch_value(const struct batch *batch, uint64_t at)
{
	if (batch->element == DEVICE_ELEMENT_U8)
		return (float)((const uint8_t *)batch->images)[at];
	if (batch->element == DEVICE_ELEMENT_F16)
		return kernel_from_f16(((const uint16_t *)batch->images)[at]);
	if (batch->element == DEVICE_ELEMENT_BF16)
		return kernel_from_bf16(((const uint16_t *)batch->images)[at]);
	return ((const float *)batch->images)[at];
}

DEVICE void normalize_pixel(const struct input_normalize *a, const struct batch *batch,
			    uint32_t pixel)
{
	struct source source = find_source(a, batch, pixel, 1);

	for (uint32_t c = 0; c < a->padded; c++) {
		float value = 0;

		if (source.valid && c < a->channels) {
			value = batch_value(batch, source.first * batch->channels + c);
			if (batch->element == DEVICE_ELEMENT_U8)
				value = value * a->scale[c] + a->bias[c];
		}
		kernel_store(a->y, (uint64_t)pixel * a->padded + c, a->element, value);
	}
}

/* Loads QUAD pixels of 3 or 4 bytes and normalizes them to four channels. */
DEVICE void load_quad(float v[QUAD][4], const struct input_normalize *a, const struct batch *batch,
		      uint64_t first)
{
	uint32_t word[4];

	if (batch->channels == 4) {
		struct kernel_pack pack = kernel_load16((const uint8_t *)batch->images + first * 4);

		EACH(i, 4)
			word[i] = pack.word[i];
	} else {
		uint32_t packed[3];

		EACH(i, 3)
			packed[i] =
				kernel_load4((const uint8_t *)batch->images + first * 3 + 4 * i);
		word[0] = packed[0];
		word[1] = packed[0] >> 24 | packed[1] << 8;
		word[2] = packed[1] >> 16 | packed[2] << 16;
		word[3] = packed[2] >> 8;
	}
	/* scale and bias are 0 for the channels of y that the input lacks */
	EACH(i, QUAD) {
		EACH(c, 4)
			v[i][c] = (float)(word[i] >> 8 * c & 0xff) * a->scale[c] + a->bias[c];
	}
}

DEVICE void store_quad(void *y, uint64_t first, enum cuda_element element, float v[QUAD][4])
{
	struct kernel_pack pack;

	if (element == CUDA_F32) {
		EACH(i, QUAD) {
			EACH(c, 4)
				pack.word[c] = kernel_to_bits(v[i][c]);
			kernel_store16((float *)y + (first + i) * 4, pack);
		}
		return;
	}
	UNROLL
	for (int i = 0; i < QUAD; i += 2) {
		EACH(j, 4) {
			float even = v[i + j / 2][j % 2 * 2], odd = v[i + j / 2][j % 2 * 2 + 1];

			pack.word[j] = element == CUDA_F16 ? kernel_to_f16x2(even, odd)
							   : kernel_to_bf16x2(even, odd);
		}
		kernel_store16((uint16_t *)y + (first + i) * 4, pack);
	}
}

DEVICE void normalize_quad(const struct input_normalize *a, const struct batch *batch,
			   uint32_t first)
{
	struct source source = find_source(a, batch, first, QUAD);
	float v[QUAD][4];

	EACH(i, QUAD) {
		EACH(c, 4)
			v[i][c] = 0;
	}
	if (source.valid)
		load_quad(v, a, batch, source.first);
	if (batch->flip) {
		EACH(c, 4) {
			float first_value = v[0][c], second = v[1][c];

			v[0][c] = v[3][c];
			v[1][c] = v[2][c];
			v[2][c] = second;
			v[3][c] = first_value;
		}
	}
	store_quad(a->y, first, a->element, v);
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 6)
	input_normalize_kernel(const __grid_constant__ struct input_normalize a)
{
	const struct batch batch = batch_of(a.step);
	uint64_t pixels = (uint64_t)a.n * a.h * a.w, threads = (uint64_t)gridDim.x * KERNEL_THREADS;
	uint64_t thread = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x;

	if (batch.element == DEVICE_ELEMENT_U8 && a.padded == 4 && a.w % QUAD == 0 &&
	    (batch.channels == 3 || batch.channels == 4) && (uintptr_t)batch.images % 16 == 0) {
		for (uint64_t first = thread * QUAD; first < pixels; first += threads * QUAD)
			normalize_quad(&a, &batch, (uint32_t)first);
	} else {
		for (uint64_t pixel = thread; pixel < pixels; pixel += threads)
			normalize_pixel(&a, &batch, (uint32_t)pixel);
	}
}

static int launch_input(const struct kernel_device *device, const struct gpu_kernel &kernel,
			const struct input_normalize *arguments)
{
	struct input_normalize a = *arguments;
	uint64_t pixels = (uint64_t)a.n * a.h * a.w;

	if (a.padded < a.channels || pixels > INT32_MAX)
		return -EINVAL;
	a.by_h = divider_of(a.h);
	a.by_w = divider_of(a.w);
	for (uint32_t c = 0; c < 4; c++) {
		a.scale[c] = c < a.channels ? 1 / a.std[c] : 0;
		a.bias[c] = c < a.channels ? -a.mean[c] / a.std[c] : 0;
	}
	return launch_strided(device, kernel, pixels, &a);
}

int input_normalize(const struct kernel_device *device, const struct input_normalize *arguments)
{
	return launch_input(device, KERNEL(input_normalize_kernel), arguments);
}

/* ---- resampled input ---- */

/* Value of the resampled input, before normalization and blending. */
DEVICE float resampled_value(const struct step_arguments *step, const struct batch *batch,
			     uint32_t image, const struct device_tap *row,
			     const struct device_tap *column, uint32_t c)
{
	float value = 0;

	for (uint32_t i = 0; i < row->count; i++) {
		uint64_t line = (uint64_t)image * step->height + row->first + i;
		uint64_t first = (line * step->width + column->first) * batch->channels + c;
		float sum = 0;

		for (uint32_t k = 0; k < column->count; k++)
			sum += column->weights[k] *
			       batch_value(batch, first + (uint64_t)k * batch->channels);
		value += row->weights[i] * sum;
	}
	return value;
}

DEVICE void resample_pixel(const struct input_normalize *a, const struct batch *batch,
			   uint32_t pixel)
{
	const struct step_arguments *step = a->step;
	uint32_t line = kernel_divide(pixel, a->by_w), x = pixel - line * a->w;
	uint32_t image = kernel_divide(line, a->by_h), y = line - image * a->h;
	const struct device_blend *blend = step->blends + image;
	const struct device_tap *row = step->rows + y,
				*column = step->columns + (batch->flip ? a->w - 1 - x : x);
	bool within = y >= blend->top && y < blend->bottom && x >= blend->left && x < blend->right;
	float share = within ? 0 : blend->share;

	for (uint32_t c = 0; c < a->padded; c++) {
		float value = 0;

		if (image < batch->count && c < a->channels) {
			if (share > 0)
				value = share * resampled_value(step, batch, image, row, column, c);
			if (share < 1)
				value += (1 - share) * resampled_value(step, batch, blend->partner,
								       row, column, c);
			if (batch->element == DEVICE_ELEMENT_U8)
				value = value * a->scale[c] + a->bias[c];
		}
		kernel_store(a->y, (uint64_t)pixel * a->padded + c, a->element, value);
	}
}

static __global__ void __launch_bounds__(KERNEL_THREADS, 2)
	input_resample_kernel(const __grid_constant__ struct input_normalize a)
{
	const struct batch batch = batch_of(a.step);
	uint64_t pixels = (uint64_t)a.n * a.h * a.w, threads = (uint64_t)gridDim.x * KERNEL_THREADS;

	for (uint64_t pixel = (uint64_t)blockIdx.x * KERNEL_THREADS + threadIdx.x; pixel < pixels;
	     pixel += threads)
		resample_pixel(&a, &batch, (uint32_t)pixel);
}

int input_resample(const struct kernel_device *device, const struct input_normalize *arguments)
{
	return launch_input(device, KERNEL(input_resample_kernel), arguments);
}
