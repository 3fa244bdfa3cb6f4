#include "format/codec/jpeg/jpeg_pixels.h"

#include <stdbool.h>

enum {
	ROW_MARGIN = 64, /* unused bytes on either side of a row, which kernels may access */
	ALIGN = 128,
};

void jpeg_pixels_init(struct jpeg_pixels *pixels, struct scratch_budget *budget)
{
	*pixels = (struct jpeg_pixels){0};
	scratch_init(&pixels->block_indexes, budget);
	scratch_init(&pixels->samples, budget);
	scratch_init(&pixels->rows, budget);
	scratch_init(&pixels->rgb, budget);
}

void jpeg_pixels_deinit(struct jpeg_pixels *pixels)
{
	scratch_deinit(&pixels->block_indexes);
	scratch_deinit(&pixels->samples);
	scratch_deinit(&pixels->rows);
	scratch_deinit(&pixels->rgb);
}

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t max32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t divide_up(uint32_t value, uint32_t divisor)
{
	return (value + divisor - 1) / divisor;
}

static uint32_t round_up(uint32_t value, uint32_t multiple)
{
	return divide_up(value, multiple) * multiple;
}

/*
 * Capacity of a row of full-resolution chroma samples or of column sums. A row may begin two
 * samples before the region, and kernels round up.
 */
static size_t row_capacity(uint32_t width)
{
	return (size_t)round_up(width + 4, 2 * JPEG_KERNEL_SAMPLES) + 4 * ROW_MARGIN;
}

/*
 * Returns the side of a decoded block in samples. By libjpeg's rule, at reduced scale a subsampled
 * component uses a larger transform instead of upsampling, if that fits both directions.
 */
static uint32_t block_size(const struct jpeg_component *luma,
			   const struct jpeg_component *component, uint32_t min)
{
	uint32_t size = min;

	while (size < 8 && luma->h * min % (component->h * size * 2) == 0 &&
	       luma->v * min % (component->v * size * 2) == 0)
		size *= 2;
	return size;
}

/*
 * True if upsampling uses the triangle filter. By libjpeg's rule it does for a factor of two,
 * unless the plane is only one or two samples wide or a luma block is a single sample.
 */
static bool is_smooth(const struct jpeg_plane *plane, uint32_t min)
{
	if (min == 1)
		return false;
	if (plane->h_factor == 1)
		return plane->v_factor == 2;
	return plane->h_factor == 2 && plane->width > 2;
}

static void pixels_measure_plane(struct jpeg_pixels *pixels, uint32_t i)
{
	const struct jpeg_frame *frame = pixels->frame;
	const struct jpeg_component *component = &frame->components[i];
	struct jpeg_plane *plane = &pixels->planes[i];
	uint32_t min = 8 / pixels->denominator;

	plane->size = block_size(&frame->components[0], component, min);
	plane->width = divide_up(component->width, 8 / plane->size);
	plane->height = divide_up(component->height, 8 / plane->size);
	plane->h_factor = frame->components[0].h * min / (component->h * plane->size);
	plane->v_factor = frame->components[0].v * min / (component->v * plane->size);
	plane->smooth = pixels->form != JPEG_PIXELS_PLANES && is_smooth(plane, min);
}

/*
 * Computes the samples of a component that the region needs. Triangle upsampling also needs their
 * neighbours inside the component.
 */
static void pixels_lay_out_axis(uint32_t first, uint32_t size, uint32_t factor, bool smooth,
				uint32_t extent, uint32_t *ret_first, uint32_t *ret_end)
{
	uint32_t last = (first + size - 1) / factor, margin = smooth && factor > 1;

	first /= factor;
	*ret_first = first > margin ? first - margin : 0;
	*ret_end = min32(last + 1 + margin, extent);
}

