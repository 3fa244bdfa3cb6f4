#include "format/augment/apply/raster_resampler.h"
#include "format/augment/apply/plane.h"
#include "format/augment/kernels/effect_kernels.h"

#include <stdlib.h>
#include <string.h>

void raster_resampler_init(struct raster_resampler *resampler, enum cpu_isa isa)
{
	*resampler = (struct raster_resampler){.isa = isa};
}

void raster_resampler_deinit(struct raster_resampler *resampler)
{
	raster_segments_deinit(&resampler->segments);
	free(resampler->parts.data);
	free(resampler->planes[0].data);
	free(resampler->planes[1].data);
	resize_float_deinit(&resampler->resize);
	*resampler = (struct raster_resampler){0};
}

int raster_resampler_begin(struct raster_resampler *resampler, const struct geometry *geometry,
			   uint32_t width, uint32_t height, enum pipeline_filter filter,
			   struct packimg_region *ret_region)
{
	int r = raster_segments_make(&resampler->segments, geometry, width, height, filter,
				     RASTER_RESAMPLER_PIXELS_MAX);

	if (r < 0)
		return r;
	resampler->geometry = geometry;
	resampler->filter = filter;
	*ret_region = resampler->segments.segments->source;
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
			!inside && columns[x] == RASTER_OUTSIDE ? fill : row + columns[x] * step;

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
 * pixel is RASTER_OUTSIDE, and each block needs few parts. row_bytes is the size of a source row.
 */
static int source_arrange(struct raster_resampler *resampler, const struct raster_segment *segment,
			  uint32_t row_bytes, struct gather_source *source)
{
	enum { PARTS_MAX = 4 };
	uint32_t size = (uint32_t)source->size, bytes = segment->moved.width * size;

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
static void gather(const struct raster_segment *segment, const struct gather_source *source,
		   uint8_t *output)
{
	size_t stride = segment->moved.width * source->size;

	for (uint32_t y = 0; y < segment->moved.height; y++, output += stride) {
		int32_t row = segment->rows[y];

		if (row == RASTER_OUTSIDE)
			fill_row(segment->moved.width, source->fill, source->size, output);
		else if (y > 0 && row == segment->rows[y - 1])
			memcpy(output, output - stride, stride);
		else if (source->parts)
			source->kernels->arrange(source->parts, source->per_block,
						 source->data + row * source->step_y, output,
						 (uint32_t)stride);
		else
			gather_row(segment->columns, segment->moved.width, segment->inside,
				   source->data + row * source->step_y, source->step_x,
				   source->fill, source->size, output);
	}
}

/* ---- warps and computed resizes: channels in planes ---- */

/* Reserves a plane, and one more value, which stands for all pixels outside. */
static int plane_reserve(struct raster_resampler *resampler, unsigned which, size_t values,
			 uint32_t **ret_plane)
{
	int r = block_reserve(&resampler->planes[which], (values + 1) * sizeof(uint32_t));

	*ret_plane = resampler->planes[which].data;
	return r;
}

/* Runs the step that ends a segment, on planes[*at]. Sets *at to the plane with the result. */
static int plane_step(struct raster_resampler *resampler, const struct raster_segment *segment,
		      const struct plane_form *form, uint32_t fill, unsigned *at)
{
	const struct geometry_step *step = segment->stop;
	uint32_t *in = resampler->planes[*at].data, *out;
	bool resize = step->kind == GEOMETRY_STEP_RESIZE;
	size_t pixels = resize ? (size_t)segment->x.count * segment->y.count
			       : (size_t)step->width * step->height;
	int r = plane_reserve(resampler, !*at, pixels * form->count, &out);

	if (r < 0)
		return r;
	*at = !*at;
	if (resize)
		return resize_float_run(&resampler->resize, form->kernels, (const float *)in,
					form->count, &segment->x, &segment->y,
					resampler->filter == PIPELINE_BICUBIC, (float *)out);
	struct effect_map map;

	in[pixels] = fill;
	effect_map_init(&resampler->geometry->effects.effects[step->effect].warp, step->width,
			step->height, &map);
	effect_kernels_get(resampler->isa)->warp_nearest(&map, in, out);
	return 0;
}

/* Returns true if the segment leaves its source as it is. */
static bool segment_shows_all(const struct raster_segment *segment)
{
	bool same = segment->moved.width == segment->source.width &&
		    segment->moved.height == segment->source.height;

	for (uint32_t i = 0; same && i < segment->moved.width; i++)
		same = segment->columns[i] == (int32_t)i;
	for (uint32_t i = 0; same && i < segment->moved.height; i++)
		same = segment->rows[i] == (int32_t)i;
	return same;
}

/*
 * Runs one segment, and the step that ends it, on planes[*at], which holds its source. `fill` is a
 * pixel. Sets *at to the plane with the result.
 */
static int plane_segment(struct raster_resampler *resampler, const struct raster_segment *segment,
			 const struct plane_form *form, const uint32_t *fill, unsigned *at)
{
	size_t pixel = form->count * sizeof(*fill);
	const struct gather_source source = {
		.data = resampler->planes[*at].data,
		.step_x = (ptrdiff_t)pixel,
		.step_y = (ptrdiff_t)(segment->source.width * pixel),
		.fill = (const uint8_t *)fill,
		.size = pixel,
	};
	if (!segment_shows_all(segment)) {
		uint32_t *moved;
		int r = plane_reserve(
			resampler, !*at,
			(size_t)segment->moved.width * segment->moved.height * form->count, &moved);

		if (r < 0)
			return r;
		gather(segment, &source, (uint8_t *)moved);
		*at = !*at;
	}
	return segment->stop ? plane_step(resampler, segment, form, *fill, at) : 0;
}

/* Runs all steps on the form's channels. */
static int run_channels(struct raster_resampler *resampler, const struct packimg_raster *raster,
			const struct plane_form *form, const void *fill, uint8_t *output)
{
	const struct raster_segment *segment = resampler->segments.segments;
	uint32_t *plane, outside[PACKIMG_RASTER_CHANNELS_MAX];
	unsigned at = 0;
	int r = plane_reserve(resampler, at,
			      (size_t)segment->source.width * segment->source.height * form->count,
			      &plane);

	for (uint32_t i = 0; i < form->count; i++)
		outside[i] = plane_value(form, fill);
	if (r == 0 && segment->source.width > 0)
		plane_load(raster, form, plane);
	for (unsigned i = 0; i < resampler->segments.count && r == 0; i++)
		r = plane_segment(resampler, &segment[i], form, outside, &at);
	if (r < 0)
		return r;
	segment += resampler->segments.count - 1;
	plane_store(resampler->planes[at].data,
		    (size_t)segment->moved.width * segment->moved.height, form, output);
	return 0;
}

/*
 * Returns the number of channels to run at once: one if a step warps, which moves values of 32
 * bits; otherwise as many as fit the planes.
 */
static uint32_t channels_at_once(const struct raster_segments *segments, uint32_t channels)
{
	size_t most = 1;

	for (unsigned i = 0; i < segments->count; i++) {
		const struct raster_segment *segment = &segments->segments[i];
		size_t source = (size_t)segment->source.width * segment->source.height;
		size_t moved = (size_t)segment->moved.width * segment->moved.height;

		if (segment->stop && segment->stop->kind == GEOMETRY_STEP_WARP)
			return 1;
		most = source > most ? source : most;
		most = moved > most ? moved : most;
	}
	size_t fit = RASTER_RESAMPLER_PIXELS_MAX / most;

	return fit > channels ? channels : fit > 0 ? (uint32_t)fit : 1;
}

int raster_resampler_run(struct raster_resampler *resampler, const struct packimg_raster *raster,
			 const void *fill, void *output)
{
	const struct raster_segment *segment = resampler->segments.segments;
	size_t size = packimg_element_size(raster->element);
	uint8_t pixel[PACKIMG_RASTER_CHANNELS_MAX * sizeof(uint32_t)];
	int r = 0;

	if (!segment->stop) {
		struct gather_source source = {.data = raster->data,
					       .step_x = raster->step_x,
					       .step_y = raster->step_y,
					       .fill = pixel,
					       .size = size * raster->channels};

		fill_row(raster->channels, fill, size, pixel);
		r = source_arrange(resampler, segment,
				   segment->source.width * (uint32_t)source.size, &source);
		if (r == 0)
			gather(segment, &source, output);
		return r;
	}
	struct plane_form form = {.element = raster->element,
				  .computed = resampler->filter != PIPELINE_NEAREST,
				  .channels = raster->channels,
				  .kernels = resize_kernels_get(resampler->isa)};
	uint32_t step = channels_at_once(&resampler->segments, raster->channels);

	for (; form.first < form.channels && r == 0; form.first += step) {
		form.count = form.channels - form.first < step ? form.channels - form.first : step;
		r = run_channels(resampler, raster, &form, fill, output);
	}
	return r;
}
