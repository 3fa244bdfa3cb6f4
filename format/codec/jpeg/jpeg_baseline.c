#include "format/codec/jpeg/jpeg_baseline.h"

#include "format/codec/jpeg/jpeg_batched.h"
#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/jpeg/jpeg_index.h"
#include "format/codec/jpeg/jpeg_pixels.h"
#include "format/codec/jpeg/jpeg_sequential.h"
#include "format/codec/jpeg/jpeg_streams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	AHEAD = 4, /* prefetch the bytes of this many rows ahead */
	RING_ROWS =
		/*
		 * MCU rows in progress or decoded early: twice the streams, because rows differ in
		 * length
		 */
	8,
};

struct jpeg_baseline {
	struct jpeg_frame frame;
	struct jpeg_tables tables;
	const struct jpeg_table *dc[JPEG_COMPONENTS_MAX], *ac[JPEG_COMPONENTS_MAX];
	struct jpeg_pixels pixels;
	struct scratch scan, coefficients, entries, index_made;
	size_t scan_size; /* bytes of the unstuffed scan */
	uint32_t mcu_row; /* next row to convert to pixels */
	/* With an index: */
	bool indexed;
	struct jpeg_index index;
	uint32_t entry, column; /* index entry and its MCU column at which each row starts */
	struct jpeg_cycle cycle;
	struct jpeg_streams streams;
	size_t row_size;      /* coefficients of one row in the ring */
	uint32_t row_started; /* first row not yet assigned to a stream */
	uint32_t rows_done;   /* one bit per ring slot */
	/* Without an index: */
	struct jpeg_sequential sequential;
	struct jpeg_batched batch;
	const struct jpeg_batched_image *found; /* image decoded ahead, or NULL */
	const struct jpeg_baseline *lender;     /* jpeg_baseline_borrow(), or NULL */
};

int jpeg_baseline_new(struct jpeg_baseline **ret_decoder)
{
	struct jpeg_baseline *decoder =
		aligned_alloc(_Alignof(struct jpeg_baseline), sizeof(*decoder));

	if (!decoder)
		return -ENOMEM;
	memset(decoder, 0, sizeof(*decoder));
	jpeg_tables_init(&decoder->tables, 1);
	jpeg_batched_init(&decoder->batch);
	*ret_decoder = decoder;
	return 0;
}

void jpeg_baseline_budget(struct jpeg_baseline *decoder, struct scratch_budget *budget)
{
	jpeg_pixels_init(&decoder->pixels, budget);
	jpeg_sequential_init(&decoder->sequential, budget);
	scratch_init(&decoder->scan, budget);
	scratch_init(&decoder->coefficients, budget);
	scratch_init(&decoder->entries, budget);
	scratch_init(&decoder->index_made, budget);
}

void jpeg_baseline_free(struct jpeg_baseline *decoder)
{
	if (!decoder)
		return;
	jpeg_tables_deinit(&decoder->tables);
	jpeg_pixels_deinit(&decoder->pixels);
	jpeg_sequential_deinit(&decoder->sequential);
	jpeg_batched_deinit(&decoder->batch);
	scratch_deinit(&decoder->scan);
	scratch_deinit(&decoder->coefficients);
	scratch_deinit(&decoder->entries);
	scratch_deinit(&decoder->index_made);
	free(decoder);
}

static int baseline_read_headers(struct jpeg_tables *tables, const struct jpeg_source *source,
				 bool skipping, struct jpeg_frame *frame,
				 const struct jpeg_table **dc, const struct jpeg_table **ac)
{
	int r = jpeg_frame_parse(source->data, source->size, frame);

	if (r < 0)
		return r;
	/*
	 * libjpeg-turbo checks completeness when decoding. An index needs a file with an end
	 * marker.
	 */
	if (!source->index && !jpeg_has_end(frame->scan, frame->scan_size))
		return -EBADMSG;
	if (frame->width != source->width || frame->height != source->height ||
	    frame->component_count != source->components)
		return -EBADMSG;
	/* A block has two codes of at least one bit each. */
	if ((uint64_t)frame->mcus_wide * frame->mcus_high * frame->component_count >
	    4 * (uint64_t)source->size)
		return -EBADMSG;
	for (uint32_t i = 0; i < frame->component_count && !r; i++) {
		const struct jpeg_component *component = &frame->components[i];

		/* Cr usually shares the tables of Cb. */
		if (i > 0 && component->dc_slot == component[-1].dc_slot &&
		    component->ac_slot == component[-1].ac_slot) {
			dc[i] = dc[i - 1];
			ac[i] = ac[i - 1];
			continue;
		}
		r = jpeg_tables_get(tables, frame->huffman[0][component->dc_slot], 0, 0, &dc[i]);
		r = r
			    ?: jpeg_tables_get(tables, frame->huffman[1][component->ac_slot], 1,
					       skipping, &ac[i]);
	}
	return r;
}