/* Computes the MCUs that hold these samples. */
static void pixels_lay_out_region(struct jpeg_pixels *pixels)
{
	const struct jpeg_frame *frame = pixels->frame;

	pixels->mcus = (struct jpeg_mcus){.row_first = UINT32_MAX, .column_first = UINT32_MAX};
	for (uint32_t i = 0; i < frame->component_count; i++) {
		const struct jpeg_component *component = &frame->components[i];
		struct jpeg_plane *plane = &pixels->planes[i];

		pixels_measure_plane(pixels, i);
		uint32_t wide = plane->size * component->h, high = plane->size * component->v;
		pixels_lay_out_axis(pixels->x, pixels->width, plane->h_factor, plane->smooth,
				    plane->width, &plane->column_first, &plane->column_end);
		pixels_lay_out_axis(pixels->y, pixels->height, plane->v_factor, plane->smooth,
				    plane->height, &plane->row_first, &plane->row_end);
		pixels->mcus.column_first =
			min32(pixels->mcus.column_first, plane->column_first / wide);
		pixels->mcus.row_first = min32(pixels->mcus.row_first, plane->row_first / high);
		pixels->mcus.column_end =
			max32(pixels->mcus.column_end, (plane->column_end - 1) / wide + 1);
		pixels->mcus.row_end = max32(pixels->mcus.row_end, (plane->row_end - 1) / high + 1);
	}
}

static void fill_block_indexes(struct jpeg_pixels *pixels, uint32_t *block_indexes)
{
	uint32_t first = 0;

	for (uint32_t i = 0; i < pixels->frame->component_count; i++) {
		const struct jpeg_component *component = &pixels->frame->components[i];
		struct jpeg_plane *plane = &pixels->planes[i];
		uint32_t begin =
			plane->left / plane->size - pixels->mcus.column_first * component->h;
		unsigned shift = (unsigned)__builtin_ctz(component->h);

		plane->block_indexes = block_indexes;
		for (uint32_t v = 0; v < component->v; v++, first += component->h)
			for (uint32_t b = begin; b < begin + plane->blocks_wide; b++)
				*block_indexes++ = (b >> shift) * pixels->frame->mcu_blocks +
						   first + (b & (component->h - 1));
	}
}

/* True if the last pixel row of an MCU row depends on the chroma of the next MCU row. */
static bool looks_ahead(const struct jpeg_pixels *pixels)
{
	const struct jpeg_plane *chroma = &pixels->planes[1];

	return pixels->frame->component_count > 1 && chroma->smooth && chroma->v_factor > 1;
}

/*
 * Returns the height of a plane's ring in MCU rows: two if upsampling reads a neighbouring MCU row,
 * else one; more if the caller requested planes.
 */
static uint32_t ring_mcus(const struct jpeg_pixels *pixels)
{
	if (pixels->form == JPEG_PIXELS_PLANES)
		return JPEG_PIXELS_PLANE_RING / 8 * pixels->denominator;
	return looks_ahead(pixels) ? 2 : 1;
}

/* Lays out a plane. Returns the size of its samples in bytes. */
static size_t pixels_lay_out_plane(struct jpeg_pixels *pixels, uint32_t i)
{
	const struct jpeg_frame *frame = pixels->frame;
	const struct jpeg_component *component = &frame->components[i];
	struct jpeg_plane *plane = &pixels->planes[i];
	const uint8_t *order = pixels->kernels->quant_order;

	plane->row_mask = plane->size * component->v * ring_mcus(pixels) - 1;
	plane->left = plane->column_first / plane->size * plane->size;
	plane->blocks_wide = divide_up(plane->column_end - plane->left, plane->size);
	plane->stride = round_up(plane->blocks_wide * plane->size + 2 * ROW_MARGIN, ALIGN);
	for (unsigned k = 0; k < 64; k++)
		plane->quant[k] = frame->quant[component->quant_slot][order ? order[k] : k];
	return plane->stride * (plane->row_mask + 1);
}

