#include "format/augment/resize/resize_float.h"
#include "format/augment/resize/resize_cubic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void resize_float_deinit(struct resize_float *resize)
{
	free(resize->x.memory.data);
	free(resize->y.memory.data);
	free(resize->between.data);
	*resize = (struct resize_float){0};
}

/* What an output pixel takes of the pixels low .. high - 1. */
struct reach {
	double centre, wide; /* wide: pixels per unit of the kernel */
	uint32_t low, high;
};

static double reach_weight(const struct reach *reach, uint32_t at, bool cubic)
{
	double x = fabs(at + 0.5 - reach->centre) / reach->wide;

	return cubic ? cubic_kernel(x) : fmax(1 - x, 0);
}

/* Returns what output pixel i takes, without the ends whose weights are zero. */
static struct reach reach_of(const struct float_axis *axis, uint32_t i, bool cubic)
{
	double scale = (double)axis->size / axis->grid, wide = scale > 1 ? scale : 1;
	double support = cubic ? 2 * wide : wide;
	struct reach reach = {.centre = scale * (i + 0.5), .wide = wide};
	double first = floor(reach.centre - support + 0.5);
	double last = floor(reach.centre + support + 0.5);

	reach.low = first < 0 ? 0 : (uint32_t)first;
	reach.high = last > axis->size ? axis->size : (uint32_t)last;
	while (reach.low + 1 < reach.high && reach_weight(&reach, reach.low, cubic) == 0)
		reach.low++;
	while (reach.low + 1 < reach.high && reach_weight(&reach, reach.high - 1, cubic) == 0)
		reach.high--;
	return reach;
}

void resize_float_range(struct float_axis *axis, bool cubic)
{
	axis->low = reach_of(axis, axis->first, cubic).low;
	axis->span = reach_of(axis, axis->first + axis->count - 1, cubic).high - axis->low;
}

/* Makes the filter, unless it already is of that axis. */
static int filter_make(struct float_filter *filter, const struct float_axis *axis, bool cubic)
{
	double scale = (double)axis->size / axis->grid, wide = scale > 1 ? scale : 1;
	uint32_t taps_max = (uint32_t)ceil((cubic ? 4 : 2) * wide) + 1, count = axis->count;
	size_t starts = count * 2 * sizeof(uint32_t);

	if (memcmp(&filter->axis, axis, sizeof(*axis)) == 0 && filter->cubic == cubic)
		return 0;
	int r = block_reserve(&filter->memory, starts + (size_t)count * taps_max * sizeof(float));
	if (r < 0)
		return r;
	filter->axis = *axis;
	filter->cubic = cubic;
	filter->taps_max = taps_max;
	filter->start = filter->memory.data;
	filter->taps = filter->start + count;
	filter->weights = (float *)(filter->taps + count);
	for (uint32_t i = 0; i < count; i++) {
		struct reach reach = reach_of(axis, axis->first + i, cubic);
		float *weights = filter->weights + (size_t)i * taps_max;
		double total = 0;

		for (uint32_t at = reach.low; at < reach.high; at++)
			total += reach_weight(&reach, at, cubic);
		for (uint32_t at = reach.low; at < reach.high; at++)
			weights[at - reach.low] = (float)(reach_weight(&reach, at, cubic) / total);
		filter->start[i] = reach.low - axis->low;
		filter->taps[i] = reach.high - reach.low;
	}
	return 0;
}

int resize_float_run(struct resize_float *resize, const struct resize_kernels *kernels,
		     const float *pixels, uint32_t channels, const struct float_axis *x,
		     const struct float_axis *y, bool cubic, float *output)
{
	size_t row_size = (size_t)x->span * channels, out_size = (size_t)x->count * channels;
	size_t stride = (row_size + RESIZE_LANES - 1) / RESIZE_LANES * RESIZE_LANES;
	uint32_t band = kernels->float_rows;
	int r = filter_make(&resize->x, x, cubic);

	r = r ?: filter_make(&resize->y, y, cubic);
	r = r ?: block_reserve(&resize->between, 2 * band * stride * sizeof(float));
	if (r < 0)
		return r;
	const struct float_filter *down = &resize->y;
	float *between = resize->between.data;

	memset(between, 0, band * stride * sizeof(float));
	for (uint32_t i = 0; i < y->count; i += band) {
		uint32_t rows = y->count - i < band ? y->count - i : band;

		for (uint32_t row = i; row < i + rows; row++)
			kernels->float_down(down->weights + (size_t)row * down->taps_max,
					    down->taps[row], pixels + down->start[row] * row_size,
					    row_size, between + (row - i) * stride);
		kernels->float_across(&resize->x, channels, between, stride,
				      between + band * stride, output + i * out_size, rows);
	}
	return 0;
}
