#include "format/augment/resize/resize.h"
#include "format/augment/kernels/block.h"
#include "format/augment/resize/resize_cubic.h"
#include "format/augment/resize/resize_kernels.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	/*
	 * Maximum size of the pair rows in bytes: half of a small L2 cache. A larger job is split
	 * into column tiles.
	 */
	RING_SIZE_MAX = 512 << 10,
	/* Source rows to prefetch ahead of the current band. */
	FETCH_AHEAD = 32,
	PAGE_SIZE = 4096,
};

/* The filter of one axis and its memory. */
struct filter {
	struct resize_table table;
	struct block start, weight;
};

/* The filters of both axes. */
struct filters {
	struct filter x, y;
	struct block packed;
};

struct resize {
	const struct resize_kernels *kernels;
	struct filters filters[2]; /* filters[1] is for chroma planes */
	struct block rings[3];     /* one per plane: pair rows, a power of two */
	struct block terms[3];     /* one per plane: pointers and weights of one output row */
	struct block narrow;       /* copies of rows too short for the kernels */
	struct block finished; /* for a sink: one row, or all rows if the job has several tiles */
	struct cubic cubic;
};

/* One resize of a source, and the current tile. */
struct job {
	struct resize *resize;
	const struct resize_source *source;
	const struct resize_target *target;
	struct filters *filters;
	struct block *ring, *terms;
	bool reverse;
	bool whole; /* a single tile, because rows arrive only once */
	struct resize_pass pass;
	uint32_t row_first, row_last;    /* source rows that the filter uses, inclusive */
	uint32_t row_fetched;            /* source rows before this one have been prefetched */
	uint32_t ring_mask;              /* number of pair rows in the ring - 1 */
	size_t column_first, column_end; /* range of bytes of a source row that the filter uses */
	uint32_t block, block_count;     /* columns of the tile, in blocks */
	uint32_t pairs_done;
};

const struct resize_kernels *resize_kernels_get(enum cpu_isa isa)
{
	static const struct resize_kernels *const sets[CPU_ISA_COUNT] =
		CPU_ISA_EACH(resize_kernels);

	return sets[isa];
}

int resize_new_isa(enum cpu_isa isa, struct resize **ret_resize)
{
	struct resize *resize = calloc(1, sizeof(*resize));

	if (!resize)
		return -ENOMEM;
	resize->kernels = resize_kernels_get(isa);
	*ret_resize = resize;
	return 0;
}

int resize_new(struct resize **ret_resize)
{
	return resize_new_isa(cpu_isa_chosen(), ret_resize);
}

void resize_free(struct resize *resize)
{
	if (!resize)
		return;
	for (int i = 0; i < 2; i++) {
		free(resize->filters[i].x.start.data);
		free(resize->filters[i].x.weight.data);
		free(resize->filters[i].y.start.data);
		free(resize->filters[i].y.weight.data);
		free(resize->filters[i].packed.data);
	}
	for (int i = 0; i < 3; i++) {
		free(resize->rings[i].data);
		free(resize->terms[i].data);
	}
	free(resize->narrow.data);
	free(resize->finished.data);
	cubic_deinit(&resize->cubic);
	free(resize);
}

static bool axis_valid(const struct resize_axis *axis, uint32_t size)
{
	if (size == 0 || size > RESIZE_SIDE_MAX || axis->count == 0 ||
	    axis->count > RESIZE_SIDE_MAX)
		return false;
	if (axis->low >= axis->high || axis->high > size || !(axis->step > 0) ||
	    !(axis->step <= RESIZE_SIDE_MAX))
		return false;
	/* Centres may be slightly outside low .. high if a decoder has scaled the region. */
	double first = axis->origin + 0.5 * axis->step;
	double last = axis->origin + (axis->count - 0.5) * axis->step;

	return first >= axis->low - 0.5 && last <= axis->high + 0.5;
}

static uint32_t round_up(uint32_t value, uint32_t multiple)
{
	return (value + multiple - 1) / multiple * multiple;
}

