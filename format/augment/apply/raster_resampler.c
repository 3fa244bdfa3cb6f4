#include "format/augment/apply/raster_resampler.h"
#include "format/augment/apply/plane.h"
#include "format/augment/kernels/effect_kernels.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Table entry for a pixel outside the source. */
enum { OUTSIDE = -1 };

/*
 * Consecutive steps that only move columns and rows, described by one table for each axis. Ends
 * before a step that needs a picture, or after the last step.
 */
struct segment {
	uint32_t width, height;           /* after the steps */
	int32_t *columns, *rows;          /* source pixels, or OUTSIDE */
	bool inside;                      /* no column is OUTSIDE */
	const struct geometry_step *stop; /* step that needs a picture, or NULL */
	unsigned next;                    /* index of the step after it */
};

/* The size of a picture, and the region of it that is in memory. */
struct picture {
	uint32_t width, height;
	struct packimg_region region;
};

void raster_resampler_init(struct raster_resampler *resampler, enum cpu_isa isa)
{
	*resampler = (struct raster_resampler){.isa = isa};
}

void raster_resampler_deinit(struct raster_resampler *resampler)
{
	free(resampler->tables.data);
	free(resampler->parts.data);
	free(resampler->planes[0].data);
	free(resampler->planes[1].data);
	resize_float_deinit(&resampler->resize);
	*resampler = (struct raster_resampler){0};
}

/* ---- tables ---- */

static void table_add(int32_t *table, uint32_t count, int32_t offset)
{
	for (uint32_t i = 0; i < count; i++)
		table[i] = table[i] == OUTSIDE ? OUTSIDE : table[i] + offset;
}

/* Mirrors at the outermost pixels without repeating them, or makes pixels beyond them OUTSIDE. */
static void table_pad(int32_t *table, uint32_t count, uint32_t before, uint32_t size, bool reflect)
{
	int32_t last = (int32_t)size - 1;

	for (uint32_t i = 0; i < count; i++) {
		int32_t at = table[i] - (int32_t)before;

		if (table[i] == OUTSIDE)
			continue;
		if (reflect)
			at = at < 0 ? -at : at > last ? 2 * last - at : at;
		table[i] = at < 0 || at > last ? OUTSIDE : at;
	}
}

static void table_resize(int32_t *table, uint32_t count, uint32_t size, uint32_t from)
{
	float scale = (float)from / (float)size;

	if (size == from)
		return;
	for (uint32_t i = 0; i < count; i++) {
		int64_t at = (int64_t)floorf((float)table[i] * scale);

		if (table[i] != OUTSIDE)
			table[i] = at < (int64_t)from ? (int32_t)at : (int32_t)from - 1;
	}
}

