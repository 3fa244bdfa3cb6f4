#include "jpeg_index.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static uint32_t row_size(const struct jpeg_frame *frame)
{
	return 4 + 2 * frame->component_count;
}

static void put32(uint8_t *p, uint32_t value)
{
	value = htole32(value);
	memcpy(p, &value, sizeof value);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, sizeof value);
	return le32toh(value);
}

bool jpeg_index_possible(const struct jpeg_frame *frame)
{
	return frame->restart_interval % frame->mcus_wide == 0 &&
	       frame->scan_size <= UINT32_MAX / 8;
}

size_t jpeg_index_size(const struct jpeg_frame *frame)
{
	return JPEG_INDEX_HEADER_SIZE + (size_t)frame->mcus_high * row_size(frame);
}

void jpeg_index_write_header(uint8_t *output, const struct jpeg_frame *frame)
{
	output[0] = JPEG_INDEX_VERSION;
	output[1] = (uint8_t)frame->component_count;
	output[2] = output[3] = 0;
	put32(output + 4, frame->mcus_high);
}

void jpeg_index_write_row(uint8_t *output, const struct jpeg_frame *frame, uint32_t row,
			  const struct jpeg_index_row *values)
{
	output += JPEG_INDEX_HEADER_SIZE + (size_t)row * row_size(frame);
	put32(output, (uint32_t)values->position);
	for (uint32_t i = 0; i < frame->component_count; i++) {
		uint16_t dc = htole16((uint16_t)values->dc[i]);

		memcpy(output + 4 + 2 * i, &dc, sizeof dc);
	}
}

int jpeg_index_open(const uint8_t *data, size_t size, const struct jpeg_frame *frame,
		    struct jpeg_index *ret_index)
{
	if (size != jpeg_index_size(frame) || data[0] != JPEG_INDEX_VERSION ||
	    data[1] != frame->component_count || data[2] || data[3] ||
	    get32(data + 4) != frame->mcus_high)
		return -EBADMSG;
	*ret_index = (struct jpeg_index){
		.rows = data + JPEG_INDEX_HEADER_SIZE,
		.row_count = frame->mcus_high,
		.row_size = row_size(frame),
		.component_count = frame->component_count,
	};
	return 0;
}

struct jpeg_index_row jpeg_index_row(const struct jpeg_index *index, uint32_t row)
{
	const uint8_t *p = index->rows + (size_t)row * index->row_size;
	struct jpeg_index_row values = {.position = get32(p)};

	for (uint32_t i = 0; i < index->component_count; i++) {
		uint16_t dc;

		memcpy(&dc, p + 4 + 2 * i, sizeof dc);
		values.dc[i] = (int16_t)le16toh(dc);
	}
	return values;
}
