#include "jpeg_baseline.h"

#include "jpeg_frame.h"
#include "jpeg_huffman.h"
#include "jpeg_kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROW_MARGIN = 64, /* bytes free on either side of a row that kernels may look at */
	ALIGN = 64,
};

/* A buffer that only grows. */
struct buffer {
	uint8_t *data;
	size_t capacity;
};

/* The part of a component that the region needs. */
struct plane {
	uint32_t column_first, column_end; /* samples, for pixels and upsampling */
	uint32_t row_first, row_end;
	uint32_t block_first, block_end;   /* columns of blocks kept, whole MCUs */
	uint32_t top;                      /* first sample row in the plane */
	uint8_t *samples;                  /* of block_first and top */
	size_t stride;
	int16_t *coefficients; /* of one MCU row: [v][coefficient_stride], blocks of 64 */
	size_t coefficient_stride;
};

struct jpeg_baseline {
	struct jpeg_tables tables;
	struct jpeg_frame frame;
	struct plane planes[JPEG_COMPONENTS_MAX];
	const struct jpeg_table *dc[JPEG_COMPONENTS_MAX], *ac[JPEG_COMPONENTS_MAX];
	uint32_t mcu_row_first, mcu_row_end, mcu_column_first, mcu_column_end;
	uint32_t x, y, width, height;
	size_t scan_size;
	uint32_t segment_count;
	struct buffer scan, segments, coefficients, samples, rows, pixels;
};

int jpeg_baseline_new(struct jpeg_baseline **ret_decoder)
{
	struct jpeg_baseline *decoder = calloc(1, sizeof *decoder);

	if (!decoder)
		return -ENOMEM;
	jpeg_tables_init(&decoder->tables);
	*ret_decoder = decoder;
	return 0;
}

void jpeg_baseline_free(struct jpeg_baseline *decoder)
{
	if (!decoder)
		return;
	jpeg_tables_deinit(&decoder->tables);
	free(decoder->scan.data);
	free(decoder->segments.data);
	free(decoder->coefficients.data);
	free(decoder->samples.data);
	free(decoder->rows.data);
	free(decoder->pixels.data);
	free(decoder);
}

static int reserve(struct buffer *buffer, size_t size)
{
	if (size <= buffer->capacity)
		return 0;
	size = (size + size / 4 + ALIGN - 1) / ALIGN * ALIGN;
	free(buffer->data);
	buffer->capacity = 0;
	buffer->data = aligned_alloc(ALIGN, size);
	if (!buffer->data)
		return -ENOMEM;
	buffer->capacity = size;
	return 0;
}

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/*
 * Which samples of a component the region needs: with triangle upsampling also the neighbours, as far as the component reaches.
 */
static void plan_axis(uint32_t first, uint32_t size, uint32_t factor, uint32_t extent, uint32_t *ret_first,
		      uint32_t *ret_end)
{
	uint32_t end = first + size;

	if (factor == 1) {
		*ret_first = first;
		*ret_end = end;
		return;
	}
	first /= 2;
	*ret_first = first > 0 ? first - 1 : 0;
	*ret_end = min32((end - 1) / 2 + 2, extent);
}

static void plan_planes(struct jpeg_baseline *decoder)
{
	struct jpeg_frame *frame = &decoder->frame;
	uint32_t x_first = UINT32_MAX, x_end = 0, y_first = UINT32_MAX, y_end = 0;

	for (uint32_t i = 0; i < frame->component_count; i++) {
		struct jpeg_component *component = &frame->components[i];
		struct plane *plane = &decoder->planes[i];
		uint32_t h = frame->components[0].h / component->h;
		uint32_t v = frame->components[0].v / component->v;

		plan_axis(decoder->x, decoder->width, h, component->width, &plane->column_first,
			  &plane->column_end);
		plan_axis(decoder->y, decoder->height, v, component->height, &plane->row_first,
			  &plane->row_end);
		x_first = min32(x_first, plane->column_first / (8 * component->h));
		y_first = min32(y_first, plane->row_first / (8 * component->v));
		x_end = plane->column_end > x_end * 8 * component->h
				? (plane->column_end - 1) / (8 * component->h) + 1
				: x_end;
		y_end = plane->row_end > y_end * 8 * component->v
				? (plane->row_end - 1) / (8 * component->v) + 1
				: y_end;
	}
	decoder->mcu_column_first = x_first;
	decoder->mcu_column_end = x_end;
	decoder->mcu_row_first = y_first;
	decoder->mcu_row_end = y_end;
}

