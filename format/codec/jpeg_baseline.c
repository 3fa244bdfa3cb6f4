#include "jpeg_baseline.h"

#include "jpeg_frame.h"
#include "jpeg_huffman.h"
#include "jpeg_index.h"
#include "jpeg_pixels.h"
#include "jpeg_streams.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROWS_AT_ONCE = 8, /* twice the streams, so that rows of unequal length even out */
};

struct jpeg_baseline {
	struct jpeg_frame frame;
	struct jpeg_tables tables;
	const struct jpeg_table *dc[JPEG_COMPONENTS_MAX], *ac[JPEG_COMPONENTS_MAX];
	struct jpeg_pixels pixels;
	struct jpeg_buffer scan, segments, coefficients, index;
	size_t scan_size;	/* of the unstuffed scan */
	uint32_t segment_count; /* restart markers in it */
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
	jpeg_pixels_deinit(&decoder->pixels);
	jpeg_buffer_deinit(&decoder->scan);
	jpeg_buffer_deinit(&decoder->segments);
	jpeg_buffer_deinit(&decoder->coefficients);
	jpeg_buffer_deinit(&decoder->index);
	free(decoder);
}

static int read_headers(struct jpeg_baseline *decoder, const struct jpeg_source *source)
{
	struct jpeg_frame *frame = &decoder->frame;
	int r = jpeg_frame_parse(source->data, source->size, frame);

	if (r < 0)
		return r;
	if (frame->width != source->width || frame->height != source->height ||
	    frame->component_count != source->components)
		return -EBADMSG;
	/* A block takes two codes of at least one bit each. */
	if ((uint64_t)frame->mcus_wide * frame->mcus_high * frame->component_count >
	    4 * (uint64_t)source->size)
		return -EBADMSG;
	/* libjpeg does not smooth chroma of one or two columns. */
	if (frame->component_count == 3 && frame->components[0].h == 2 &&
	    frame->components[1].width <= 2)
		return -ENOTSUP;
	for (uint32_t i = 0; i < frame->component_count && !r; i++) {
		r = jpeg_tables_get(&decoder->tables, frame->components[i].dc, 0, &decoder->dc[i]);
		r = r
			    ?: jpeg_tables_get(&decoder->tables, frame->components[i].ac, 1,
					       &decoder->ac[i]);
	}
	return r;
}

/* The whole scan without stuffing. */
static int unstuff_scan(struct jpeg_baseline *decoder)
{
	const struct jpeg_frame *frame = &decoder->frame;
	uint32_t segment_max =
		frame->restart_interval
			? frame->mcus_wide * frame->mcus_high / frame->restart_interval + 1
			: 0;
	int r = jpeg_buffer_reserve(&decoder->scan, frame->scan_size + JPEG_SCAN_PADDING);

	r = r ?: jpeg_buffer_reserve(&decoder->segments, segment_max * sizeof(uint32_t));
	if (r < 0)
		return r;
	decoder->scan_size =
		jpeg_unstuff(frame->scan, frame->scan_size, decoder->scan.data,
			     decoder->segments.data, segment_max, &decoder->segment_count);
	return 0;
}

/* ---- from the top of the scan ---- */

struct scan {
	struct jpeg_reader reader;
	int32_t dc[JPEG_COMPONENTS_MAX];
	uint32_t segment;   /* restart segment */
	uint32_t mcus_left; /* in the segment */
};

static void begin_segment(const struct jpeg_baseline *decoder, struct scan *scan, uint32_t segment)
{
	const uint32_t *begins = decoder->segments.data;
	const uint8_t *bytes = decoder->scan.data;
	size_t begin = segment ? begins[segment - 1] : 0;
	size_t end = segment < decoder->segment_count ? begins[segment] : decoder->scan_size;

	jpeg_reader_init(&scan->reader, bytes + begin, bytes + end);
	memset(scan->dc, 0, sizeof scan->dc);
	scan->segment = segment;
	scan->mcus_left = decoder->frame.restart_interval;
}