static void table_flip(int32_t *table, uint32_t count, uint32_t size)
{
	for (uint32_t i = 0; i < count; i++)
		table[i] = table[i] == OUTSIDE ? OUTSIDE : (int32_t)size - 1 - table[i];
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

/*
 * Makes the table that maps `count` pixels after the steps begin .. end - 1 to pixels before them,
 * which are counted from `origin`.
 */
static void table_make(const struct geometry *geometry, unsigned begin, unsigned end, bool rows,
		       uint32_t origin, int32_t *table, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		table[i] = (int32_t)i;
	for (unsigned i = end; i > begin; i--)
		table_step(table, count, &geometry->steps[i - 1], rows);
	table_add(table, count, -(int32_t)origin);
}

/*
 * Returns the number of pixels from the lowest to the highest in the table, 0 if all are OUTSIDE.
 * Sets *ret_low to the lowest.
 */
static uint32_t table_range(const int32_t *table, uint32_t count, uint32_t *ret_low)
{
	int32_t low = INT32_MAX, high = OUTSIDE;

	for (uint32_t i = 0; i < count; i++) {
		low = table[i] != OUTSIDE && table[i] < low ? table[i] : low;
		high = table[i] > high ? table[i] : high;
	}
	*ret_low = high == OUTSIDE ? 0 : (uint32_t)low;
	return high == OUTSIDE ? 0 : (uint32_t)(high - low + 1);
}

/*
 * Finds the segment that begins at a step, where the picture has width x height pixels, and makes
 * its tables. The source holds only the picture's region, so the tables count from its corner.
 */
static int segment_make(struct raster_resampler *resampler, const struct geometry *geometry,
			unsigned begin, bool bilinear, const struct picture *picture,
			struct segment *ret_segment)
{
	struct segment segment = {.width = picture->width, .height = picture->height};
	unsigned end = begin;

	for (; end < geometry->step_count; end++) {
		const struct geometry_step *step = &geometry->steps[end];

		if (step->kind == GEOMETRY_STEP_WARP ||
		    (bilinear && step->kind == GEOMETRY_STEP_RESIZE)) {
			segment.stop = step;
			break;
		}
		segment.width = step->width;
		segment.height = step->height;
	}
	int r = block_reserve(&resampler->tables,
			      ((size_t)segment.width + segment.height) * sizeof(int32_t));
	if (r < 0)
		return r;
	segment.columns = resampler->tables.data;
	segment.rows = segment.columns + segment.width;
	table_make(geometry, begin, end, false, picture->region.x, segment.columns, segment.width);
	table_make(geometry, begin, end, true, picture->region.y, segment.rows, segment.height);
	segment.inside = true;
	for (uint32_t i = 0; i < segment.width; i++)
		segment.inside &= segment.columns[i] != OUTSIDE;
	segment.next = segment.stop ? end + 1 : end;
	*ret_segment = segment;
	return 0;
}

/* Checks the size of the pictures that are computed whole. */
static int check_pictures(const struct geometry *geometry, bool bilinear)
{
	for (unsigned i = 0; i < geometry->step_count && bilinear; i++) {
		const struct geometry_step *step = &geometry->steps[i];

		if (step->kind == GEOMETRY_STEP_RESIZE &&
		    (step->width > RESIZE_SIDE_MAX || step->height > RESIZE_SIDE_MAX ||
		     (uint64_t)step->width * step->height > RASTER_RESAMPLER_PIXELS_MAX))
			return -E2BIG;
	}
	return 0;
}

int raster_resampler_begin(struct raster_resampler *resampler, const struct geometry *geometry,
			   uint32_t width, uint32_t height, bool bilinear,
			   struct packimg_region *ret_region)
{
	const struct picture all = {width, height, {0, 0, width, height}};
	struct packimg_region region;
	struct segment segment;
	int r = check_pictures(geometry, bilinear);

	if (r == 0)
		r = segment_make(resampler, geometry, 0, bilinear, &all, &segment);
	if (r < 0)
		return r;
	region.width = table_range(segment.columns, segment.width, &region.x);
	region.height = table_range(segment.rows, segment.height, &region.y);
	if (region.width == 0 || region.height == 0)
		region = (struct packimg_region){0};
	*ret_region = region;
	return 0;
}

/* ---- pixels ---- */

/*
 * Copies the pixels of one row, of `size` bytes each. `inside`: the table has no pixel
 * from outside.
 */
static inline void gather_pixels(const int32_t *restrict columns, uint32_t count, bool inside,
				 const uint8_t *restrict row, ptrdiff_t step,
				 const uint8_t *restrict fill, size_t size,
				 uint8_t *restrict output)
{
	for (uint32_t x = 0; x < count; x++) {
		const uint8_t *from =
			!inside && columns[x] == OUTSIDE ? fill : row + columns[x] * step;

		memcpy(output + x * size, from, size);
	}
}

/*
 * Passes the pixel sizes and steps of most masks as constants, so that a pixel takes few
 * instructions.
 */
static void gather_row(const int32_t *columns, uint32_t count, bool inside, const uint8_t *row,
		       ptrdiff_t step, const uint8_t *fill, size_t size, uint8_t *output)
{
	if (inside && size == 1 && step == 1)
		gather_pixels(columns, count, true, row, 1, fill, 1, output);
	else if (inside && size == 2 && step == 2)
		gather_pixels(columns, count, true, row, 2, fill, 2, output);
	else if (inside && size == 4 && step == 4)
		gather_pixels(columns, count, true, row, 4, fill, 4, output);
	else if (size == 1)
		gather_pixels(columns, count, false, row, step, fill, 1, output);
	else if (size == 2)
		gather_pixels(columns, count, false, row, step, fill, 2, output);
	else if (size == 4)
		gather_pixels(columns, count, false, row, step, fill, 4, output);
	else
		gather_pixels(columns, count, false, row, step, fill, size, output);
}

static void fill_row(uint32_t count, const uint8_t *fill, size_t size, uint8_t *output)
{
	for (uint32_t x = 0; x < count; x++)
		memcpy(output + x * size, fill, size);
}

/* Where the pixels of a segment come from. */
struct gather_source {
	const uint8_t *data; /* pixel (0, 0) of the tables */
	ptrdiff_t step_x, step_y;
	const uint8_t *fill; /* one pixel */
	size_t size;         /* bytes of a pixel */
	/* The columns as blocks of bytes for effect_kernels.arrange(), or NULL. */
	const struct effect_part *parts;
	uint32_t per_block;
	const struct effect_kernels *kernels;
};

/* Returns the offset in a source row of a byte of the output. */
static inline uint32_t source_byte(const int32_t *columns, uint32_t at, uint32_t size)
{
	return (uint32_t)columns[at / size] * size + at % size;
}

/* Returns the maximum number of parts that a block needs. */
static uint32_t parts_needed(const int32_t *columns, uint32_t bytes, uint32_t size)
{
	uint32_t widest = 0;

	for (uint32_t at = 0; at < bytes; at += EFFECT_BLOCK) {
		uint32_t low = UINT32_MAX, high = 0, offset = effect_block_offset(at, bytes);

		for (uint32_t i = 0; i < EFFECT_BLOCK; i++) {
			uint32_t from = source_byte(columns, offset + i, size);

			low = from < low ? from : low;
			high = from > high ? from : high;
		}
		widest = high - low > widest ? high - low : widest;
	}
	return widest / EFFECT_BLOCK + 1;
}

/* Describes one block. No part reads beyond the row's bytes. */
static void block_make(const int32_t *columns, uint32_t offset, uint32_t size, uint32_t row_bytes,
		       struct effect_part *parts, uint32_t per_block)
{
	uint32_t low = UINT32_MAX;

	for (uint32_t i = 0; i < EFFECT_BLOCK; i++) {
		uint32_t from = source_byte(columns, offset + i, size);

		low = from < low ? from : low;
	}
	for (uint32_t k = 0; k < per_block; k++) {
		uint32_t at = low + k * EFFECT_BLOCK, last = row_bytes - EFFECT_BLOCK;

		parts[k].at = at < last ? at : last;
		for (uint32_t i = 0; i < EFFECT_BLOCK; i++) {
			uint32_t from = source_byte(columns, offset + i, size);
			bool mine = (from - low) / EFFECT_BLOCK == k;

			parts[k].select[i] =
				mine ? (uint8_t)(from - parts[k].at) : EFFECT_ELSEWHERE;
		}
	}
}

/*
 * Describes the columns of a segment as blocks of bytes, if a kernel then moves them faster: no
 * pixel is OUTSIDE, and each block needs few parts. row_bytes is the size of a source row.
 */
static int source_arrange(struct raster_resampler *resampler, const struct segment *segment,
			  uint32_t row_bytes, struct gather_source *source)
{
	enum { PARTS_MAX = 4 };
	uint32_t size = (uint32_t)source->size, bytes = segment->width * size;

	if (resampler->isa == CPU_ISA_C || !segment->inside || size > sizeof(uint32_t) ||
	    source->step_x != (ptrdiff_t)size || bytes < EFFECT_BLOCK || row_bytes < EFFECT_BLOCK)
		return 0;
	uint32_t per_block = parts_needed(segment->columns, bytes, size);
	uint32_t blocks = (bytes + EFFECT_BLOCK - 1) / EFFECT_BLOCK;

	if (per_block > PARTS_MAX)
		return 0;
	int r = block_reserve(&resampler->parts, sizeof(*source->parts) * blocks * per_block);
	if (r < 0)
		return r;
	struct effect_part *parts = resampler->parts.data;

	for (uint32_t b = 0; b < blocks; b++)
		block_make(segment->columns, effect_block_offset(b * EFFECT_BLOCK, bytes), size,
			   row_bytes, parts + (size_t)b * per_block, per_block);
	source->parts = parts;
	source->per_block = per_block;
	source->kernels = effect_kernels_get(resampler->isa);
	return 0;
}

/* Writes all pixels of a segment, rows without padding. */
static void gather(const struct segment *segment, const struct gather_source *source,
		   uint8_t *output)
{
	size_t stride = segment->width * source->size;

	for (uint32_t y = 0; y < segment->height; y++, output += stride) {
		int32_t row = segment->rows[y];

		if (row == OUTSIDE)
			fill_row(segment->width, source->fill, source->size, output);
		else if (y > 0 && row == segment->rows[y - 1])
			memcpy(output, output - stride, stride);
		else if (source->parts)
			source->kernels->arrange(source->parts, source->per_block,
						 source->data + row * source->step_y, output,
						 (uint32_t)stride);
		else
			gather_row(segment->columns, segment->width, segment->inside,
				   source->data + row * source->step_y, source->step_x,
				   source->fill, source->size, output);
	}
}

/* ---- warps and computed resizes: one channel at a time, in planes ---- */

/* Reserves a plane, and one more pixel, which stands for all pixels outside. */
static int plane_reserve(struct raster_resampler *resampler, unsigned which, size_t pixels,
			 uint32_t **ret_plane)
{
	int r = block_reserve(&resampler->planes[which], (pixels + 1) * sizeof(uint32_t));

	*ret_plane = resampler->planes[which].data;
	return r;
}

/* Runs a step that needs a picture, on planes[*at]. Sets *at to the plane with the result. */
static int plane_step(struct raster_resampler *resampler, const struct geometry *geometry,
		      const struct geometry_step *step, uint32_t fill, unsigned *at)
{
	uint32_t *in = resampler->planes[*at].data, *out;
	int r = plane_reserve(resampler, !*at, (size_t)step->width * step->height, &out);

	if (r < 0)
		return r;
	*at = !*at;
	if (step->kind == GEOMETRY_STEP_RESIZE)
		return resize_float_run(&resampler->resize, (const float *)in, step->from_width,
					step->from_height, step->width, step->height, (float *)out);
	struct effect_map map;

	in[(size_t)step->width * step->height] = fill;
	effect_map_init(&geometry->effects.effects[step->effect].warp, step->width, step->height,
			&map);
	effect_kernels_get(resampler->isa)->warp_nearest(&map, in, out);
	return 0;
}

/* Returns true if the segment leaves the region as it is. */
static bool segment_shows_all(const struct segment *segment, const struct packimg_region *region)
{
	bool same = segment->width == region->width && segment->height == region->height;

	for (uint32_t i = 0; same && i < segment->width; i++)
		same = segment->columns[i] == (int32_t)i;
	for (uint32_t i = 0; same && i < segment->height; i++)
		same = segment->rows[i] == (int32_t)i;
	return same;
}

/*
 * Runs one segment, and the step that ends it, on planes[*at], which holds the picture's region.
 * Sets *at to the plane with the result, and *picture to the result's size.
 */
static int plane_segment(struct raster_resampler *resampler, const struct geometry *geometry,
			 const struct segment *segment, uint32_t fill, struct picture *picture,
			 unsigned *at)
{
	const struct geometry_step *stop = segment->stop;
	struct gather_source source = {
		.data = resampler->planes[*at].data,
		.step_x = sizeof(fill),
		.step_y = (ptrdiff_t)(picture->region.width * sizeof(fill)),
		.fill = (const uint8_t *)&fill,
		.size = sizeof(fill),
	};
	if (!segment_shows_all(segment, &picture->region)) {
		uint32_t *moved;
		int r = plane_reserve(resampler, !*at, (size_t)segment->width * segment->height,
				      &moved);

		if (r < 0)
			return r;
		gather(segment, &source, (uint8_t *)moved);
		*at = !*at;
	}
	uint32_t width = stop ? stop->width : segment->width;
	uint32_t height = stop ? stop->height : segment->height;

	*picture = (struct picture){width, height, {0, 0, width, height}};
	return stop ? plane_step(resampler, geometry, stop, fill, at) : 0;
}

/* Runs all steps on one channel. `picture`: size and region of the raster. */
static int run_channel(struct raster_resampler *resampler, const struct geometry *geometry,
		       struct picture picture, const struct packimg_raster *raster,
		       uint32_t channel, bool bilinear, const void *fill, uint8_t *output)
{
	const struct plane_form form = {raster->element, bilinear};
	size_t size = packimg_element_size(raster->element);
	uint32_t *plane, outside = plane_value(&form, fill);
	unsigned at = 0, next = 0;
	struct segment segment;
	int r = plane_reserve(resampler, at, (size_t)picture.region.width * picture.region.height,
			      &plane);

	if (r < 0)
		return r;
	if (picture.region.width > 0)
		plane_load(raster, channel, bilinear, plane);
	do {
		r = segment_make(resampler, geometry, next, bilinear, &picture, &segment);
		if (r == 0)
			r = plane_segment(resampler, geometry, &segment, outside, &picture, &at);
		if (r < 0)
			return r;
		next = segment.next;
	} while (next < geometry->step_count);
	plane_store(resampler->planes[at].data, (size_t)picture.width * picture.height, &form,
		    size * raster->channels, output + channel * size);
	return 0;
}

int raster_resampler_run(struct raster_resampler *resampler, const struct geometry *geometry,
			 uint32_t width, uint32_t height, bool bilinear,
			 const struct packimg_region *region, const struct packimg_raster *raster,
			 const void *fill, void *output)
{
	const struct picture picture = {width, height, *region};
	size_t size = packimg_element_size(raster->element);
	uint8_t pixel[PACKIMG_RASTER_CHANNELS_MAX * sizeof(uint32_t)];
	struct segment segment;
	int r = segment_make(resampler, geometry, 0, bilinear, &picture, &segment);

	if (r < 0)
		return r;
	if (!segment.stop) {
		struct gather_source source = {.data = raster->data,
					       .step_x = raster->step_x,
					       .step_y = raster->step_y,
					       .fill = pixel,
					       .size = size * raster->channels};

		fill_row(raster->channels, fill, size, pixel);
		r = source_arrange(resampler, &segment, region->width * (uint32_t)source.size,
				   &source);
		if (r == 0)
			gather(&segment, &source, output);
		return r;
	}
	for (uint32_t i = 0; i < raster->channels && r == 0; i++)
		r = run_channel(resampler, geometry, picture, raster, i, bilinear, fill, output);
	return r;
}
