#include "resize.h"
#include "resize_kernels.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Bytes of pair rows kept at a time before a job is cut into column tiles: half of a small L2 cache. */
	RING_SIZE_MAX = 512 << 10,
	/* Source rows that are asked for ahead of the band at hand. */
	FETCH_AHEAD = 32,
};

struct buffer {
	void *data;
	size_t size;
};

struct resize {
	const struct resize_kernels *kernels;
	struct resize_table x, y;
	struct buffer x_start, x_weight, y_start, y_weight;
	struct buffer packed;
	struct buffer ring;	/* pair rows, a power of two of them */
	struct buffer filter;	/* pointers and weights of one output row */
	struct buffer narrow;	/* copies of rows too short for the kernels */
	struct buffer finished; /* one row, or the whole image, for a sink */
};

/* One call of resize_region, and the tile at hand. */
struct job {
	struct resize *resize;
	const struct resize_source *source;
	const struct resize_target *target;
	bool reverse;
	struct resize_pass pass;
	uint32_t row_first, row_last;	 /* source rows that the filter touches, last included */
	uint32_t row_fetched;		 /* source rows before it have been asked for */
	uint32_t ring_mask;		 /* pair rows - 1 */
	size_t column_first, column_end; /* bytes of a source row that the filter touches */
	uint32_t block, block_count;	 /* the tile's columns */
	uint32_t pairs_done;
	const int32_t **filter_pairs;
	int32_t *filter_weights;
};

int resize_new_isa(enum augment_isa isa, struct resize **ret_resize)
{
	struct resize *resize = calloc(1, sizeof(*resize));

	if (!resize)
		return -ENOMEM;
	resize->kernels = &resize_kernels_c;
#ifdef AUGMENT_HAVE_AVX2
	if (isa >= AUGMENT_ISA_AVX2)
		resize->kernels = &resize_kernels_avx2;
#endif
#ifdef AUGMENT_HAVE_AVX512
	if (isa >= AUGMENT_ISA_AVX512BW)
		resize->kernels = &resize_kernels_avx512bw;
	if (isa >= AUGMENT_ISA_AVX512)
		resize->kernels = &resize_kernels_avx512;
#endif
	*ret_resize = resize;
	return 0;
}

int resize_new(struct resize **ret_resize)
{
	return resize_new_isa(augment_isa_chosen(), ret_resize);
}

void resize_free(struct resize *resize)
{
	if (!resize)
		return;
	free(resize->x_start.data);
	free(resize->x_weight.data);
	free(resize->y_start.data);
	free(resize->y_weight.data);
	free(resize->packed.data);
	free(resize->ring.data);
	free(resize->filter.data);
	free(resize->narrow.data);
	free(resize->finished.data);
	free(resize);
}

static int buffer_reserve(struct buffer *buffer, size_t size)
{
	if (size <= buffer->size)
		return 0;
	/* A quarter more than asked: crops of random size would otherwise grow it many times. */
	size = (size + size / 4 + 4095) & ~(size_t)4095;
	void *data = aligned_alloc(64, size);

	if (!data)
		return -ENOMEM;
	free(buffer->data);
	buffer->data = data;
	buffer->size = size;
	return 0;
}

static bool axis_valid(const struct resize_axis *axis, uint32_t size)
{
	if (size == 0 || size > RESIZE_SIDE_MAX || axis->count == 0 ||
	    axis->count > RESIZE_SIDE_MAX)
		return false;
	if (axis->low >= axis->high || axis->high > size || !(axis->step > 0) ||
	    !(axis->step <= RESIZE_SIDE_MAX))
		return false;
	/* The centres may stray a little beyond the pixels that count, as they do when a decoder scales a region. */
	double first = axis->origin + 0.5 * axis->step;
	double last = axis->origin + (axis->count - 0.5) * axis->step;

	return first >= axis->low - 0.5 && last <= axis->high + 0.5;
}

