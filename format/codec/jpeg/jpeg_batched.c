#include "format/codec/jpeg/jpeg_batched.h"

#include "format/codec/jpeg/kernels/jpeg_kernels.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
	/* approximate number of blocks in a chunk; four chunks stay in the L2 cache */
	CHUNK = 192,
	SPARE = JPEG_STREAM_BLOCKS_SPARE,
};

static_assert(JPEG_BATCHED_MAX * JPEG_FRAME_TABLES_MAX <= JPEG_TABLES_MAX, "");

void jpeg_batched_init(struct jpeg_batched *batch)
{
	*batch = (struct jpeg_batched){0};
	jpeg_tables_init(&batch->tables, JPEG_BATCHED_MAX);
}

void jpeg_batched_deinit(struct jpeg_batched *batch)
{
	jpeg_tables_deinit(&batch->tables);
	for (uint32_t i = 0; i < JPEG_BATCHED_MAX; i++) {
		scratch_deinit(&batch->images[i].scan);
		scratch_deinit(&batch->images[i].chunk);
	}
	scratch_deinit(&batch->coefficients);
}

/* Estimates the scan bytes up to row_end. If the rows take more, the image is not decoded ahead. */
static size_t batched_estimate(const struct jpeg_frame *frame, uint32_t row_end)
{
	size_t size = frame->scan_size;

	if (row_end >= frame->mcus_high)
		return size;
	size_t share = size / frame->mcus_high * (row_end + 1);
	share += share / 4 + 1024;
	return share < size ? share : size;
}

void jpeg_batched_begin(struct jpeg_batched *batch)
{
	batch->count = 0;
	batch->blocks = 0;
}

struct jpeg_batched_image *jpeg_batched_next(struct jpeg_batched *batch)
{
	return batch->count < JPEG_BATCHED_MAX ? &batch->images[batch->count] : NULL;
}

void jpeg_batched_add(struct jpeg_batched *batch)
{
	struct jpeg_batched_image *image = &batch->images[batch->count];
	uint32_t blocks = image->frame.mcu_blocks;
	uint64_t row = (uint64_t)image->frame.mcus_wide * blocks;
	uint64_t kept = (uint64_t)(image->kept.row_end - image->kept.row_first) *
			(image->kept.column_end - image->kept.column_first) * blocks;

	image->bytes = batched_estimate(&image->frame, image->kept.row_end);
	if (image->frame.restart_interval || row * image->kept.row_end > UINT32_MAX ||
	    batch->blocks + kept > JPEG_BATCHED_BLOCKS_MAX || image->bytes > JPEG_BATCHED_BYTES_MAX)
		return;
	image->done = false;
	image->left = (uint32_t)(image->kept.row_end * row);
	image->row = image->column = 0;
	memset(image->predictors, 0, sizeof(image->predictors));
	batch->blocks += kept;
	batch->count++;
}

static int16_t *batched_chunk_blocks(const struct jpeg_batched_image *image)
{
	return (int16_t *)(void *)image->chunk.data;
}

/* Copies the MCUs to keep out of the next `mcus` MCUs and advances past all of them. */
static void batched_keep(struct jpeg_batched_image *image, const int16_t *blocks, uint32_t mcus)
{
	size_t mcu = 64 * (size_t)image->frame.mcu_blocks;
	uint32_t kept_wide = image->kept.column_end - image->kept.column_first;

	while (mcus > 0) {
		uint32_t first = image->column, left = image->frame.mcus_wide - first;
		uint32_t count = mcus < left ? mcus : left, end = first + count;
		uint32_t from = first > image->kept.column_first ? first : image->kept.column_first;
		uint32_t to = end < image->kept.column_end ? end : image->kept.column_end;

		if (image->row >= image->kept.row_first && from < to)
			memcpy(image->coefficients +
				       mcu * ((size_t)(image->row - image->kept.row_first) *
						      kept_wide +
					      from - image->kept.column_first),
			       blocks + mcu * (from - first), mcu * (to - from) * sizeof(*blocks));
		blocks += mcu * count;
		mcus -= count;
		image->column = end < image->frame.mcus_wide ? end : 0;
		image->row += end == image->frame.mcus_wide;
	}
}

/* Moves the lane to the next blocks of the chunk, including blocks that it has already begun. */
static void batched_next_chunk(struct jpeg_batched_image *image, struct jpeg_lane *lane,
			       uint32_t count)
{
	int16_t surplus[64 * SPARE], *blocks = batched_chunk_blocks(image);
	size_t size = 128 * (size_t)jpeg_lane_surplus(lane);

	memcpy(surplus, blocks + 64 * (size_t)image->chunk_blocks, size);
	memset(blocks, 0, 128 * (size_t)(count + SPARE));
	memcpy(blocks, surplus, size);
	image->chunk_blocks = count;
	jpeg_lane_move(lane, blocks, count);
}

