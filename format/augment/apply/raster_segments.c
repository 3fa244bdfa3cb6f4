#include "format/augment/apply/raster_segments.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

void raster_segments_deinit(struct raster_segments *segments)
{
	free(segments->memory.data);
	*segments = (struct raster_segments){0};
}

static void table_add(int32_t *table, uint32_t count, int32_t offset)
{
	for (uint32_t i = 0; i < count; i++)
		table[i] = table[i] == RASTER_OUTSIDE ? RASTER_OUTSIDE : table[i] + offset;
}

/* Mirrors at the outermost pixels without repeating them, or makes pixels beyond them
 * RASTER_OUTSIDE. */
static void table_pad(int32_t *table, uint32_t count, uint32_t before, uint32_t size, bool reflect)
{
	int32_t last = (int32_t)size - 1;

	for (uint32_t i = 0; i < count; i++) {
		int32_t at = table[i] - (int32_t)before;

		if (table[i] == RASTER_OUTSIDE)
			continue;
		if (reflect)
			at = at < 0 ? -at : at > last ? 2 * last - at : at;
		table[i] = at < 0 || at > last ? RASTER_OUTSIDE : at;
	}
}

static void table_resize(int32_t *table, uint32_t count, uint32_t size, uint32_t from)
{
	float scale = (float)from / (float)size;

	if (size == from)
		return;
	for (uint32_t i = 0; i < count; i++) {
		int64_t at = (int64_t)floorf((float)table[i] * scale);

		if (table[i] != RASTER_OUTSIDE)
			table[i] = at < (int64_t)from ? (int32_t)at : (int32_t)from - 1;
	}
}

static void table_flip(int32_t *table, uint32_t count, uint32_t size)
{
	for (uint32_t i = 0; i < count; i++)
		table[i] =
			table[i] == RASTER_OUTSIDE ? RASTER_OUTSIDE : (int32_t)size - 1 - table[i];
}

/* Maps pixels after a step, of rows or columns, to pixels before it. */
static void table_step(int32_t *table, uint32_t count, const struct geometry_step *step, bool rows)
{
	uint32_t from = rows ? step->from_height : step->from_width;
	uint32_t at = rows ? step->y : step->x;

	switch (step->kind) {
	case GEOMETRY_STEP_CROP:
		table_add(table, count, (int32_t)at);
		return;
	case GEOMETRY_STEP_PAD:
		table_pad(table, count, at, from, step->reflect);
		return;
	case GEOMETRY_STEP_RESIZE:
		table_resize(table, count, rows ? step->height : step->width, from);
		return;
	case GEOMETRY_STEP_HFLIP:
	case GEOMETRY_STEP_VFLIP:
		if (rows == (step->kind == GEOMETRY_STEP_VFLIP))
			table_flip(table, count, from);
		return;
	case GEOMETRY_STEP_WARP:
		return; /* ends a segment */
	case GEOMETRY_STEP_CLAMP:
	case GEOMETRY_STEP_SANITIZE:
		return; /* move no pixel */
	}
}

/* The steps of a segment, and the size of the picture after its moves. */
struct span {
	unsigned begin, end;
	uint32_t width, height;
};

/* Makes the table that maps `count` pixels from `first` on after the steps to pixels before. */
static void table_make(const struct geometry *geometry, const struct span *span, bool rows,
		       uint32_t first, int32_t *table, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		table[i] = (int32_t)(first + i);
	for (unsigned i = span->end; i > span->begin; i--)
		table_step(table, count, &geometry->steps[i - 1], rows);
}

/*
 * Returns the number of pixels from the lowest to the highest in the table, 0 if all are
 * RASTER_OUTSIDE. Sets *ret_low to the lowest.
 */
static uint32_t table_range(const int32_t *table, uint32_t count, uint32_t *ret_low)
{
	int32_t low = INT32_MAX, high = RASTER_OUTSIDE;

	for (uint32_t i = 0; i < count; i++) {
		low = table[i] != RASTER_OUTSIDE && table[i] < low ? table[i] : low;
		high = table[i] > high ? table[i] : high;
	}
	*ret_low = high == RASTER_OUTSIDE ? 0 : (uint32_t)low;
	return high == RASTER_OUTSIDE ? 0 : (uint32_t)(high - low + 1);
}

