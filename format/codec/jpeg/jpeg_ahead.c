#include "format/codec/jpeg/jpeg_ahead.h"

#include "format/codec/jpeg/kernels/jpeg_kernels.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
	/* approximate number of blocks decoded at once: four chunks stay in the L2 cache */
	CHUNK = 192,
	SPARE = JPEG_STREAM_BLOCKS_SPARE,
};

static_assert(JPEG_AHEAD_MAX * JPEG_FRAME_TABLES_MAX <= JPEG_TABLES_MAX, "");

void jpeg_ahead_init(struct jpeg_ahead *ahead)
{
	*ahead = (struct jpeg_ahead){0};
	jpeg_tables_init(&ahead->tables, JPEG_AHEAD_MAX);
}

void jpeg_ahead_deinit(struct jpeg_ahead *ahead)
{
	jpeg_tables_deinit(&ahead->tables);
	for (uint32_t i = 0; i < JPEG_AHEAD_MAX; i++) {
		scratch_deinit(&ahead->images[i].scan);
		scratch_deinit(&ahead->images[i].chunk);
	}
	scratch_deinit(&ahead->coefficients);
}

/* Estimates the bytes that the rows take. If they take more, the image is not decoded ahead. */
static size_t ahead_estimate(const struct jpeg_frame *frame, uint32_t row_end)
{
	size_t size = frame->scan_size, share;

	if (row_end >= frame->mcus_high)
		return size;
	share = size / frame->mcus_high * (row_end + 1);
	share += share / 4 + 1024;
	return share < size ? share : size;
}

void jpeg_ahead_begin(struct jpeg_ahead *ahead)
{
	ahead->count = 0;
	ahead->blocks = 0;
}

struct jpeg_ahead_image *jpeg_ahead_next(struct jpeg_ahead *ahead)
{
	return ahead->count < JPEG_AHEAD_MAX ? &ahead->images[ahead->count] : NULL;
}

void jpeg_ahead_add(struct jpeg_ahead *ahead)
{
	struct jpeg_ahead_image *image = &ahead->images[ahead->count];
	uint32_t blocks = image->frame.mcu_blocks;
	uint64_t row = (uint64_t)image->frame.mcus_wide * blocks;
	uint64_t kept = (uint64_t)(image->kept.row_end - image->kept.row_first) *
			(image->kept.column_end - image->kept.column_first) * blocks;

	image->bytes = ahead_estimate(&image->frame, image->kept.row_end);
	if (image->frame.restart_interval || row * image->kept.row_end > UINT32_MAX ||
	    ahead->blocks + kept > JPEG_AHEAD_BLOCKS_MAX || image->bytes > JPEG_AHEAD_BYTES_MAX)
		return;
	image->done = false;
	image->left = (uint32_t)(image->kept.row_end * row);
	image->row = image->column = 0;
	memset(image->predictors, 0, sizeof(image->predictors));
	ahead->blocks += kept;
	ahead->count++;
}

static int16_t *ahead_chunk_blocks(const struct jpeg_ahead_image *image)
{
	return (int16_t *)(void *)image->chunk.data;
}

/* Copies the MCUs to keep out of the next ones and advances past all of them. */
static void ahead_keep(struct jpeg_ahead_image *image, const int16_t *blocks, uint32_t mcus)
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

/* Moves the lane to the next blocks of the chunk, along with those that it has already begun. */
static void ahead_next_chunk(struct jpeg_ahead_image *image, struct jpeg_lane *lane, uint32_t count)
{
	int16_t surplus[64 * SPARE], *blocks = ahead_chunk_blocks(image);
	size_t size = 128 * (size_t)jpeg_lane_surplus(lane);

	memcpy(surplus, blocks + 64 * (size_t)image->chunk_blocks, size);
	memset(blocks, 0, 128 * (size_t)(count + SPARE));
	memcpy(blocks, surplus, size);
	image->chunk_blocks = count;
	jpeg_lane_move(lane, blocks, count);
}