/*
 * Appends the unstuffed bytes of an MCU row, from its entry on, to those of the rows before.
 * Positions must ascend, so all rows together are no longer than the scan.
 */
static int baseline_unstuff_row(struct jpeg_baseline *decoder, uint32_t row, struct jpeg_task *task)
{
	const struct jpeg_index *index = &decoder->index;
	const struct jpeg_frame *frame = &decoder->frame;
	uint64_t begin = jpeg_index_position(index, row, decoder->entry);
	uint64_t next = row + 1 < frame->mcus_high ? jpeg_index_position(index, row + 1, 0)
						   : 8 * (uint64_t)frame->scan_size;
	size_t from = begin >> 3, to = (next + 7) >> 3;
	uint8_t *bytes = decoder->scan.data + decoder->scan_size;
	uint32_t none;

	if (next < begin || to > frame->scan_size)
		return -EBADMSG;
	to += to < frame->scan_size; /* the last byte may be an FF before a stuffed zero */
	size_t size = jpeg_unstuff(frame->scan + from, to - from, bytes, NULL, 0, &none);
	task->begin = bytes;
	task->end = bytes + size;
	task->bits = begin & 7;
	decoder->scan_size += size + JPEG_STREAM_PADDING;
	return 0;
}

/* Prefetches the bytes of an MCU row while other rows are decoded. */
static void baseline_prefetch_row(const struct jpeg_baseline *decoder, uint32_t row)
{
	const struct jpeg_frame *frame = &decoder->frame;

	if (row >= decoder->pixels.mcus.row_end)
		return;
	uint64_t from = jpeg_index_position(&decoder->index, row, decoder->entry) >> 3;
	uint64_t to = row + 1 < frame->mcus_high
			      ? jpeg_index_position(&decoder->index, row + 1, 0) >> 3
			      : frame->scan_size;
	to = to < frame->scan_size ? to : frame->scan_size;
	for (; from < to; from += 64)
		__builtin_prefetch(frame->scan + from, 0, 2);
}

static int16_t *row_blocks(const struct jpeg_baseline *decoder, uint32_t row)
{
	return (int16_t *)(void *)decoder->coefficients.data + row % RING_ROWS * decoder->row_size;
}

/* Assigns rows to free streams while the ring has room. */
static int baseline_start_rows(struct jpeg_baseline *decoder)
{
	const struct jpeg_pixels *pixels = &decoder->pixels;

	while (decoder->streams.count < JPEG_STREAMS &&
	       decoder->row_started < pixels->mcus.row_end &&
	       decoder->row_started < decoder->mcu_row + RING_ROWS) {
		uint32_t row = decoder->row_started++;
		struct jpeg_task task = {.tag = row, .blocks = row_blocks(decoder, row)};
		int r = baseline_unstuff_row(decoder, row, &task);

		baseline_prefetch_row(decoder, row + AHEAD);
		if (r < 0)
			return r;
		task.block_count =
			(pixels->mcus.column_end - decoder->column) * pixels->frame->mcu_blocks;
		memset(task.blocks, 0, 2 * decoder->row_size);
		decoder->rows_done &= ~(1u << row % RING_ROWS);
		jpeg_streams_add(&decoder->streams, &task);
	}
	return 0;
}