int jpeg_pixels_begin(struct jpeg_pixels *pixels, const struct jpeg_frame *frame,
		      const struct jpeg_region *region, enum jpeg_pixels_form form)
{
	uint32_t width = region->width, height = region->height;
	bool whole = form == JPEG_PIXELS_WHOLE;
	size_t offsets[JPEG_COMPONENTS_MAX], sample_bytes = 0;

	pixels->kernels = jpeg_kernels_get();
	pixels->frame = frame;
	pixels->denominator = region->source.denominator ?: 1;
	pixels->form = form;
	pixels->x = region->x;
	pixels->y = region->y;
	pixels->width = width;
	pixels->height = height;
	pixels->rows_done = 0;
	pixels->row_mask = whole ? UINT32_MAX : JPEG_PIXELS_RING - 1;
	/*
	 * Kernels write past the end of a row: into rows that are not finished yet or, in the ring,
	 * into padding.
	 */
	pixels->stride = 3 * (size_t)(whole ? width : round_up(width, JPEG_KERNEL_SAMPLES));
	pixels_lay_out_region(pixels);
	uint32_t mcus = pixels->mcus.column_end - pixels->mcus.column_first;
	for (uint32_t i = 0; i < frame->component_count; i++) {
		offsets[i] = sample_bytes;
		sample_bytes += pixels_lay_out_plane(pixels, i);
	}
	int r = scratch_reserve(&pixels->block_indexes,
				sizeof(uint32_t) * mcus * pixels->frame->mcu_blocks);
	r = r ?: scratch_reserve(&pixels->samples, sample_bytes);
	if (form != JPEG_PIXELS_PLANES) {
		r = r ?: scratch_reserve(&pixels->rows, 4 * row_capacity(width));
		/* plus room for the bytes that kernels write past the last row */
		size_t rows_size = pixels->stride * (whole ? height : JPEG_PIXELS_RING);
		r = r ?: scratch_reserve(&pixels->rgb, rows_size + 3 * JPEG_KERNEL_SAMPLES);
	}
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < frame->component_count; i++)
		pixels->planes[i].samples = pixels->samples.data + offsets[i] + ROW_MARGIN;
	fill_block_indexes(pixels, (uint32_t *)(void *)pixels->block_indexes.data);
	return 0;
}

/* Returns the address of column 0 of a row, even if that column is not stored. */
static uint8_t *plane_row(const struct jpeg_plane *plane, uint32_t row)
{
	return plane->samples + (row & plane->row_mask) * plane->stride - plane->left;
}

void jpeg_pixels_samples(const struct jpeg_pixels *pixels, uint32_t i,
			 struct jpeg_samples *ret_samples)
{
	const struct jpeg_plane *plane = &pixels->planes[i];

	*ret_samples = (struct jpeg_samples){
		.data = plane->samples + plane->column_first - plane->left,
		.stride = plane->stride,
		.ring = plane->row_mask + 1,
		.first = plane->row_first & plane->row_mask,
		.width = plane->column_end - plane->column_first,
		.height = plane->row_end - plane->row_first,
		.h_factor = plane->h_factor,
		.v_factor = plane->v_factor,
		.column = plane->column_first,
		.row = plane->row_first,
	};
}

/*
 * Returns the two rows of a plane from which row y at twice the height is computed, starting at the
 * first column. At the edges a row stands in for the missing one.
 */
static struct jpeg_rows_pair row_pair(const struct jpeg_plane *plane, uint32_t y)
{
	uint32_t row = y / 2;
	uint32_t far = y & 1 ? min32(row + 1, plane->height - 1) : row > 0 ? row - 1 : 0;

	return (struct jpeg_rows_pair){plane_row(plane, row) + plane->column_first,
				       plane_row(plane, far) + plane->column_first};
}

/*
 * Extends rows by repeating the first and last sample, which is equivalent to libjpeg's special
 * cases for the first and last columns. Writes only margins and samples that no pixel of the region
 * depends on.
 */
static void repeat_edges(const struct jpeg_plane *plane, uint32_t row)
{
	uint32_t first = plane->column_first, end = plane->column_end;

	for (uint32_t i = 0; i < plane->size; i++) {
		uint8_t *samples = plane_row(plane, row + i);

		samples[(int64_t)first - 1] = samples[first];
		samples[end] = samples[end - 1];
	}
}

/*
 * Upsamples one row of a chroma component, starting at the region's left edge. work and sums are
 * scratch rows. Not for a component subsampled in both directions.
 */
static const uint8_t *upsample_row(const struct jpeg_pixels *pixels, uint32_t i, uint32_t y,
				   uint8_t *work, uint16_t *sums)
{
	const struct jpeg_plane *plane = &pixels->planes[i];
	uint32_t first = plane->column_first, end = plane->column_end;
	uint8_t *row = plane_row(plane, y / plane->v_factor);

	if (plane->h_factor == 1 && plane->v_factor == 1)
		return row + first;
	if (!plane->smooth) {
		for (uint32_t x = 0; x < pixels->width; x++)
			work[x] = row[(pixels->x + x) / plane->h_factor];
		return work;
	}
	if (plane->v_factor > 1) {
		struct jpeg_rows_pair rows = row_pair(plane, y);

		pixels->kernels->column_sums(rows.near, rows.far, sums, end - first);
		pixels->kernels->upsample_v(sums, work, end - first, y & 1 ? 2 : 1);
		return work;
	}
	pixels->kernels->upsample_h(row + first, work, end - first);
	return work + pixels->x - 2 * first;
}