/*
 * Returns the number of blocks that can be decoded without checking each symbol: whole MCUs, with
 * enough blocks after them for overrun.
 */
static uint32_t ahead_blocks_at_once(const struct jpeg_ahead_image *image)
{
	uint32_t free = image->left > SPARE ? image->left - SPARE : 0;

	return (free < CHUNK ? free : CHUNK) / image->frame.mcu_blocks * image->frame.mcu_blocks;
}

static int ahead_begin(struct jpeg_ahead_image *image, struct jpeg_tables *tables,
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
	ahead_next_chunk(image, lane, ahead_blocks_at_once(image));
	return 0;
}

/* Processes a decoded chunk. Returns 1 if it was the last, or -EBADMSG. */
static int ahead_advance(struct jpeg_ahead_image *image, struct jpeg_lane *lane, bool zigzag)
{
	for (bool last = false;; last = true) {
		uint32_t count = image->chunk_blocks;

		jpeg_sum_dc(&image->frame, image->predictors, ahead_chunk_blocks(image),
			    count / image->frame.mcu_blocks);
		ahead_keep(image, ahead_chunk_blocks(image), count / image->frame.mcu_blocks);
		image->left -= count;
		if (last)
			break;
		count = ahead_blocks_at_once(image);
		ahead_next_chunk(image, lane, count > 0 ? count : image->left);
		if (count > 0)
			return 0;
		if (jpeg_lane_end(lane, zigzag) < 0)
			return -EBADMSG;
	}
	image->done = true;
	return 1;
}

/*
 * Checks a lane after a run, or before the first. Returns nonzero if nothing is left to do for the
 * image.
 */
static int ahead_look(struct jpeg_ahead_image *image, struct jpeg_lane *lane, bool zigzag)
{
	int r = 0;

	while (r == 0 && jpeg_lane_in_step(lane) && lane->place >= lane->finish)
		r = ahead_advance(image, lane, zigzag);
	if (r == 0 && (!jpeg_lane_in_step(lane) || lane->next > lane->limit))
		r = -EBADMSG;
	return r;
}

/* Returns the longest waiting image, -1 if none. */
static int ahead_longest(const struct jpeg_ahead *ahead, uint32_t waiting)
{
	int found = -1;

	for (uint32_t i = 0; i < ahead->count; i++)
		if (waiting & 1u << i &&
		    (found < 0 || ahead->images[i].bytes > ahead->images[found].bytes))
			found = (int)i;
	return found;
}

void jpeg_ahead_run(struct jpeg_ahead *ahead)
{
	const struct jpeg_kernels *kernels = jpeg_kernels_get();
	struct jpeg_lane lanes[JPEG_STREAMS];
	uint32_t live = 0, waiting = (1u << ahead->count) - 1;
	int16_t *coefficients;

	if (ahead->count < 2 ||
	    scratch_reserve(&ahead->coefficients, 128 * (size_t)ahead->blocks) < 0)
		return;
	coefficients = (int16_t *)(void *)ahead->coefficients.data;
	for (uint32_t i = 0; i < ahead->count; i++) {
		struct jpeg_ahead_image *image = &ahead->images[i];

		image->coefficients = coefficients;
		coefficients += 64 * (size_t)(image->kept.row_end - image->kept.row_first) *
				(image->kept.column_end - image->kept.column_first) *
				image->frame.mcu_blocks;
	}
	for (;;) {
		int next;

		for (uint32_t i = 0; i < live;) {
			struct jpeg_ahead_image *image = &ahead->images[lanes[i].tag];

			if (ahead_look(image, &lanes[i], kernels->zigzag) == 0)
				i++;
			else
				lanes[i] = lanes[--live];
		}
		while (live < JPEG_STREAMS && (next = ahead_longest(ahead, waiting)) >= 0) {
			waiting &= ~(1u << next);
			if (ahead_begin(&ahead->images[next], &ahead->tables, &lanes[live]) == 0)
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