/* Decodes until the next MCU row is complete. */
static int baseline_decode_row(struct jpeg_baseline *decoder)
{
	const struct jpeg_pixels *pixels = &decoder->pixels;
	uint32_t wanted = decoder->mcu_row;

	for (;;) {
		uint32_t row;
		int r = baseline_start_rows(decoder);

		if (r == 0 && decoder->rows_done & 1u << wanted % RING_ROWS)
			return 0;
		r = r ?: jpeg_streams_run(&decoder->streams, &row);
		if (r < 0)
			return r;
		decoder->rows_done |= 1u << row % RING_ROWS;
		struct jpeg_index_entry entry =
			jpeg_index_get(&decoder->index, row, decoder->entry);
		jpeg_sum_dc(&decoder->frame, entry.dc, row_blocks(decoder, row),
			    pixels->mcus.column_end - decoder->column);
	}
}

/* Returns the coefficients of the next MCU row, starting at the first MCU kept. */
static int baseline_next_row(struct jpeg_baseline *decoder, const int16_t **ret_coefficients)
{
	struct jpeg_pixels *pixels = &decoder->pixels;
	int16_t *coefficients = (int16_t *)(void *)decoder->coefficients.data;
	uint32_t row = decoder->mcu_row;
	int r = 0;

	*ret_coefficients = coefficients;
	if (decoder->found) {
		const struct jpeg_batched_image *found = decoder->found;
		size_t mcu = (size_t)(row - found->kept.row_first) *
				     (found->kept.column_end - found->kept.column_first) +
			     pixels->mcus.column_first - found->kept.column_first;

		*ret_coefficients = found->coefficients + 64 * mcu * pixels->frame->mcu_blocks;
		return 0;
	}
	if (!decoder->indexed)
		return jpeg_sequential_row(&decoder->sequential, pixels->mcus.column_first,
					   pixels->mcus.column_end, coefficients);
	r = baseline_decode_row(decoder);
	*ret_coefficients = row_blocks(decoder, row) +
			    64 * (size_t)(pixels->mcus.column_first - decoder->column) *
				    pixels->frame->mcu_blocks;
	return r;
}

static int baseline_begin_indexed(struct jpeg_baseline *decoder, const struct jpeg_source *source)
{
	const struct jpeg_pixels *pixels = &decoder->pixels;

	if (!jpeg_index_possible(&decoder->frame))
		return -EBADMSG;
	int r = jpeg_index_open(source->index, source->index_size, &decoder->frame,
				&decoder->index);
	if (r < 0)
		return r;
	decoder->entry = jpeg_index_before(&decoder->index, pixels->mcus.column_first);
	decoder->column = decoder->index.plan.columns[decoder->entry];
	size_t blocks =
		(size_t)(pixels->mcus.column_end - decoder->column) * pixels->frame->mcu_blocks;
	decoder->row_size = 64 * (blocks + JPEG_STREAM_BLOCKS_SPARE);
	/* Neighbouring rows share a byte, and each row may extend two bytes further. */
	r = scratch_reserve(&decoder->scan,
			    decoder->frame.scan_size +
				    (4 + JPEG_STREAM_PADDING) * (size_t)(pixels->mcus.row_end -
									 pixels->mcus.row_first) +
				    JPEG_SCAN_PADDING);
	r = r ?: scratch_reserve(&decoder->coefficients, 2 * decoder->row_size * RING_ROWS);
	if (r < 0)
		return r;
	decoder->row_started = pixels->mcus.row_first;
	for (uint32_t row = 0; row < AHEAD; row++)
		baseline_prefetch_row(decoder, pixels->mcus.row_first + row);
	decoder->rows_done = 0;
	decoder->scan_size = 0;
	jpeg_streams_begin(&decoder->streams, &decoder->cycle, pixels->kernels->runs);
	return jpeg_cycle_init(&decoder->cycle, &decoder->frame, &decoder->tables, decoder->dc,
			       decoder->ac, false);
}

static int baseline_begin_sequential(struct jpeg_baseline *decoder)
{
	const struct jpeg_pixels *pixels = &decoder->pixels;
	size_t blocks = (size_t)(pixels->mcus.column_end - pixels->mcus.column_first) *
			pixels->frame->mcu_blocks;
	int r = scratch_reserve(&decoder->coefficients, 128 * blocks);

	return r
		       ?: jpeg_sequential_begin(&decoder->sequential, &decoder->frame, decoder->dc,
						decoder->ac, pixels->kernels->zigzag,
						pixels->mcus.row_first);
}