/* Finds the segments' steps. Returns their number, and the entries of tables of whole pictures. */
static unsigned find_spans(const struct geometry *geometry, bool computed, uint32_t width,
			   uint32_t height, struct span spans[GEOMETRY_STEPS_MAX + 1],
			   size_t *ret_entries)
{
	struct span span = {.width = width, .height = height};
	unsigned count = 0;

	*ret_entries = 0;
	for (unsigned i = 0; i <= geometry->step_count; i++) {
		const struct geometry_step *step =
			i < geometry->step_count ? &geometry->steps[i] : NULL;

		if (!step || step->kind == GEOMETRY_STEP_WARP ||
		    (computed && step->kind == GEOMETRY_STEP_RESIZE)) {
			span.end = i;
			spans[count++] = span;
			*ret_entries += (size_t)span.width + span.height;
			span.begin = i + 1;
		}
		span.width = step ? step->width : 0;
		span.height = step ? step->height : 0;
	}
	return count;
}

/*
 * Sets the axes of the resize that ends a segment, and the pixels that it reads, if the next
 * segment needs `shown` of its result.
 */
static void set_axes(struct raster_segment *segment, const struct packimg_region *shown, bool cubic)
{
	const struct geometry_step *stop = segment->stop;

	segment->x = (struct float_axis){.size = stop->from_width,
					 .grid = stop->width,
					 .first = shown->x,
					 .count = shown->width};
	segment->y = (struct float_axis){.size = stop->from_height,
					 .grid = stop->height,
					 .first = shown->y,
					 .count = shown->height};
	resize_float_range(&segment->x, cubic);
	resize_float_range(&segment->y, cubic);
	segment->moved = (struct packimg_region){segment->x.low, segment->y.low, segment->x.span,
						 segment->y.span};
}

/*
 * Makes a segment's tables, of memory from `tables` on, and sets the source that they need. A warp
 * makes whole pictures.
 */
static void set_tables(struct raster_segment *segment, const struct geometry *geometry,
		       const struct span *span, int32_t *tables)
{
	const struct geometry_step *before =
		span->begin > 0 ? &geometry->steps[span->begin - 1] : NULL;
	struct packimg_region source, moved = segment->moved;

	segment->columns = tables;
	segment->rows = tables + moved.width;
	table_make(geometry, span, false, moved.x, segment->columns, moved.width);
	table_make(geometry, span, true, moved.y, segment->rows, moved.height);
	source.width = table_range(segment->columns, moved.width, &source.x);
	source.height = table_range(segment->rows, moved.height, &source.y);
	if (source.width == 0 || source.height == 0)
		source = (struct packimg_region){0};
	else if (before && before->kind == GEOMETRY_STEP_WARP)
		source = (struct packimg_region){0, 0, before->width, before->height};
	table_add(segment->columns, moved.width, -(int32_t)source.x);
	table_add(segment->rows, moved.height, -(int32_t)source.y);
	segment->source = source;
	segment->inside = true;
	for (uint32_t i = 0; i < moved.width; i++)
		segment->inside &= segment->columns[i] != RASTER_OUTSIDE;
}

int raster_segments_make(struct raster_segments *segments, const struct geometry *geometry,
			 uint32_t width, uint32_t height, enum pipeline_filter filter,
			 size_t pixels_max)
{
	struct span spans[GEOMETRY_STEPS_MAX + 1];
	size_t entries;
	unsigned count =
		find_spans(geometry, filter != PIPELINE_NEAREST, width, height, spans, &entries);
	int r = block_reserve(&segments->memory,
			      count * sizeof(*segments->segments) + entries * sizeof(int32_t));

	if (r < 0)
		return r;
	struct raster_segment *segment = (struct raster_segment *)segments->memory.data + count;
	int32_t *tables = (int32_t *)segment;
	struct packimg_region shown = {0, 0, spans[count - 1].width, spans[count - 1].height};

	segments->count = 0;
	for (unsigned i = count; i > 0 && (i == count || shown.width > 0); i--) {
		const struct span *span = &spans[i - 1];

		*--segment = (struct raster_segment){.moved = {0, 0, span->width, span->height}};
		if (i < count)
			segment->stop = &geometry->steps[span->end];
		if (segment->stop && segment->stop->kind == GEOMETRY_STEP_RESIZE) {
			if (segment->stop->width > RESIZE_SIDE_MAX ||
			    segment->stop->height > RESIZE_SIDE_MAX ||
			    (size_t)shown.width * shown.height > pixels_max)
				return -E2BIG;
			set_axes(segment, &shown, filter == PIPELINE_BICUBIC);
		}
		set_tables(segment, geometry, span, tables);
		tables += segment->moved.width + segment->moved.height;
		shown = segment->source;
		segments->count++;
	}
	segments->segments = segment;
	return 0;
}