static uint32_t round_up(uint32_t value, uint32_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static int table_make(const struct resize_kernels *kernels, const struct resize_axis *axis,
		      struct resize_table *table, struct buffer *start, struct buffer *weight)
{
	double support = axis->step > 1 ? axis->step : 1;
	uint32_t taps = (uint32_t)ceil(2 * support);
	int r;

	table->count = axis->count;
	table->padded = round_up(axis->count, RESIZE_LANES);
	table->taps = taps < axis->high - axis->low ? taps : axis->high - axis->low;
	r = buffer_reserve(start, table->padded * sizeof(*table->start));
	if (r < 0)
		return r;
	r = buffer_reserve(weight, (size_t)table->padded * table->taps * sizeof(*table->weight));
	if (r < 0)
		return r;
	table->start = start->data;
	table->weight = weight->data;
	kernels->build(axis, table);
	return 0;
}

/* Pairs that a filter of so many taps can touch, wherever it starts. */
static uint32_t filter_pairs_max(uint32_t taps)
{
	return taps / 2 + 1;
}

/* Sizes ring and tile: the widest tile whose ring fits the bound. */
static int job_reserve(struct job *job)
{
	struct resize *resize = job->resize;
	uint32_t filter = filter_pairs_max(resize->y.taps), pairs = 8;
	uint32_t blocks = round_up(job->pass.elements, RESIZE_BLOCK) / RESIZE_BLOCK;
	int r;

	while (pairs < filter + RESIZE_BAND / 2)
		pairs *= 2;
	size_t block_bytes = (size_t)pairs * RESIZE_BLOCK * sizeof(int32_t);
	uint32_t fit = (uint32_t)(RING_SIZE_MAX / block_bytes);

	if (fit == 0)
		fit = 1;
	/* Rows that come only once are needed whole. */
	if (job->source->ring)
		fit = blocks;
	job->ring_mask = pairs - 1;
	job->block_count = blocks < fit ? blocks : fit;
	r = buffer_reserve(&resize->ring, job->block_count * block_bytes);
	if (r < 0)
		return r;
	r = buffer_reserve(&resize->filter, filter * (sizeof(int32_t *) + sizeof(int32_t)));
	if (r < 0)
		return r;
	job->filter_pairs = resize->filter.data;
	job->filter_weights = (int32_t *)(job->filter_pairs + filter);
	size_t packed_size = resize->kernels->prepare(&job->pass);

	r = buffer_reserve(&resize->packed, packed_size);
	if (r < 0)
		return r;
	job->pass.packed = resize->packed.data;
	job->pass.row_size = job->source->width * job->source->channels;
	if (job->pass.row_size < job->pass.row_size_min) {
		size_t size = (size_t)RESIZE_BAND * job->pass.row_size_min;

		r = buffer_reserve(&resize->narrow, size);
		if (r < 0)
			return r;
		/* What lies beyond the copied row has no weight, but should not be unset either. */
		memset(resize->narrow.data, 0, size);
		job->pass.row_size = job->pass.row_size_min;
	}
	return 0;
}

static int32_t *ring_row(const struct job *job, uint32_t pair)
{
	return (int32_t *)job->resize->ring.data +
	       (size_t)(pair & job->ring_mask) * job->block_count * RESIZE_BLOCK;
}

/*
 * Asks for the next rows of a source that is not in cache, at most so many, not too far ahead. Rows of a crop are short and far
 * apart, which the processor's own prefetcher does not follow: a crop from a mapped file takes a third less time with this. Into
 * the second-level cache, and a few rows at a time: a burst into the first stalls on its miss buffers.
 */
static void fetch_rows(struct job *job, uint32_t count)
{
	const struct resize_source *source = job->source;
	uint32_t end = job->row_first + 2 * job->pairs_done + FETCH_AHEAD;

	end = end < job->row_last + 1 ? end : job->row_last + 1;
	for (; count > 0 && job->row_fetched < end; count--, job->row_fetched++) {
		const uint8_t *data = source->data + job->row_fetched * source->stride;

		for (size_t at = job->column_first; at < job->column_end; at += 64)
			__builtin_prefetch(data + at, 0, 2);
		__builtin_prefetch(data + job->column_end - 1, 0, 2);
	}
}

static const uint8_t *source_row(const struct resize_source *source, uint32_t row)
{
	return source->data + (size_t)(row & (source->ring - 1)) * source->stride;
}

/* Makes the next band of pair rows of the tile. */
static int band_run(struct job *job, uint32_t tile_blocks)
{
	const struct resize_source *source = job->source;
	const struct resize_kernels *kernels = job->resize->kernels;
	const uint8_t *rows[RESIZE_BAND];
	int32_t *pairs[RESIZE_BAND / 2];
	uint32_t total = (job->row_last - job->row_first) / 2 + 1;
	unsigned count = 0;

	if (source->ring) {
		uint32_t end = job->row_first + 2 * job->pairs_done + RESIZE_BAND;
		int r = source->rows(source->context,
				     end <= job->row_last ? end : job->row_last + 1);

		if (r < 0)
			return r;
	}
	for (; count < RESIZE_BAND / 2 && job->pairs_done < total; count++, job->pairs_done++) {
		for (unsigned half = 0; half < 2; half++) {
			uint32_t row = job->row_first + 2 * job->pairs_done + half;

			/* Past the last row the filter has no weight: any row will do. */
			row = row < job->row_last ? row : job->row_last;
			rows[2 * count + half] = source_row(source, row);
		}
		pairs[count] = ring_row(job, job->pairs_done);
	}
	uint32_t row_size = source->width * source->channels;

	if (row_size < job->pass.row_size_min) {
		uint8_t *copy = job->resize->narrow.data;

		for (unsigned i = 0; i < 2 * count; i++, copy += job->pass.row_size_min) {
			memcpy(copy, rows[i], row_size);
			rows[i] = copy;
		}
	}
	kernels->horizontal(&job->pass, job->block, tile_blocks, rows, count, pairs);
	return 0;
}

/* Vertical filter of an output row as pairs: pointers and weights, those without weight left out. */
static uint32_t filter_make(const struct job *job, uint32_t output)
{
	const struct resize_table *table = &job->resize->y;
	uint32_t first = (uint32_t)table->start[output] - job->row_first;
	const int16_t *weight = table->weight + output;
	uint32_t count = 0, odd = first & 1, pair = first / 2;

	for (int32_t k = -(int32_t)odd; k < (int32_t)table->taps; k += 2, pair++) {
		uint32_t even = k >= 0 ? (uint16_t)weight[(size_t)k * table->padded] : 0;
		uint32_t next = k + 1 < (int32_t)table->taps
					? (uint16_t)weight[(size_t)(k + 1) * table->padded]
					: 0;

		if ((even | next) == 0)
			continue;
		job->filter_pairs[count] = ring_row(job, pair);
		job->filter_weights[count++] = (int32_t)(even | next << 16);
	}
	return count;
}

static uint8_t *sink_place(const struct resize_target *target, uint32_t row, uint8_t *own)
{
	uint8_t *place = target->place ? target->place(target->context, row) : NULL;

	return place ? place : own;
}

/* Runs one tile; finished rows go to output (advanced by stride), or one by one to the sink. */
static int tile_run(struct job *job, uint8_t *output, ptrdiff_t stride, bool sink)
{
	const struct resize_table *table = &job->resize->y;
	uint32_t first = job->block * RESIZE_BLOCK;
	uint32_t size = job->block_count * RESIZE_BLOCK;
	uint32_t blocks = job->block_count;
	/* What an output row uses up, and one more to get ahead. */
	uint32_t fetches =
		job->source->cold ? (job->row_last - job->row_first) / table->count + 2 : 0;

	if (size > job->pass.elements - first) {
		size = job->pass.elements - first;
		blocks = round_up(size, RESIZE_BLOCK) / RESIZE_BLOCK;
	}
	job->pairs_done = 0;
	for (uint32_t i = 0; i < table->count; i++) {
		uint32_t row = job->reverse ? table->count - 1 - i : i;
		uint8_t *bytes =
			sink ? sink_place(job->target, row, output) : output + row * stride + first;
		uint32_t last = (uint32_t)table->start[i] + table->taps - 1 - job->row_first;

		fetch_rows(job, fetches);
		while (job->pairs_done <= last / 2) {
			int r = band_run(job, blocks);

			if (r < 0)
				return r;
		}
		uint32_t count = filter_make(job, i);

		job->resize->kernels->vertical(job->filter_pairs, job->filter_weights, count, size,
					       bytes);
		if (sink)
			job->target->sink(job->target->context, row, bytes);
	}
	return 0;
}

static int job_run(struct job *job)
{
	struct resize *resize = job->resize;
	const struct resize_target *target = job->target;
	uint32_t blocks = round_up(job->pass.elements, RESIZE_BLOCK) / RESIZE_BLOCK;
	bool tiled = job->block_count < blocks;
	uint8_t *output = target->data;
	ptrdiff_t stride = target->stride;
	int r;

	if (target->sink) {
		stride = job->pass.elements;
		r = buffer_reserve(&resize->finished,
				   (size_t)stride * (tiled ? resize->y.count : 1));
		if (r < 0)
			return r;
		output = resize->finished.data;
	}
	for (; job->block < blocks; job->block += job->block_count) {
		r = tile_run(job, output, stride, target->sink && !tiled);
		if (r < 0)
			return r;
	}
	if (target->sink && tiled)
		for (uint32_t row = 0; row < resize->y.count; row++)
			target->sink(target->context, row, output + row * stride);
	return 0;
}

int resize_region(struct resize *resize, const struct resize_source *source,
		  const struct resize_axis *x, const struct resize_axis *y,
		  const struct resize_target *target)
{
	const struct resize_kernels *kernels = resize->kernels;
	int r;

	if (!axis_valid(x, source->width) || !axis_valid(y, source->height))
		return -EINVAL;
	if (source->channels < 1 || source->channels > 4 || target->channels < source->channels ||
	    target->channels > 4)
		return -EINVAL;
	r = table_make(kernels, x, &resize->x, &resize->x_start, &resize->x_weight);
	if (r < 0)
		return r;
	struct resize_axis upright = *y;

	upright.reverse = false; /* rows are only stored in reverse */
	r = table_make(kernels, &upright, &resize->y, &resize->y_start, &resize->y_weight);
	if (r < 0)
		return r;
	struct job job = {
		.resize = resize,
		.source = source,
		.target = target,
		.reverse = y->reverse,
		.pass = {.table = &resize->x,
			 .source_channels = source->channels,
			 .target_channels = target->channels,
			 .elements = x->count * target->channels},
		.row_first = (uint32_t)resize->y.start[0],
		.row_last = (uint32_t)resize->y.start[resize->y.count - 1] + resize->y.taps - 1,
	};

	uint32_t left = (uint32_t)resize->x.start[x->reverse ? x->count - 1 : 0];
	uint32_t right = (uint32_t)resize->x.start[x->reverse ? 0 : x->count - 1] + resize->x.taps;

	job.column_first = (size_t)left * source->channels;
	job.column_end = (size_t)right * source->channels;
	job.row_fetched = job.row_first;
	if (source->cold)
		fetch_rows(&job, RESIZE_BAND);
	r = job_reserve(&job);
	if (r < 0)
		return r;
	kernels->pack(&job.pass);
	return job_run(&job);
}

int resize_image(struct resize *resize, const struct resize_source *source, uint32_t width,
		 uint32_t height, uint8_t *pixels, size_t stride)
{
	if (width == 0 || height == 0)
		return -EINVAL;
	struct resize_axis x = {
		.step = (double)source->width / width, .high = source->width, .count = width};
	struct resize_axis y = {
		.step = (double)source->height / height, .high = source->height, .count = height};
	struct resize_target target = {
		.data = pixels, .stride = (ptrdiff_t)stride, .channels = source->channels};

	return resize_region(resize, source, &x, &y, &target);
}