/* Sizes all buffers and lays the planes out in them. */
static int lay_out(struct jpeg_baseline *decoder)
{
	struct jpeg_frame *frame = &decoder->frame;
	size_t sample_bytes = 0, coefficient_count = 0;
	uint32_t segment_max = frame->restart_interval
				       ? frame->mcus_wide * frame->mcus_high / frame->restart_interval + 1
				       : 0;
	int r = 0;

	for (uint32_t i = 0; i < frame->component_count; i++) {
		struct jpeg_component *component = &frame->components[i];
		struct plane *plane = &decoder->planes[i];

		plane->block_first = decoder->mcu_column_first * component->h;
		plane->block_end = decoder->mcu_column_end * component->h;
		plane->top = decoder->mcu_row_first * component->v * 8;
		plane->stride = ((size_t)(plane->block_end - plane->block_first) * 8 +
				 2 * ROW_MARGIN + ALIGN - 1) / ALIGN * ALIGN;
		plane->coefficient_stride =
			64 * (size_t)(plane->block_end - plane->block_first) + JPEG_BLOCK_PADDING;
		sample_bytes += plane->stride * component->v * 8 *
				(decoder->mcu_row_end - decoder->mcu_row_first);
		coefficient_count += plane->coefficient_stride * component->v;
	}
	r = r ?: reserve(&decoder->scan, frame->scan_size + JPEG_SCAN_PADDING);
	r = r ?: reserve(&decoder->segments, segment_max * sizeof(uint32_t) + 1);
	r = r ?: reserve(&decoder->coefficients, coefficient_count * 2);
	r = r ?: reserve(&decoder->samples, sample_bytes);
	r = r ?: reserve(&decoder->rows, 8 * ((size_t)decoder->width + 4 * ROW_MARGIN));
	r = r ?: reserve(&decoder->pixels, 3 * (size_t)decoder->width * decoder->height);
	if (r < 0)
		return r;
	sample_bytes = coefficient_count = 0;
	for (uint32_t i = 0; i < frame->component_count; i++) {
		struct jpeg_component *component = &frame->components[i];
		struct plane *plane = &decoder->planes[i];

		plane->samples = decoder->samples.data + sample_bytes + ROW_MARGIN;
		sample_bytes += plane->stride * component->v * 8 *
				(decoder->mcu_row_end - decoder->mcu_row_first);
		plane->coefficients = (int16_t *)decoder->coefficients.data + coefficient_count;
		coefficient_count += plane->coefficient_stride * component->v;
	}
	decoder->scan_size = jpeg_unstuff(frame->scan, frame->scan_size, decoder->scan.data,
					  (uint32_t *)decoder->segments.data, segment_max,
					  &decoder->segment_count);
	return 0;
}

static int get_tables(struct jpeg_baseline *decoder)
{
	int r = 0;

	for (uint32_t i = 0; i < decoder->frame.component_count && !r; i++) {
		r = jpeg_tables_get(&decoder->tables, decoder->frame.components[i].dc, 0, &decoder->dc[i]);
		r = r ?: jpeg_tables_get(&decoder->tables, decoder->frame.components[i].ac, 1,
					 &decoder->ac[i]);
	}
	return r;
}

/* The entropy-coded scan from its top. */
struct scan {
	struct jpeg_reader reader;
	int32_t dc[JPEG_COMPONENTS_MAX];
	uint32_t segment;  /* restart segment */
	uint32_t mcus_left; /* in the segment */
};

static int begin_segment(const struct jpeg_baseline *decoder, struct scan *scan, uint32_t segment)
{
	const uint32_t *begins = (const uint32_t *)decoder->segments.data;
	size_t begin = segment ? begins[segment - 1] : 0;
	size_t end = segment < decoder->segment_count ? begins[segment] : decoder->scan_size;

	jpeg_reader_init(&scan->reader, decoder->scan.data + begin, decoder->scan.data + end);
	memset(scan->dc, 0, sizeof scan->dc);
	scan->segment = segment;
	scan->mcus_left = decoder->frame.restart_interval;
	return 0;
}

