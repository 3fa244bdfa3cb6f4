#include "format/augment/resize/resize_float.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4 }; /* rows processed at once */

void resize_float_deinit(struct resize_float *resize)
{
	free(resize->x.memory.data);
	free(resize->y.memory.data);
	free(resize->between.data);
	*resize = (struct resize_float){0};
}

/*
 * Computes the weights of output pixel i, except zeros: a triangle with its peak at the pixel's
 * centre and a half-width of `support` input pixels.
 */
static void filter_pixel(struct float_filter *filter, uint32_t i, double scale, double support)
{
	double centre = scale * (i + 0.5), total = 0;
	double first = floor(centre - support + 0.5), last = floor(centre + support + 0.5);
	uint32_t low = first < 0 ? 0 : (uint32_t)first;
	uint32_t high = last > filter->size ? filter->size : (uint32_t)last, taps = 0;
	float *weights = filter->weights + (size_t)i * filter->taps_max;

	for (uint32_t at = low; at < high; at++)
		total += fmax(1 - fabs(at + 0.5 - centre) / support, 0);
	for (uint32_t at = low; at < high; at++) {
		float weight = (float)(fmax(1 - fabs(at + 0.5 - centre) / support, 0) / total);

		if (weight > 0)
			weights[taps++] = weight;
		else if (taps == 0)
			low = at + 1;
	}
	filter->start[i] = low;
	filter->taps[i] = taps;
}

/* Makes the filter, unless it already has these sizes. */
static int filter_make(struct float_filter *filter, uint32_t size, uint32_t count)
{
	double scale = (double)size / count, support = scale > 1 ? scale : 1;
	uint32_t taps_max = (uint32_t)ceil(2 * support) + 1;
	size_t starts = count * 2 * sizeof(uint32_t);

	if (filter->size == size && filter->count == count)
		return 0;
	int r = block_reserve(&filter->memory, starts + (size_t)count * taps_max * sizeof(float));
	if (r < 0)
		return r;
	filter->size = size;
	filter->count = count;
	filter->taps_max = taps_max;
	filter->start = filter->memory.data;
	filter->taps = filter->start + count;
	filter->weights = (float *)(filter->taps + count);
	for (uint32_t i = 0; i < count; i++)
		filter_pixel(filter, i, scale, support);
	return 0;
}

/*
 * Runs the horizontal pass on ROWS rows of `stride` pixels at once: their sums are independent,
 * which hides latency. Writes the first `rows` of them.
 */
static void pass_across(const struct float_filter *filter, const float *pixels, size_t stride,
			uint32_t rows, float *output)
{
	for (uint32_t i = 0; i < filter->count; i++) {
		const float *weights = filter->weights + (size_t)i * filter->taps_max;
		const float *from = pixels + filter->start[i];
		float sums[ROWS] = {0};

		for (uint32_t k = 0; k < filter->taps[i]; k++)
			for (uint32_t row = 0; row < ROWS; row++)
				sums[row] += weights[k] * from[row * stride + k];
		for (uint32_t row = 0; row < rows; row++)
			output[(size_t)row * filter->count + i] = sums[row];
	}
}

/* Runs the vertical pass for row i of the output; the row still has the input's width. */
static void pass_down(const struct float_filter *filter, uint32_t i, const float *pixels,
		      uint32_t width, float *restrict output)
{
	const float *weights = filter->weights + (size_t)i * filter->taps_max;
	const float *restrict row = pixels + (size_t)filter->start[i] * width;

	for (uint32_t x = 0; x < width; x++)
		output[x] = weights[0] * row[x];
	for (uint32_t k = 1; k < filter->taps[i]; k++) {
		row += width;
		for (uint32_t x = 0; x < width; x++)
			output[x] += weights[k] * row[x];
	}
}

int resize_float_run(struct resize_float *resize, const float *pixels, uint32_t width,
		     uint32_t height, uint32_t out_width, uint32_t out_height, float *output)
{
	int r = filter_make(&resize->x, width, out_width);

	r = r ?: filter_make(&resize->y, height, out_height);
	r = r ?: block_reserve(&resize->between, (size_t)ROWS * width * sizeof(float));
	if (r < 0)
		return r;
	float *between = resize->between.data;

	for (uint32_t i = 0; i < out_height; i += ROWS) {
		uint32_t rows = out_height - i < ROWS ? out_height - i : ROWS;

		for (uint32_t row = 0; row < ROWS; row++)
			pass_down(&resize->y, i + (row < rows ? row : 0), pixels, width,
				  between + (size_t)row * width);
		pass_across(&resize->x, between, width, rows, output + (size_t)i * out_width);
	}
	return 0;
}