/* Return the output location and the luma samples of a row of the region. */
static uint8_t *output_row(const struct jpeg_pixels *pixels, uint32_t row)
{
	return pixels->rgb.data + (row & pixels->row_mask) * pixels->stride;
}

static const uint8_t *luma_row(const struct jpeg_pixels *pixels, uint32_t row)
{
	return plane_row(&pixels->planes[0], pixels->y + row) + pixels->x;
}

/* Converts one row of the region to pixels. */
static void pixels_finish_row(struct jpeg_pixels *pixels, uint32_t row)
{
	size_t room = row_capacity(pixels->width);
	uint8_t *cb = pixels->rows.data, *cr = cb + room, *output = output_row(pixels, row);
	uint16_t *sums = (uint16_t *)(void *)(cr + room);
	const uint8_t *luma = luma_row(pixels, row);
	uint32_t y = pixels->y + row;

	if (pixels->frame->component_count == 1)
		pixels->kernels->grey(luma, output, pixels->width);
	else
		pixels->kernels->rgb(luma, upsample_row(pixels, 1, y, cb, sums),
				     upsample_row(pixels, 2, y, cr, sums), output, pixels->width);
}

/*
 * Converts a row of the region to pixels, for chroma subsampled in both directions. Also converts
 * the next row, if it is before end, uses the same two chroma rows, and the bytes written past the
 * end of one row do not overwrite the other. Returns the number of rows.
 */
static uint32_t pixels_finish_rows_hv(struct jpeg_pixels *pixels, uint32_t row, uint32_t end)
{
	const struct jpeg_plane *chroma = &pixels->planes[1];
	uint32_t y = pixels->y + row, skip = pixels->x - 2 * chroma->column_first;
	bool both = pixels->form != JPEG_PIXELS_WHOLE && y & 1 && row + 1 < end &&
		    (y + 1) / 2 < chroma->height;
	const uint8_t *luma[2] = {luma_row(pixels, row), both ? luma_row(pixels, row + 1) : NULL};
	uint8_t *output[2] = {output_row(pixels, row), output_row(pixels, row + 1)};
	struct jpeg_rows_pair pairs[2];

	for (int i = 0; i < 2; i++) {
		pairs[i] = row_pair(&chroma[i], y);
		pairs[i].near += skip / 2;
		pairs[i].far += skip / 2;
	}
	pixels->kernels->rgb_hv(luma, &pairs[0], &pairs[1], skip & 1, output, pixels->width);
	return 1 + both;
}

void jpeg_pixels_row(struct jpeg_pixels *pixels, uint32_t mcu_row, const int16_t *coefficients)
{
	const struct jpeg_frame *frame = pixels->frame;
	const struct jpeg_plane *chroma = &pixels->planes[1];
	uint32_t end = pixels->y + pixels->height;

	for (uint32_t i = 0; i < frame->component_count; i++) {
		const struct jpeg_plane *plane = &pixels->planes[i];
		uint32_t v = frame->components[i].v;
		unsigned k = (unsigned)__builtin_ctz(plane->size);

		for (uint32_t j = 0; j < v; j++) {
			uint32_t row = plane->size * (mcu_row * v + j);

			if (row + plane->size <= plane->row_first || row >= plane->row_end)
				continue;
			pixels->kernels->idct[k](
				coefficients, plane->block_indexes + (size_t)j * plane->blocks_wide,
				plane->blocks_wide, plane->quant,
				plane_row(plane, row) + plane->left, plane->stride);
			if (plane->smooth && plane->h_factor > 1)
				repeat_edges(plane, row);
		}
	}
	if (mcu_row + 1 < pixels->mcus.row_end) {
		end = (mcu_row + 1) * frame->mcu_height / pixels->denominator;
		end -= looks_ahead(pixels);
	}
	/* The region may need the first MCU row only for its last chroma row. */
	end = max32(end, pixels->y) - pixels->y;
	if (pixels->form == JPEG_PIXELS_PLANES)
		pixels->rows_done = end;
	if (frame->component_count > 1 && chroma->smooth && chroma->h_factor > 1 &&
	    chroma->v_factor > 1)
		while (pixels->rows_done < end)
			pixels->rows_done += pixels_finish_rows_hv(pixels, pixels->rows_done, end);
	for (; pixels->rows_done < end; pixels->rows_done++)
		pixels_finish_row(pixels, pixels->rows_done);
}