static int next_segment(const struct jpeg_baseline *decoder, struct scan *scan)
{
	if (jpeg_reader_overrun(&scan->reader) || scan->segment >= decoder->segment_count)
		return -EBADMSG;
	return begin_segment(decoder, scan, scan->segment + 1);
}

static int skip_mcu(const struct jpeg_baseline *decoder, struct scan *scan)
{
	for (uint32_t i = 0; i < decoder->frame.component_count; i++) {
		const struct jpeg_component *component = &decoder->frame.components[i];

		for (uint32_t b = component->h * component->v; b > 0; b--) {
			int r = jpeg_block_skip(&scan->reader, decoder->dc[i], decoder->ac[i],
						&scan->dc[i]);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int keep_mcu(const struct jpeg_baseline *decoder, struct scan *scan, uint32_t column)
{
	for (uint32_t i = 0; i < decoder->frame.component_count; i++) {
		const struct jpeg_component *component = &decoder->frame.components[i];
		const struct plane *plane = &decoder->planes[i];
		int16_t *blocks = plane->coefficients +
				  64 * (size_t)(column - decoder->mcu_column_first) * component->h;

		for (uint32_t v = 0; v < component->v; v++, blocks += plane->coefficient_stride) {
			for (uint32_t h = 0; h < component->h; h++) {
				int16_t *block = blocks + 64 * (size_t)h;
				int r;

				memset(block, 0, 128);
				r = jpeg_block_decode(&scan->reader, decoder->dc[i], decoder->ac[i],
						      &scan->dc[i], block);
				if (r < 0)
					return r;
			}
		}
	}
	return 0;
}

static int decode_mcu_row(const struct jpeg_baseline *decoder, struct scan *scan, uint32_t row)
{
	int keep_row = row >= decoder->mcu_row_first;

	for (uint32_t column = 0; column < decoder->frame.mcus_wide; column++) {
		int r = 0;

		if (decoder->frame.restart_interval && scan->mcus_left-- == 0) {
			r = next_segment(decoder, scan);
			scan->mcus_left--;
		}
		if (r < 0)
			return r;
		if (keep_row && column >= decoder->mcu_column_first && column < decoder->mcu_column_end)
			r = keep_mcu(decoder, scan, column);
		else
			r = skip_mcu(decoder, scan);
		if (r < 0)
			return r;
	}
	return jpeg_reader_overrun(&scan->reader) ? -EBADMSG : 0;
}

/* One MCU row of coefficients to samples. */
static void transform_mcu_row(const struct jpeg_baseline *decoder, const struct jpeg_kernels *kernels,
			      uint32_t row)
{
	for (uint32_t i = 0; i < decoder->frame.component_count; i++) {
		const struct jpeg_component *component = &decoder->frame.components[i];
		const struct plane *plane = &decoder->planes[i];
		uint32_t wide = plane->block_end - plane->block_first;
		size_t line = (size_t)(row - decoder->mcu_row_first) * component->v * 8;

		for (uint32_t v = 0; v < component->v; v++, line += 8)
			kernels->idct(plane->coefficients + v * plane->coefficient_stride, wide,
				      decoder->frame.quant[component->quant_slot],
				      plane->samples + line * plane->stride, plane->stride);
	}
}

static uint8_t *plane_row(const struct plane *plane, uint32_t row)
{
	return plane->samples + (row - plane->top) * plane->stride;
}

/*
 * One row of a chroma component at full resolution, beginning at the region's left edge. work is a row of scratch. The component's
 * edge samples are repeated outwards, which is what libjpeg's special cases for first and last columns and rows come to.
 */
static const uint8_t *upsample_row(const struct jpeg_baseline *decoder, const struct jpeg_kernels *kernels,
				   uint32_t i, uint32_t y, uint8_t *work, uint16_t *sums)
{
	const struct jpeg_frame *frame = &decoder->frame;
	const struct jpeg_component *component = &frame->components[i];
	const struct plane *plane = &decoder->planes[i];
	uint32_t first = plane->column_first, end = plane->column_end, row = y, far = y;
	uint32_t left = plane->block_first * 8, skip;
	int halved_h = frame->components[0].h == 2, halved_v = frame->components[0].v == 2;
	uint8_t *near_row;

	if (halved_v) {
		row = y / 2;
		far = y & 1 ? min32(row + 1, component->height - 1) : row > 0 ? row - 1 : 0;
	}
	near_row = plane_row(plane, row) - left;
	skip = halved_h ? decoder->x - 2 * first : 0;
	if (halved_v) {
		kernels->column_sums(near_row + first, plane_row(plane, far) - left + first, sums,
				     end - first);
		if (!halved_h) {
			kernels->upsample_v(sums, work, end - first, y & 1 ? 2 : 1);
			return work;
		}
		sums[-1] = sums[0];
		sums[end - first] = sums[end - first - 1];
		kernels->upsample_hv(sums, work, end - first);
		return work + skip;
	}
	if (!halved_h)
		return near_row + first;
	/* Outside [first, end) lie margins and samples that no pixel of the region depends on. */
	near_row[(int64_t)first - 1] = near_row[first];
	near_row[end] = near_row[end - 1];
	kernels->upsample_h(near_row + first, work, end - first);
	return work + skip;
}

static void emit_pixels(const struct jpeg_baseline *decoder, const struct jpeg_kernels *kernels)
{
	size_t row_room = decoder->width + 4 * (size_t)ROW_MARGIN;
	uint8_t *cb = decoder->rows.data + ROW_MARGIN, *cr = cb + row_room;
	uint16_t *sums = (uint16_t *)(decoder->rows.data + 4 * row_room / ALIGN * ALIGN + ROW_MARGIN);
	uint8_t *output = decoder->pixels.data;

	for (uint32_t y = decoder->y; y < decoder->y + decoder->height; y++) {
		const uint8_t *luma = plane_row(&decoder->planes[0], y) + decoder->x -
				      decoder->planes[0].block_first * 8;

		if (decoder->frame.component_count == 1)
			kernels->grey(luma, output, decoder->width);
		else
			kernels->rgb(luma, upsample_row(decoder, kernels, 1, y, cb, sums),
				     upsample_row(decoder, kernels, 2, y, cr, sums), output,
				     decoder->width);
		output += 3 * (size_t)decoder->width;
	}
}

static int check(const struct jpeg_frame *frame, uint32_t image_width, uint32_t image_height)
{
	if (frame->width != image_width || frame->height != image_height)
		return -EBADMSG;
	/* libjpeg does not smooth chroma of one or two columns. */
	if (frame->component_count == 3 && frame->components[0].h == 2 && frame->components[1].width <= 2)
		return -ENOTSUP;
	return 0;
}

int jpeg_baseline_decode(struct jpeg_baseline *decoder, const uint8_t *data, size_t size, uint32_t image_width,
			 uint32_t image_height, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
			 const uint8_t **ret_pixels)
{
	const struct jpeg_kernels *kernels = jpeg_kernels_get();
	struct scan scan;
	int r;

	if (width == 0 || height == 0 || width > image_width || height > image_height ||
	    x > image_width - width || y > image_height - height)
		return -EINVAL;
	r = jpeg_frame_parse(data, size, &decoder->frame);
	r = r ?: check(&decoder->frame, image_width, image_height);
	r = r ?: get_tables(decoder);
	if (r < 0)
		return r;
	decoder->x = x;
	decoder->y = y;
	decoder->width = width;
	decoder->height = height;
	plan_planes(decoder);
	r = lay_out(decoder);
	if (r < 0)
		return r;
	begin_segment(decoder, &scan, 0);
	for (uint32_t row = 0; row < decoder->mcu_row_end; row++) {
		r = decode_mcu_row(decoder, &scan, row);
		if (r < 0)
			return r;
		if (row >= decoder->mcu_row_first)
			transform_mcu_row(decoder, kernels, row);
	}
	emit_pixels(decoder, kernels);
	*ret_pixels = decoder->pixels.data;
	return 0;
}