static int filter_make(const struct resize_kernels *kernels, const struct resize_axis *axis,
		       struct filter *filter)
{
	struct resize_table *table = &filter->table;
	double support = axis->step > 1 ? axis->step : 1;
	uint32_t taps = (uint32_t)ceil(2 * support);

	table->count = axis->count;
	table->padded = round_up(axis->count, RESIZE_LANES);
	table->taps = taps < axis->high - axis->low ? taps : axis->high - axis->low;
	int r = block_reserve(&filter->start, table->padded * sizeof(*table->start));
	if (r < 0)
		return r;
	r = block_reserve(&filter->weight,
			  (size_t)table->padded * table->taps * sizeof(*table->weight));
	if (r < 0)
		return r;
	table->start = filter->start.data;
	table->weight = filter->weight.data;
	kernels->build(axis, table);
	return 0;
}

static int filters_make(const struct resize_kernels *kernels, const struct resize_axis *x,
			const struct resize_axis *y, struct filters *filters)
{
	struct resize_axis upright = *y;
	int r = filter_make(kernels, x, &filters->x);

	upright.reverse = false; /* reverse affects only the order in which rows are stored */
	return r < 0 ? r : filter_make(kernels, &upright, &filters->y);
}

/* Returns the maximum number of pairs that a filter with this many taps can touch. */
static uint32_t filter_pairs_max(uint32_t taps)
{
	return taps / 2 + 1;
}

/* Reserves the ring and chooses the tile: the widest tile whose ring fits RING_SIZE_MAX. */
static int job_reserve(struct job *job)
{
	struct resize *resize = job->resize;
	uint32_t filter = filter_pairs_max(job->filters->y.table.taps), pairs = 8;
	uint32_t blocks = round_up(job->pass.elements, RESIZE_BLOCK) / RESIZE_BLOCK;

	while (pairs < filter + RESIZE_BAND / 2)
		pairs *= 2;
	size_t block_bytes = (size_t)pairs * RESIZE_BLOCK * sizeof(int32_t);
	uint32_t fit = (uint32_t)(RING_SIZE_MAX / block_bytes);

	if (fit == 0)
		fit = 1;
	if (job->whole)
		fit = blocks;
	job->ring_mask = pairs - 1;
	job->block_count = blocks < fit ? blocks : fit;
	int r = block_reserve(job->ring, job->block_count * block_bytes);
	if (r < 0)
		return r;
	r = block_reserve(job->terms, filter * (sizeof(int32_t *) + sizeof(int32_t)));
	if (r < 0)
		return r;
	size_t packed_size = resize->kernels->prepare(&job->pass);

	r = block_reserve(&job->filters->packed, packed_size);
	if (r < 0)
		return r;
	job->pass.packed = job->filters->packed.data;
	job->pass.row_size = job->source->width * job->source->channels;
	if (job->pass.row_size < job->pass.row_size_min) {
		size_t size = (size_t)RESIZE_BAND * job->pass.row_size_min;

		r = block_reserve(&resize->narrow, size);
		if (r < 0)
			return r;
		/* Bytes past the copied row have zero weight, but must be initialised. */
		memset(resize->narrow.data, 0, size);
		job->pass.row_size = job->pass.row_size_min;
	}
	return 0;
}

static int32_t *ring_row(const struct job *job, uint32_t pair)
{
	return (int32_t *)job->ring->data +
	       (size_t)(pair & job->ring_mask) * job->block_count * RESIZE_BLOCK;
}

/*
 * Prefetches up to `count` rows of an uncached source, at most FETCH_AHEAD rows ahead. Hardware
 * prefetchers do not follow the rows of a crop, which are short and far apart: prefetching makes a
 * crop from a mapped file a third faster. Prefetches into L2, a few rows at a time: a burst into L1
 * stalls on its miss buffers.
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
	return source->data + (size_t)((source->first + row) & (source->ring - 1)) * source->stride;
}

/* Computes the next band of the tile's pair rows. */
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

			/* Rows past the last one have zero weight: use any row. */
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