/*
 * Returns the number of blocks that can be decoded without checking each symbol: whole MCUs,
 * followed by enough blocks to absorb an overrun.
 */
static uint32_t batched_blocks_at_once(const struct jpeg_batched_image *image)
{
	uint32_t free = image->left > SPARE ? image->left - SPARE : 0;

	return (free < CHUNK ? free : CHUNK) / image->frame.mcu_blocks * image->frame.mcu_blocks;
}

static int batched_begin(struct jpeg_batched_image *image, struct jpeg_tables *tables,
			 struct jpeg_lane *lane)
{
	uint32_t none;
	int r = scratch_reserve(&image->chunk, 128 * (CHUNK + 2 * SPARE));

	r = r ?: scratch_reserve(&image->scan, image->bytes + JPEG_SCAN_PADDING);
	r = r ?: jpeg_cycle_init(&image->cycle, &image->frame, tables, image->dc, image->ac, true);
	if (r < 0)
		return r;
	size_t size =
		jpeg_unstuff(image->frame.scan, image->bytes, image->scan.data, NULL, 0, &none);
	jpeg_lane_begin(lane, &image->cycle, image->scan.data, image->scan.data + size);
	image->chunk_blocks = 0;
	batched_next_chunk(image, lane, batched_blocks_at_once(image));
	return 0;
}

/* Processes a decoded chunk. Returns 1 if it was the last, or -EBADMSG. */
static int batched_advance(struct jpeg_batched_image *image, struct jpeg_lane *lane, bool zigzag)
{
	for (bool last = false;; last = true) {
		uint32_t count = image->chunk_blocks;

		jpeg_sum_dc(&image->frame, image->predictors, batched_chunk_blocks(image),
			    count / image->frame.mcu_blocks);
		batched_keep(image, batched_chunk_blocks(image), count / image->frame.mcu_blocks);
		image->left -= count;
		if (last)
			break;
		count = batched_blocks_at_once(image);
		batched_next_chunk(image, lane, count > 0 ? count : image->left);
		if (count > 0)
			return 0;
		if (jpeg_lane_end(lane, zigzag) < 0)
			return -EBADMSG;
	}
	image->done = true;
	return 1;
}

/*
 * Checks a lane after a run, or before the first one. Returns nonzero if the image is done or has
 * failed.
 */
static int batched_look(struct jpeg_batched_image *image, struct jpeg_lane *lane, bool zigzag)
{
	int r = 0;

	while (r == 0 && jpeg_lane_in_step(lane) && lane->cursor >= lane->finish)
		r = batched_advance(image, lane, zigzag);
	if (r == 0 && (!jpeg_lane_in_step(lane) || lane->next > lane->limit))
		r = -EBADMSG;
	return r;
}

/* Returns the waiting image with the most bytes, -1 if none waits. */
static int batched_longest(const struct jpeg_batched *batch, uint32_t waiting)
{
	int found = -1;

	for (uint32_t i = 0; i < batch->count; i++)
		if (waiting & 1u << i &&
		    (found < 0 || batch->images[i].bytes > batch->images[found].bytes))
			found = (int)i;
	return found;
}

void jpeg_batched_run(struct jpeg_batched *batch)
{
	const struct jpeg_kernels *kernels = jpeg_kernels_get();
	struct jpeg_lane lanes[JPEG_STREAMS];
	uint32_t live = 0, waiting = (1u << batch->count) - 1;

	if (batch->count < 2 ||
	    scratch_reserve(&batch->coefficients, 128 * (size_t)batch->blocks) < 0)
		return;
	int16_t *coefficients = (int16_t *)(void *)batch->coefficients.data;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct jpeg_batched_image *image = &batch->images[i];

		image->coefficients = coefficients;
		coefficients += 64 * (size_t)(image->kept.row_end - image->kept.row_first) *
				(image->kept.column_end - image->kept.column_first) *
				image->frame.mcu_blocks;
	}
	for (;;) {
		int next;

		for (uint32_t i = 0; i < live;) {
			struct jpeg_batched_image *image = &batch->images[lanes[i].tag];

			if (batched_look(image, &lanes[i], kernels->zigzag) == 0)
				i++;
			else
				lanes[i] = lanes[--live];
		}
		while (live < JPEG_STREAMS && (next = batched_longest(batch, waiting)) >= 0) {
			waiting &= ~(1u << next);
			if (batched_begin(&batch->images[next], &batch->tables, &lanes[live]) == 0)
				lanes[live++].tag = (uint32_t)next;
		}
		/*
		 * It is unknown which lane met an invalid code: leave all of them to be decoded one
		 * by one.
		 */
		if (live == 0 || kernels->checked_runs[live - 1](lanes) < 0)
			return;
	}
}