/* blocks NULL: decode and drop. */
static int decode_mcu(const struct jpeg_baseline *decoder, struct scan *scan, int16_t *blocks)
{
	for (uint32_t i = 0; i < decoder->frame.component_count; i++) {
		const struct jpeg_component *component = &decoder->frame.components[i];

		for (uint32_t b = component->h * component->v; b > 0; b--) {
			int r;

			if (blocks) {
				memset(blocks, 0, 128);
				r = jpeg_block_decode(&scan->reader, decoder->dc[i], decoder->ac[i],
						      &scan->dc[i], blocks);
				blocks += 64;
			} else {
				r = jpeg_block_skip(&scan->reader, decoder->dc[i], decoder->ac[i],
						    &scan->dc[i]);
			}
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int decode_mcu_row(const struct jpeg_baseline *decoder, struct scan *scan, bool keep)
{
	const struct jpeg_pixels *pixels = &decoder->pixels;
	int16_t *blocks = decoder->coefficients.data;

	for (uint32_t column = 0; column < decoder->frame.mcus_wide; column++) {
		bool keep_mcu = keep && column >= pixels->mcu_column_first &&
				column < pixels->mcu_column_end;
		int r;

		if (decoder->frame.restart_interval) {
			if (scan->mcus_left == 0) {
				if (jpeg_reader_overrun(&scan->reader) ||
				    scan->segment >= decoder->segment_count)
					return -EBADMSG;
				begin_segment(decoder, scan, scan->segment + 1);
			}
			scan->mcus_left--;
		}
		r = decode_mcu(decoder, scan, keep_mcu ? blocks : NULL);
		if (r < 0)
			return r;
		if (keep_mcu)
			blocks += 64 * (size_t)pixels->mcu_blocks;
	}
	return jpeg_reader_overrun(&scan->reader) ? -EBADMSG : 0;
}

static int decode_from_top(struct jpeg_baseline *decoder)
{
	struct jpeg_pixels *pixels = &decoder->pixels;
	size_t blocks =
		(size_t)(pixels->mcu_column_end - pixels->mcu_column_first) * pixels->mcu_blocks;
	struct scan scan;
	int r = unstuff_scan(decoder);

	r = r ?: jpeg_buffer_reserve(&decoder->coefficients, 128 * blocks);
	if (r < 0)
		return r;
	begin_segment(decoder, &scan, 0);
	for (uint32_t row = 0; row < pixels->mcu_row_end; row++) {
		r = decode_mcu_row(decoder, &scan, row >= pixels->mcu_row_first);
		if (r < 0)
			return r;
		if (row >= pixels->mcu_row_first)
			jpeg_pixels_row(pixels, row, decoder->coefficients.data);
	}
	return 0;
}

/* ---- from an index ---- */

/* Unstuffs the bytes of MCU rows [first, end) one behind the other and says where each row lies now. */
static int unstuff_rows(struct jpeg_baseline *decoder, const struct jpeg_index *index,
			uint32_t first, uint32_t end, struct jpeg_task *tasks)
{
	const struct jpeg_frame *frame = &decoder->frame;
	uint64_t begin = jpeg_index_row(index, first).position;
	uint8_t *bytes = decoder->scan.data;
	size_t used = 0;

	for (uint32_t row = first; row < end; row++) {
		uint64_t next = row + 1 < index->row_count ? jpeg_index_row(index, row + 1).position
							   : 8 * (uint64_t)frame->scan_size;
		size_t from = begin >> 3, to = (next + 7) >> 3;
		uint32_t none;

		if (next < begin || to > frame->scan_size)
			return -EBADMSG;
		to += to < frame->scan_size; /* the last byte may be an FF that is stuffed */
		tasks[row - first].position = 8 * used + (begin & 7);
		used += jpeg_unstuff(frame->scan + from, to - from, bytes + used, NULL, 0, &none);
		tasks[row - first].end = 8 * used;
		begin = next;
	}
	decoder->scan_size = used;
	return 0;
}

/* DC differences to values, for the blocks of one row from its beginning. */
static void sum_dc(const struct jpeg_frame *frame, const int16_t first[JPEG_COMPONENTS_MAX],
		   int16_t *blocks, uint32_t mcus)
{
	int16_t dc[JPEG_COMPONENTS_MAX];

	memcpy(dc, first, sizeof dc);
	for (; mcus > 0; mcus--)
		for (uint32_t i = 0; i < frame->component_count; i++)
			for (uint32_t b = frame->components[i].h * frame->components[i].v; b > 0;
			     b--) {
				dc[i] = (int16_t)((uint16_t)dc[i] + (uint16_t)blocks[0]);
				blocks[0] = dc[i];
				blocks += 64;
			}
}

static int decode_rows(struct jpeg_baseline *decoder, const struct jpeg_cycle *cycle,
		       const struct jpeg_index *index, uint32_t first, uint32_t end)
{
	struct jpeg_pixels *pixels = &decoder->pixels;
	uint32_t blocks = pixels->mcu_column_end * pixels->mcu_blocks;
	size_t row_size = 64 * (size_t)(blocks + JPEG_STREAM_BLOCKS_SPARE);
	int16_t *coefficients = decoder->coefficients.data;
	struct jpeg_task tasks[ROWS_AT_ONCE];
	int r = unstuff_rows(decoder, index, first, end, tasks);

	if (r < 0)
		return r;
	memset(coefficients, 0, 2 * row_size * (end - first));
	for (uint32_t i = 0; i < end - first; i++) {
		tasks[i].blocks = coefficients + i * row_size;
		tasks[i].block_count = blocks;
	}
	r = jpeg_streams_decode(cycle, decoder->scan.data, decoder->scan_size, tasks, end - first);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < end - first; i++) {
		sum_dc(&decoder->frame, jpeg_index_row(index, first + i).dc, tasks[i].blocks,
		       pixels->mcu_column_end);
		jpeg_pixels_row(pixels, first + i,
				tasks[i].blocks +
					64 * (size_t)pixels->mcu_column_first * pixels->mcu_blocks);
	}
	return 0;
}

static int decode_from_index(struct jpeg_baseline *decoder, const struct jpeg_source *source)
{
	struct jpeg_pixels *pixels = &decoder->pixels;
	uint32_t blocks = pixels->mcu_column_end * pixels->mcu_blocks + JPEG_STREAM_BLOCKS_SPARE;
	struct jpeg_index index;
	struct jpeg_cycle cycle;
	int r;

	if (decoder->frame.restart_interval)
		return -EBADMSG;
	r = jpeg_index_open(source->index, source->index_size, &decoder->frame, &index);
	/* Rows share a byte each, and reach two bytes on. */
	r = r
		    ?: jpeg_buffer_reserve(&decoder->scan, decoder->frame.scan_size +
								   4 * ROWS_AT_ONCE +
								   JPEG_SCAN_PADDING);
	r = r ?: jpeg_buffer_reserve(&decoder->coefficients, 128 * (size_t)blocks * ROWS_AT_ONCE);
	if (r < 0)
		return r;
	jpeg_cycle_init(&cycle, &decoder->frame, decoder->dc, decoder->ac);
	for (uint32_t row = pixels->mcu_row_first; row < pixels->mcu_row_end;) {
		uint32_t end = row + ROWS_AT_ONCE < pixels->mcu_row_end ? row + ROWS_AT_ONCE
									: pixels->mcu_row_end;

		r = decode_rows(decoder, &cycle, &index, row, end);
		if (r < 0)
			return r;
		row = end;
	}
	return 0;
}

int jpeg_baseline_decode(struct jpeg_baseline *decoder, const struct jpeg_source *source,
			 uint32_t x, uint32_t y, uint32_t width, uint32_t height,
			 const uint8_t **ret_pixels)
{
	int r;

	if (width == 0 || height == 0 || width > source->width || height > source->height ||
	    x > source->width - width || y > source->height - height)
		return -EINVAL;
	r = read_headers(decoder, source);
	r = r ?: jpeg_pixels_begin(&decoder->pixels, &decoder->frame, x, y, width, height);
	if (r < 0)
		return r;
	r = source->index ? decode_from_index(decoder, source) : decode_from_top(decoder);
	if (r < 0)
		return r;
	*ret_pixels = jpeg_pixels_end(&decoder->pixels);
	return 0;
}

/* ---- making an index ---- */

/* Turns a bit position in the unstuffed scan into one in the file's bytes, going on from where it stood. */
struct place {
	const uint8_t *scan;
	size_t stuffed, unstuffed; /* bytes passed */
};

static uint64_t stuffed_position(struct place *place, uint64_t bits)
{
	size_t target = bits >> 3;

	while (place->unstuffed < target) {
		size_t left = target - place->unstuffed;
		const uint8_t *from = place->scan + place->stuffed;
		const uint8_t *mark = memchr(from, 0xff, left);

		if (!mark) {
			place->stuffed += left;
			place->unstuffed += left;
		} else {
			place->stuffed += (size_t)(mark - from) + 2;
			place->unstuffed += (size_t)(mark - from) + 1;
		}
	}
	return 8 * (uint64_t)place->stuffed + (bits & 7);
}

/* Is there nothing but fill between the last coded bit and the end of image? */
static bool ends_well(const struct jpeg_frame *frame, struct place *place, uint64_t bits)
{
	uint64_t at = stuffed_position(place, bits + 7) >> 3;

	while (at + 2 < frame->scan_size && frame->scan[at] == 0xff && frame->scan[at + 1] == 0xff)
		at++;
	return at + 2 <= frame->scan_size && frame->scan[at] == 0xff && frame->scan[at + 1] == 0xd9;
}

int jpeg_baseline_index(struct jpeg_baseline *decoder, const struct jpeg_source *source,
			const uint8_t **ret_index, size_t *ret_size)
{
	const struct jpeg_frame *frame = &decoder->frame;
	struct place place;
	struct scan scan;
	uint64_t bits = 0;
	int r = read_headers(decoder, source);

	if (r == 0 && (frame->restart_interval || frame->scan_size > UINT32_MAX / 8))
		return -ENOTSUP;
	r = r ?: jpeg_buffer_reserve(&decoder->index, jpeg_index_size(frame));
	r = r ?: unstuff_scan(decoder);
	if (r < 0)
		return r;
	jpeg_index_write_header(decoder->index.data, frame);
	place = (struct place){.scan = frame->scan};
	begin_segment(decoder, &scan, 0);
	for (uint32_t row = 0; row < frame->mcus_high; row++) {
		struct jpeg_index_row values = {.position = stuffed_position(&place, bits)};

		for (uint32_t i = 0; i < frame->component_count; i++) {
			if (scan.dc[i] < INT16_MIN || scan.dc[i] > INT16_MAX)
				return -EBADMSG;
			values.dc[i] = (int16_t)scan.dc[i];
		}
		jpeg_index_write_row(decoder->index.data, frame, row, &values);
		r = decode_mcu_row(decoder, &scan, false);
		if (r < 0)
			return r;
		bits = jpeg_reader_position(&scan.reader, decoder->scan.data);
	}
	if (!ends_well(frame, &place, bits))
		return -EBADMSG;
	*ret_index = decoder->index.data;
	*ret_size = jpeg_index_size(frame);
	return 0;
}