/*
 * Computes the vertical filter of an output row, as pairs without those of zero weight. Writes to
 * the caller's struct: copying a returned struct would load words that straddle recent stores,
 * which stalls.
 */
static void terms_make(const struct job *job, uint32_t output, struct resize_terms *ret_terms)
{
	const struct resize_table *table = &job->filters->y.table;
	const int32_t **pairs = job->terms->data;
	int32_t *weights = (int32_t *)(pairs + filter_pairs_max(table->taps));
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
		pairs[count] = ring_row(job, pair);
		weights[count++] = (int32_t)(even | next << 16);
	}
	ret_terms->pairs = pairs;
	ret_terms->weights = weights;
	ret_terms->count = count;
}

/* Returns the last pair of source rows that an output row needs. */
static uint32_t last_pair(const struct job *job, uint32_t output)
{
	const struct resize_table *table = &job->filters->y.table;

	return ((uint32_t)table->start[output] + table->taps - 1 - job->row_first) / 2;
}

static uint8_t *sink_row_address(const struct resize_target *target, uint32_t row, uint8_t *own)
{
	uint8_t *address = target->row_address ? target->row_address(target->context, row) : NULL;

	return address ? address : own;
}

/* Runs one tile. Writes finished rows to output, `stride` apart, or passes each row to the sink. */
static int tile_run(struct job *job, uint8_t *output, ptrdiff_t stride, bool sink)
{
	const struct resize_table *table = &job->filters->y.table;
	uint32_t first = job->block * RESIZE_BLOCK;
	uint32_t size = job->block_count * RESIZE_BLOCK;
	uint32_t blocks = job->block_count;
	/* Prefetch the rows that one output row consumes, and some more to get ahead. */
	uint32_t fetches =
		job->source->cold ? (job->row_last - job->row_first) / table->count + 2 : 0;

	if (size > job->pass.elements - first) {
		size = job->pass.elements - first;
		blocks = round_up(size, RESIZE_BLOCK) / RESIZE_BLOCK;
	}
	job->pairs_done = 0;
	for (uint32_t i = 0; i < table->count; i++) {
		uint32_t row = job->reverse ? table->count - 1 - i : i;
		uint8_t *bytes = sink ? sink_row_address(job->target, row, output)
				      : output + row * stride + first;

		fetch_rows(job, fetches);
		while (job->pairs_done <= last_pair(job, i)) {
			int r = band_run(job, blocks);

			if (r < 0)
				return r;
		}
		struct resize_terms terms;

		terms_make(job, i, &terms);
		job->resize->kernels->vertical(&terms, size, bytes, job->target->stream);
		if (sink)
			job->target->sink(job->target->context, row, bytes);
	}
	return 0;
}

/*
 * Touches one cache line of each page that will be streamed to, so that the page-table walks
 * overlap: stores would do them one after the other.
 */
static void fetch_pages(const struct resize_target *target, uint32_t rows)
{
	for (size_t at = 0; at < rows * (size_t)target->stride; at += PAGE_SIZE)
		__builtin_prefetch(target->data + at, 1);
}

