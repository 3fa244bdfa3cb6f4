#include "format/codec/jpeg/jpeg_sequential.h"

#include <errno.h>
#include <string.h>

void jpeg_sequential_init(struct jpeg_sequential *sequential, struct scratch_budget *budget)
{
	*sequential = (struct jpeg_sequential){0};
	scratch_init(&sequential->scan, budget);
	scratch_init(&sequential->segments, budget);
}

void jpeg_sequential_deinit(struct jpeg_sequential *sequential)
{
	scratch_deinit(&sequential->scan);
	scratch_deinit(&sequential->segments);
}

static void sequential_begin_segment(struct jpeg_sequential *sequential, uint32_t segment)
{
	const uint32_t *begins = (const uint32_t *)(const void *)sequential->segments.data;
	const uint8_t *bytes = sequential->scan.data;
	size_t begin = segment ? begins[segment - 1] : 0;
	size_t end = segment < sequential->segment_count ? begins[segment] : sequential->scan_size;

	sequential->reader = (struct jpeg_reader){.next = bytes + begin, .end = bytes + end};
	memset(sequential->dc, 0, sizeof(sequential->dc));
	sequential->segment = segment;
	sequential->mcus_left = sequential->frame->restart_interval;
}

int jpeg_sequential_enter(struct jpeg_sequential *sequential)
{
	if (!sequential->frame->restart_interval || sequential->mcus_left > 0)
		return 0;
	if (jpeg_reader_overrun(&sequential->reader) ||
	    sequential->segment >= sequential->segment_count)
		return -EBADMSG;
	sequential_begin_segment(sequential, sequential->segment + 1);
	return 1;
}

/* Decodes one MCU; drops the coefficients if blocks is NULL. */
static int sequential_decode_mcu(struct jpeg_sequential *sequential, int16_t *blocks)
{
	const uint8_t *offsets = jpeg_block_offsets[sequential->zigzag];
	struct jpeg_reader *reader = &sequential->reader;

	if (jpeg_sequential_enter(sequential) < 0)
		return -EBADMSG;
	sequential->mcus_left--;
	for (uint32_t i = 0; i < sequential->frame->component_count; i++) {
		const struct jpeg_component *component = &sequential->frame->components[i];
		const struct jpeg_table *dc = sequential->dc_tables[i];
		const struct jpeg_table *ac = sequential->ac_tables[i];

		for (uint32_t b = component->h * component->v; b > 0; b--) {
			int r;

			if (blocks) {
				memset(blocks, 0, 128);
				r = jpeg_block_decode(reader, dc, ac, &sequential->dc[i], blocks,
						      offsets);
				blocks += 64;
			} else {
				r = jpeg_block_skip(reader, dc, ac, &sequential->dc[i]);
			}
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int jpeg_sequential_begin(struct jpeg_sequential *sequential, const struct jpeg_frame *frame,
			  const struct jpeg_table *const *dc_tables,
			  const struct jpeg_table *const *ac_tables, bool zigzag, uint32_t row)
{
	uint64_t mcu = (uint64_t)row * frame->mcus_wide;
	uint32_t interval = frame->restart_interval, segment = 0;
	uint32_t segment_max = interval ? frame->mcus_wide * frame->mcus_high / interval + 1 : 0;
	int r = scratch_reserve(&sequential->scan, frame->scan_size + JPEG_SCAN_PADDING);

	r = r ?: scratch_reserve(&sequential->segments, segment_max * sizeof(uint32_t));
	if (r < 0)
		return r;
	sequential->frame = frame;
	sequential->dc_tables = dc_tables;
	sequential->ac_tables = ac_tables;
	sequential->zigzag = zigzag;
	sequential->scan_size = jpeg_unstuff(frame->scan, frame->scan_size, sequential->scan.data,
					     (uint32_t *)(void *)sequential->segments.data,
					     segment_max, &sequential->segment_count);
	if (interval) {
		segment = (uint32_t)(mcu / interval);
		if (segment > sequential->segment_count)
			return -EBADMSG;
		mcu -= (uint64_t)segment * interval;
	}
	sequential_begin_segment(sequential, segment);
	return jpeg_sequential_skip(sequential, mcu);
}

int jpeg_sequential_skip(struct jpeg_sequential *sequential, uint64_t mcus)
{
	for (; mcus > 0; mcus--) {
		int r = sequential_decode_mcu(sequential, NULL);

		if (r < 0)
			return r;
	}
	return jpeg_reader_overrun(&sequential->reader) ? -EBADMSG : 0;
}

int jpeg_sequential_row(struct jpeg_sequential *sequential, uint32_t first, uint32_t end,
			int16_t *blocks)
{
	for (uint32_t column = 0; column < sequential->frame->mcus_wide; column++) {
		bool keep = column >= first && column < end;
		int r = sequential_decode_mcu(sequential, keep ? blocks : NULL);

		if (r < 0)
			return r;
		if (keep)
			blocks += 64 * (size_t)sequential->frame->mcu_blocks;
	}
	return jpeg_reader_overrun(&sequential->reader) ? -EBADMSG : 0;
}