/*
 * True if the image was decoded ahead from this source. The caller then uses the frame stored with
 * the image: the headers may have changed since, and a new frame would misinterpret the
 * coefficients.
 */
static bool is_batched(const struct jpeg_batched_image *image, const struct jpeg_source *source)
{
	return image->indexed == (source->index != NULL) && image->done &&
	       image->data == source->data && image->size == source->size &&
	       image->frame.width == source->width && image->frame.height == source->height &&
	       image->frame.component_count == source->components;
}

/* True if the image holds all coefficients that the region needs. */
static bool batched_holds(const struct jpeg_batched_image *image, const struct jpeg_pixels *pixels)
{
	return image->kept.row_first <= pixels->mcus.row_first &&
	       image->kept.row_end >= pixels->mcus.row_end &&
	       image->kept.column_first <= pixels->mcus.column_first &&
	       image->kept.column_end >= pixels->mcus.column_end;
}

/* True if the region is inside the image and the scale is supported. */
static bool baseline_is_inside(const struct jpeg_region *region)
{
	uint32_t denominator = region->source.denominator ?: 1;

	if (denominator > 8 || (denominator & (denominator - 1)))
		return false;
	uint32_t image_width = (region->source.width + denominator - 1) / denominator;
	uint32_t image_height = (region->source.height + denominator - 1) / denominator;
	return region->width > 0 && region->height > 0 && region->width <= image_width &&
	       region->height <= image_height && region->x <= image_width - region->width &&
	       region->y <= image_height - region->height;
}

/*
 * Lays out the region. found is an image decoded ahead, or NULL. Returns 1 if found does not hold
 * all coefficients of the region.
 */
static int baseline_lay_out(struct jpeg_baseline *decoder, const struct jpeg_region *region,
			    const struct jpeg_batched_image *found, enum jpeg_pixels_form form)
{
	int r = 0;

	if (found)
		decoder->frame = found->frame;
	else
		r = baseline_read_headers(&decoder->tables, &region->source, !region->source.index,
					  &decoder->frame, decoder->dc, decoder->ac);
	if (r == 0 && form == JPEG_PIXELS_PLANES && decoder->frame.component_count != 3)
		return -ENOTSUP;
	r = r ?: jpeg_pixels_begin(&decoder->pixels, &decoder->frame, region, form);
	if (r < 0)
		return r;
	decoder->found = found;
	return found && !batched_holds(found, &decoder->pixels);
}

static int baseline_begin(struct jpeg_baseline *decoder, const struct jpeg_region *region,
			  enum jpeg_pixels_form form)
{
	const struct jpeg_source *source = &region->source;
	int r = 1;

	if (!baseline_is_inside(region))
		return -EINVAL;
	for (uint32_t i = 0; r > 0 && i < decoder->batch.count; i++)
		if (is_batched(&decoder->batch.images[i], source))
			r = baseline_lay_out(decoder, region, &decoder->batch.images[i], form);
	for (uint32_t i = 0; r > 0 && decoder->lender && i < decoder->lender->batch.count; i++)
		if (is_batched(&decoder->lender->batch.images[i], source))
			r = baseline_lay_out(decoder, region, &decoder->lender->batch.images[i],
					     form);
	if (r > 0)
		r = baseline_lay_out(decoder, region, NULL, form);
	if (r < 0)
		return r;
	decoder->mcu_row = decoder->pixels.mcus.row_first;
	decoder->indexed = source->index;
	if (decoder->found)
		return 0;
	return decoder->indexed ? baseline_begin_indexed(decoder, source)
				: baseline_begin_sequential(decoder);
}

/* Adds a region's image to the batch to decode ahead, if possible. */
static void baseline_add_batched(struct jpeg_baseline *decoder, const struct jpeg_region *region)
{
	struct jpeg_batched_image *image = jpeg_batched_next(&decoder->batch);
	const struct jpeg_source *source = &region->source;

	if (!image || source->index || !baseline_is_inside(region) ||
	    baseline_read_headers(&decoder->batch.tables, source, false, &image->frame, image->dc,
				  image->ac) < 0 ||
	    jpeg_pixels_begin(&decoder->pixels, &image->frame, region, JPEG_PIXELS_ROWS) < 0)
		return;
	image->data = source->data;
	image->size = source->size;
	image->indexed = false;
	image->kept = decoder->pixels.mcus;
	jpeg_batched_add(&decoder->batch);
}