static int job_run(struct job *job)
{
	struct resize *resize = job->resize;
	const struct resize_target *target = job->target;
	uint32_t rows = job->filters->y.table.count;
	uint32_t blocks = round_up(job->pass.elements, RESIZE_BLOCK) / RESIZE_BLOCK;
	bool tiled = job->block_count < blocks;
	uint8_t *output = target->data;
	ptrdiff_t stride = target->stride;
	int r;

	if (target->sink) {
		stride = job->pass.elements;
		r = block_reserve(&resize->finished, (size_t)stride * (tiled ? rows : 1));
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
		for (uint32_t row = 0; row < rows; row++)
			target->sink(target->context, row, output + row * stride);
	return 0;
}

/* Initialises a job whose filters have been made. */
static void job_init(struct job *job, const struct resize_source *source,
		     const struct resize_target *target, uint32_t target_channels)
{
	const struct resize_table *x = &job->filters->x.table, *y = &job->filters->y.table;

	job->source = source;
	job->target = target;
	job->pass = (struct resize_pass){.table = x,
					 .source_channels = source->channels,
					 .target_channels = target_channels,
					 .elements = x->count * target_channels};
	job->row_first = (uint32_t)y->start[0];
	job->row_last = (uint32_t)y->start[y->count - 1] + y->taps - 1;
}

static bool can_stream(const struct resize_target *target, uint32_t width)
{
	return target->data && (uintptr_t)target->data % RESIZE_STREAM_UNIT == 0 &&
	       target->stride % RESIZE_STREAM_UNIT == 0 &&
	       width * target->channels % RESIZE_STREAM_UNIT == 0;
}

int resize_region(struct resize *resize, const struct resize_source *source,
		  const struct resize_axis *x, const struct resize_axis *y,
		  const struct resize_target *target)
{
	struct job job = {
		.resize = resize,
		.filters = &resize->filters[0],
		.ring = &resize->rings[0],
		.terms = &resize->terms[0],
		.whole = source->ring > 0,
		.reverse = y->reverse,
	};

	if (!axis_valid(x, source->width) || !axis_valid(y, source->height))
		return -EINVAL;
	if (source->channels < 1 || source->channels > 4 || target->channels < source->channels ||
	    target->channels > 4 || (target->stream && !can_stream(target, x->count)))
		return -EINVAL;
	int r = filters_make(resize->kernels, x, y, job.filters);
	if (r < 0)
		return r;
	job_init(&job, source, target, target->channels);
	const struct resize_table *table = &job.filters->x.table;
	uint32_t left = (uint32_t)table->start[x->reverse ? x->count - 1 : 0];
	uint32_t right = (uint32_t)table->start[x->reverse ? 0 : x->count - 1] + table->taps;

	job.column_first = (size_t)left * source->channels;
	job.column_end = (size_t)right * source->channels;
	job.row_fetched = job.row_first;
	if (source->cold)
		fetch_rows(&job, RESIZE_BAND);
	r = job_reserve(&job);
	if (r < 0)
		return r;
	resize->kernels->pack(&job.pass);
	if (target->stream)
		fetch_pages(target, y->count);
	return job_run(&job);
}

static bool cubic_valid(const struct cubic_axis *axis)
{
	return axis->size && axis->size <= RESIZE_SIDE_MAX && axis->grid &&
	       axis->grid <= RESIZE_SIDE_MAX && axis->count && axis->count <= axis->grid &&
	       axis->first <= axis->grid - axis->count && axis->origin >= -RESIZE_SIDE_MAX &&
	       axis->origin <= RESIZE_SIDE_MAX;
}

int resize_cubic(struct resize *resize, const struct resize_source *source,
		 const struct cubic_axis *x, const struct cubic_axis *y,
		 const struct resize_target *target)
{
	if (!cubic_valid(x) || !cubic_valid(y) || source->channels != 3 || target->channels < 3 ||
	    target->channels > 4)
		return -EINVAL;
	return cubic_run(&resize->cubic, resize->kernels, source, x, y, target);
}

static bool axes_equal(const struct resize_axis *a, const struct resize_axis *b)
{
	return a->origin == b->origin && a->step == b->step && a->low == b->low &&
	       a->high == b->high && a->count == b->count && a->reverse == b->reverse;
}

static bool planes_equal(const struct resize_plane *a, const struct resize_plane *b)
{
	return a->source.width == b->source.width && axes_equal(&a->x, &b->x) &&
	       axes_equal(&a->y, &b->y);
}

static int planes_check(const struct resize_plane planes[3], const struct resize_target *target)
{
	for (int i = 0; i < 3; i++) {
		const struct resize_plane *plane = &planes[i];

		if (!axis_valid(&plane->x, plane->source.width) ||
		    !axis_valid(&plane->y, plane->source.height))
			return -EINVAL;
		if (plane->source.channels != 1 || plane->x.count != planes[0].x.count ||
		    plane->y.count != planes[0].y.count || plane->y.reverse != planes[0].y.reverse)
			return -EINVAL;
	}
	if (target->channels < 3 || target->channels > 4 || !planes_equal(&planes[1], &planes[2]))
		return -EINVAL;
	return 0;
}

/* Computes the planes' filters, once per geometry, and initialises their jobs. */
static int planes_begin(struct resize *resize, const struct resize_plane planes[3],
			const struct resize_target *target, struct job jobs[3])
{
	bool same = planes_equal(&planes[0], &planes[1]);
	int r = 0;

	for (int i = 0; r == 0 && i < 3; i++) {
		bool made = i == 2 || (i == 1 && same);

		jobs[i] = (struct job){.resize = resize,
				       .filters = &resize->filters[i > 0 && !same],
				       .ring = &resize->rings[i],
				       .terms = &resize->terms[i],
				       .whole = true};
		if (!made)
			r = filters_make(resize->kernels, &planes[i].x, &planes[i].y,
					 jobs[i].filters);
		if (r == 0) {
			job_init(&jobs[i], &planes[i].source, target, 1);
			r = job_reserve(&jobs[i]);
		}
		if (r == 0 && !made)
			resize->kernels->pack(&jobs[i].pass);
	}
	return r;
}

/*
 * Makes the source rows of an output row available in every plane. The planes advance together, so
 * that their rings stay short.
 */
static int planes_advance(struct job jobs[3], const struct resize_plane planes[3], uint32_t output)
{
	for (;;) {
		double min = INFINITY;
		int next = -1;

		for (int i = 0; i < 3; i++) {
			const struct resize_axis *y = &planes[i].y;

			if (jobs[i].pairs_done > last_pair(&jobs[i], output))
				continue;
			double row = jobs[i].row_first + 2.0 * jobs[i].pairs_done;
			double position = (row - y->origin) / y->step; /* position in output rows */

			if (position < min) {
				min = position;
				next = i;
			}
		}
		if (next < 0)
			return 0;
		int r = band_run(&jobs[next], jobs[next].block_count);

		if (r < 0)
			return r;
	}
}

int resize_planes(struct resize *resize, const struct resize_plane planes[3],
		  const struct resize_target *target)
{
	uint32_t width = planes[0].x.count, height = planes[0].y.count;
	struct resize_terms terms[3];
	struct job jobs[3];
	int r = planes_check(planes, target);

	if (r < 0)
		return r;
	r = planes_begin(resize, planes, target, jobs);
	if (r == 0 && target->sink)
		r = block_reserve(&resize->finished, (size_t)width * target->channels);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < height; i++) {
		uint32_t row = planes[0].y.reverse ? height - 1 - i : i;
		uint8_t *bytes = target->sink ? sink_row_address(target, row, resize->finished.data)
					      : target->data + (ptrdiff_t)row * target->stride;

		r = planes_advance(jobs, planes, i);
		if (r < 0)
			return r;
		for (int j = 0; j < 3; j++)
			terms_make(&jobs[j], i, &terms[j]);
		resize->kernels->colour(terms, width, target->channels, bytes);
		if (target->sink)
			target->sink(target->context, row, bytes);
	}
	return 0;
}

int resize_image(struct resize *resize, const struct resize_picture *picture, uint32_t width,
		 uint32_t height, uint8_t *pixels, size_t stride)
{
	if (width == 0 || height == 0)
		return -EINVAL;
	struct resize_source source = {.data = picture->data,
				       .stride = picture->stride,
				       .width = picture->width,
				       .height = picture->height,
				       .channels = picture->channels};
	struct resize_axis x = {.origin = picture->x,
				.step = picture->extent_width / width,
				.high = picture->width,
				.count = width};
	struct resize_axis y = {.origin = picture->y,
				.step = picture->extent_height / height,
				.high = picture->height,
				.count = height};
	struct resize_target target = {
		.data = pixels, .stride = (ptrdiff_t)stride, .channels = picture->channels};

	return resize_region(resize, &source, &x, &y, &target);
}
