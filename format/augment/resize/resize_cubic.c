#include "format/augment/resize/resize_cubic.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	WEIGHT_BITS = CUBIC_WEIGHT_BITS,
	BAND = CUBIC_BAND,
	CHANNELS = 3,
	/*
	 * Maximum size of the rows between the passes, in bytes. Only tall pictures resized to flat
	 * and wide ones reach it.
	 */
	BETWEEN_MAX = 1 << 28,
	BETWEEN_KEPT = 1 << 25, /* buffers larger than this are freed after the job */
};

void cubic_deinit(struct cubic *cubic)
{
	free(cubic->x.memory.data);
	free(cubic->y.memory.data);
	free(cubic->between.data);
	free(cubic->transposed.data);
	free(cubic->rows.data);
	free(cubic->finished.data);
}

/* Keys' kernel, in Pillow's form. */
double cubic_kernel(double x)
{
	const double a = -0.5;

	x = fabs(x);
	if (x < 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	if (x < 2)
		return (((x - 5) * x + 8) * x - 4) * a;
	return 0;
}

/*
 * Computes the filter of one output as Pillow's precompute_coeffs does, with its rounding to
 * integers.
 */
static void filter_output(const struct cubic_axis *axis, uint32_t grid, struct cubic_table *table,
			  uint32_t at)
{
	double scale = (double)axis->size / axis->grid, wide = scale < 1 ? 1 : scale;
	double support = 2 * wide, centre = (grid + 0.5) * scale, total = 0;
	int32_t low = (int32_t)(centre - support + 0.5), high = (int32_t)(centre + support + 0.5);
	int32_t *weights = table->weights + (size_t)at * table->taps_max;

	low = low < 0 ? 0 : low;
	high = high > (int32_t)axis->size ? (int32_t)axis->size : high;
	for (int32_t i = low; i < high; i++)
		total += cubic_kernel((i - centre + 0.5) * (1 / wide));
	for (int32_t i = low; i < high; i++) {
		double weight =
			cubic_kernel((i - centre + 0.5) * (1 / wide)) / (total != 0 ? total : 1);

		weight *= 1 << WEIGHT_BITS;
		weights[i - low] = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
	}
	table->start[at] = (int32_t)(axis->origin + low);
	table->taps[at] = (uint32_t)(high - low);
}

static int filter_make(const struct cubic_axis *axis, struct cubic_filter *filter)
{
	double scale = (double)axis->size / axis->grid;
	uint32_t taps = (uint32_t)ceil(2 * (scale < 1 ? 1 : scale)) * 2 + 1;
	struct cubic_table *table = &filter->table;
	size_t count = axis->count;
	int r = block_reserve(&filter->memory, count * (taps + 2) * sizeof(int32_t));

	if (r < 0)
		return r;
	table->count = axis->count;
	table->taps_max = taps;
	table->start = filter->memory.data;
	table->taps = (uint32_t *)(table->start + count);
	table->weights = (int32_t *)(table->taps + count);
	for (uint32_t i = 0; i < axis->count; i++)
		filter_output(axis, axis->first + i, table,
			      axis->reverse ? axis->count - 1 - i : i);
	return 0;
}

/*
 * Computes the source pixels [*ret_low, *ret_high) that a filter uses. Returns -EINVAL if any is
 * outside 0 .. size - 1.
 */
static int filter_range(const struct cubic_table *table, uint32_t size, uint32_t *ret_low,
			uint32_t *ret_high)
{
	uint32_t last = table->count - 1;

	if (table->start[0] < 0 || table->start[last] < 0)
		return -EINVAL;
	uint32_t a = (uint32_t)table->start[0], b = (uint32_t)table->start[last];
	uint32_t a_end = a + table->taps[0], b_end = b + table->taps[last];

	*ret_low = a < b ? a : b;
	*ret_high = a_end > b_end ? a_end : b_end;
	return *ret_high <= size ? 0 : -EINVAL;
}

/* One bicubic resize of a source. */
struct cubic_job {
	struct cubic *cubic;
	const struct resize_kernels *kernels;
	const struct resize_source *source;
	uint32_t column_low, column_high, row_low, row_high; /* used part of the source */
	size_t row_bytes;                                    /* bytes per finished RGB row */
	uint32_t row_done;  /* the horizontal pass has processed the rows before this one */
	uint32_t rows_held; /* rows kept after the horizontal pass, a multiple of CUBIC_BAND */
};

static uint8_t *job_between(const struct cubic_job *job, uint32_t row)
{
	return (uint8_t *)job->cubic->between.data +
	       (row - job->row_low) % job->rows_held * job->row_bytes;
}

static const uint8_t *job_source_row(const struct cubic_job *job, uint32_t row)
{
	const struct resize_source *source = job->source;

	if (source->ring)
		row = (source->first + row) & (source->ring - 1);
	return source->data + row * source->stride + (size_t)job->column_low * CHANNELS;
}

/* Runs the horizontal pass for all source rows before `end`, one band at a time. */
static int job_across(struct cubic_job *job, uint32_t end)
{
	uint32_t columns = job->column_high - job->column_low;
	struct cubic *cubic = job->cubic;
	uint8_t *transposed = cubic->transposed.data;

	while (job->row_done < end) {
		uint32_t row = job->row_done;
		uint32_t next = row + BAND < job->row_high ? row + BAND : job->row_high;
		const uint8_t *rows[BAND];
		int r = job->source->ring ? job->source->rows(job->source->context, next) : 0;

		if (r < 0)
			return r;
		for (uint32_t i = 0; i < BAND; i++)
			rows[i] = job_source_row(job, row + i < next ? row + i : next - 1);
		for (size_t at = 0; at < (size_t)columns * CHANNELS; at++)
			for (uint32_t i = 0; i < BAND; i++)
				transposed[at * BAND + i] = rows[i][at];
		job->kernels->cubic_across(&cubic->x.table, transposed, job->column_low,
					   job_between(job, row), job->row_bytes, next - row);
		job->row_done = next;
	}
	return 0;
}

static void put_row(const struct resize_target *target, uint8_t *to, const uint8_t *rgb,
		    uint32_t count)
{
	if (target->channels == CHANNELS) {
		memcpy(to, rgb, (size_t)count * CHANNELS);
		return;
	}
	for (uint32_t i = 0; i < count; i++, to += 4, rgb += CHANNELS) {
		memcpy(to, rgb, CHANNELS);
		to[CHANNELS] = 0;
	}
}

/*
 * Makes an output row, after the horizontal pass over the source rows it needs. In `finished`, a
 * row for a sink comes after the RGB row.
 */
static int job_down(struct cubic_job *job, const struct resize_target *target, uint32_t i)
{
	const struct cubic_table *y = &job->cubic->y.table;
	uint32_t start = (uint32_t)y->start[i];
	const uint8_t **rows = job->cubic->rows.data;
	uint8_t *rgb = job->cubic->finished.data, *own = rgb + job->row_bytes;
	uint8_t *address = target->sink && target->row_address
				   ? target->row_address(target->context, i)
				   : NULL;
	uint8_t *to = !target->sink ? target->data + (ptrdiff_t)i * target->stride
		      : address     ? address
				    : own;
	int r = job_across(job, start + y->taps[i]);

	if (r < 0)
		return r;
	for (uint32_t k = 0; k < y->taps[i]; k++)
		rows[k] = job_between(job, start + k);
	job->kernels->cubic_down(rows, y->weights + (size_t)i * y->taps_max, y->taps[i],
				 job->row_bytes, rgb);
	put_row(target, to, rgb, job->cubic->x.table.count);
	if (target->sink)
		target->sink(target->context, i, to);
	return 0;
}

/*
 * Reserves the buffers. The rows between the passes that an output needs must stay until it is
 * made, while the next band is written after them.
 */
static int job_reserve(struct cubic_job *job, uint32_t channels)
{
	struct cubic *cubic = job->cubic;
	size_t columns = job->column_high - job->column_low;
	uint32_t taps = 0;

	for (uint32_t i = 0; i < cubic->y.table.count; i++)
		taps = cubic->y.table.taps[i] > taps ? cubic->y.table.taps[i] : taps;
	job->rows_held = (taps + 2 * BAND - 1) / BAND * BAND;
	if (job->rows_held * job->row_bytes > BETWEEN_MAX)
		return -EFBIG;
	int r = block_reserve(&cubic->between, job->rows_held * job->row_bytes);

	if (r == 0)
		r = block_reserve(&cubic->transposed, columns * CHANNELS * BAND);
	if (r == 0)
		r = block_reserve(&cubic->rows, cubic->y.table.taps_max * sizeof(uint8_t *));
	return r < 0 ? r
		     : block_reserve(&cubic->finished,
				     job->row_bytes + (size_t)cubic->x.table.count * channels);
}

int cubic_run(struct cubic *cubic, const struct resize_kernels *kernels,
	      const struct resize_source *source, const struct cubic_axis *x,
	      const struct cubic_axis *y, const struct resize_target *target)
{
	struct cubic_job job = {.cubic = cubic,
				.kernels = kernels,
				.source = source,
				.row_bytes = (size_t)x->count * CHANNELS};
	int r = filter_make(x, &cubic->x);

	if (r == 0)
		r = filter_make(y, &cubic->y);
	if (r < 0)
		return r;
	r = filter_range(&cubic->x.table, source->width, &job.column_low, &job.column_high);
	if (r == 0)
		r = filter_range(&cubic->y.table, source->height, &job.row_low, &job.row_high);
	if (r == 0)
		r = job_reserve(&job, target->channels);
	job.row_done = job.row_low;
	for (uint32_t i = 0; r == 0 && i < y->count; i++)
		r = job_down(&job, target, y->reverse ? y->count - 1 - i : i);
	if (cubic->between.size > BETWEEN_KEPT) {
		free(cubic->between.data);
		cubic->between = (struct block){0};
	}
	return r;
}