void jpeg_baseline_batched(struct jpeg_baseline *decoder, const struct jpeg_region *regions,
			   uint32_t count)
{
	jpeg_batched_begin(&decoder->batch);
	decoder->found = NULL;
	for (uint32_t i = 0; i < count; i++)
		baseline_add_batched(decoder, &regions[i]);
	jpeg_batched_run(&decoder->batch);
}

/* Copies the coefficients of all MCU rows of the region that has begun. */
static int baseline_keep_rows(struct jpeg_baseline *decoder, struct jpeg_batched_image *image)
{
	const struct jpeg_mcus *mcus = &decoder->pixels.mcus;
	size_t blocks = (size_t)(mcus->column_end - mcus->column_first) * decoder->frame.mcu_blocks;
	uint64_t all = (uint64_t)blocks * (mcus->row_end - mcus->row_first);

	if (all > JPEG_BATCHED_BLOCKS_MAX)
		return -E2BIG;
	int r = scratch_reserve(&decoder->batch.coefficients, 128 * (size_t)all);
	if (r < 0)
		return r;
	int16_t *to = (int16_t *)(void *)decoder->batch.coefficients.data;

	image->coefficients = to;
	for (; decoder->mcu_row < mcus->row_end; decoder->mcu_row++, to += 64 * blocks) {
		const int16_t *coefficients;

		r = baseline_next_row(decoder, &coefficients);
		if (r < 0)
			return r;
		memcpy(to, coefficients, 128 * blocks);
	}
	return 0;
}

int jpeg_baseline_keep(struct jpeg_baseline *decoder, const struct jpeg_region *region)
{
	jpeg_batched_begin(&decoder->batch);
	struct jpeg_batched_image *image = jpeg_batched_next(&decoder->batch);
	int r = baseline_begin(decoder, region, JPEG_PIXELS_ROWS);

	r = r ?: baseline_keep_rows(decoder, image);
	if (r < 0)
		return r;
	image->frame = decoder->frame;
	image->data = region->source.data;
	image->size = region->source.size;
	image->indexed = decoder->indexed;
	image->kept = decoder->pixels.mcus;
	image->done = true;
	decoder->batch.count = 1;
	return 0;
}

void jpeg_baseline_borrow(struct jpeg_baseline *decoder, const struct jpeg_baseline *lender)
{
	decoder->lender = lender;
	decoder->found = NULL;
}

int jpeg_baseline_begin(struct jpeg_baseline *decoder, const struct jpeg_region *region, bool whole,
			struct jpeg_rows *ret_rows)
{
	const struct jpeg_pixels *pixels = &decoder->pixels;
	int r = baseline_begin(decoder, region, whole ? JPEG_PIXELS_WHOLE : JPEG_PIXELS_ROWS);

	if (r < 0)
		return r;
	*ret_rows = (struct jpeg_rows){pixels->rgb.data, pixels->stride, pixels->row_mask + 1};
	return 0;
}

int jpeg_baseline_begin_planes(struct jpeg_baseline *decoder, const struct jpeg_region *region,
			       struct jpeg_samples ret_samples[3])
{
	int r = baseline_begin(decoder, region, JPEG_PIXELS_PLANES);

	for (uint32_t i = 0; r == 0 && i < 3; i++)
		jpeg_pixels_samples(&decoder->pixels, i, &ret_samples[i]);
	return r;
}

int jpeg_baseline_rows(struct jpeg_baseline *decoder, uint32_t end, uint32_t *ret_ready)
{
	while (decoder->pixels.rows_done < end) {
		const int16_t *coefficients;
		int r = baseline_next_row(decoder, &coefficients);

		if (r < 0)
			return r;
		jpeg_pixels_row(&decoder->pixels, decoder->mcu_row++, coefficients);
	}
	if (ret_ready)
		*ret_ready = decoder->pixels.rows_done;
	return 0;
}

int jpeg_baseline_coefficients(struct jpeg_baseline *decoder)
{
	for (; decoder->mcu_row < decoder->pixels.mcus.row_end; decoder->mcu_row++) {
		const int16_t *coefficients;
		int r = baseline_next_row(decoder, &coefficients);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- building an index ---- */

/* Converts ascending bit positions in the unstuffed scan to positions in the file's bytes. */
struct cursor {
	const uint8_t *scan;
	size_t stuffed, unstuffed; /* bytes passed so far */
};

/* segment: the position is the first one after a restart marker. */
static uint64_t stuffed_position(struct cursor *cursor, uint64_t bits, bool segment)
{
	size_t target = bits >> 3;

	while (cursor->unstuffed < target) {
		size_t left = target - cursor->unstuffed;
		const uint8_t *from = cursor->scan + cursor->stuffed;
		const uint8_t *mark = memchr(from, 0xff, left);
		size_t run = mark ? (size_t)(mark - from) : left;

		cursor->stuffed += run;
		cursor->unstuffed += run;
		if (mark) { /* an FF with its stuffed zero, a fill byte, or a restart marker */
			cursor->stuffed += mark[1] == 0xff ? 1 : 2;
			cursor->unstuffed += mark[1] == 0;
		}
	}
	if (segment) {
		while (cursor->scan[cursor->stuffed + 1] == 0xff)
			cursor->stuffed++;
		cursor->stuffed += 2;
	}
	return 8 * (uint64_t)cursor->stuffed + (bits & 7);
}

/* Records the entries of the next row and skips it. */
static int baseline_index_row(struct jpeg_sequential *sequential,
			      const struct jpeg_index_plan *plan, struct cursor *cursor,
			      struct jpeg_index_entry *entries)
{
	uint32_t mcus_wide = sequential->frame->mcus_wide;
	int entered = jpeg_sequential_enter(sequential);

	if (entered < 0)
		return entered;
	for (uint32_t e = 0; e < plan->entry_count; e++) {
		uint32_t end = e + 1 < plan->entry_count ? plan->columns[e + 1] : mcus_wide;

		entries[e].position = stuffed_position(
			cursor, jpeg_reader_position(&sequential->reader, sequential->scan.data),
			entered && e == 0);
		for (uint32_t i = 0; i < plan->component_count; i++) {
			if (sequential->dc[i] < INT16_MIN || sequential->dc[i] > INT16_MAX)
				return -EBADMSG;
			entries[e].dc[i] = (int16_t)sequential->dc[i];
		}
		int r = jpeg_sequential_skip(sequential, end - plan->columns[e]);
		if (r < 0)
			return r;
	}
	return 0;
}

int jpeg_baseline_index(struct jpeg_baseline *decoder, const struct jpeg_source *source,
			const uint8_t **ret_index, size_t *ret_size)
{
	const struct jpeg_frame *frame = &decoder->frame;
	struct jpeg_sequential *sequential = &decoder->sequential;
	struct jpeg_index_entry *entries;
	struct jpeg_index_plan plan;
	int r = baseline_read_headers(&decoder->tables, source, true, &decoder->frame, decoder->dc,
				      decoder->ac);

	if (r == 0 && !jpeg_index_possible(frame))
		return -ENOTSUP;
	if (r < 0)
		return r;
	if (source->index) {
		r = jpeg_index_open(source->index, source->index_size, frame, &decoder->index);
		if (r < 0)
			return r;
		plan = decoder->index.plan;
	} else {
		jpeg_index_plan(frame, source->size, &plan);
	}
	r = scratch_reserve(&decoder->index_made, jpeg_index_size_max(&plan));
	r = r
		    ?: scratch_reserve(&decoder->entries, (size_t)plan.row_count *
								  plan.entry_count *
								  sizeof(*entries));
	r = r ?: jpeg_sequential_begin(sequential, frame, decoder->dc, decoder->ac, false, 0);
	if (r < 0)
		return r;
	entries = (struct jpeg_index_entry *)(void *)decoder->entries.data;
	struct cursor cursor = {.scan = frame->scan};
	for (uint32_t row = 0; row < plan.row_count; row++) {
		r = baseline_index_row(sequential, &plan, &cursor,
				       entries + (size_t)row * plan.entry_count);
		if (r < 0)
			return r;
	}
	*ret_index = decoder->index_made.data;
	*ret_size = jpeg_index_pack(&plan, entries, decoder->index_made.data);
	return 0;
}
