#include "whole_file.h"

#include "layout.h"

#include <string.h>
#include <xxhash.h>

enum { REPAIRED_MAX = 64, PIECE_MAX = 64 };

/* 0 where the bytes do not lie in the file: no checksum will help then. */
static uint64_t checksum(const uint8_t *data, size_t size, uint64_t offset, uint64_t length)
{
	return offset <= size && length <= size - offset ? XXH3_64bits(data + offset, length) : 0;
}

static void repair_records(uint8_t *data, size_t size, const struct pimg_section *section)
{
	struct pimg_record record;

	for (uint64_t i = 0; i < REPAIRED_MAX && (i + 1) * sizeof(record) <= section->size; i++) {
		uint8_t *place = data + section->offset + i * sizeof(record);

		memcpy(&record, place, sizeof(record));
		record.data_xxh3 = checksum(data, size, record.data_offset, record.data_size);
		record.side_xxh3 = record.side_size == 0 ? 0
							 : checksum(data, size, record.side_offset,
								    record.side_size);
		memcpy(place, &record, sizeof(record));
	}
}

static void repair_columns(uint8_t *data, size_t size, const struct pimg_section *section)
{
	struct pimg_column column;

	for (uint64_t i = 0; i < REPAIRED_MAX && (i + 1) * sizeof(column) <= section->size; i++) {
		uint8_t *place = data + section->offset + i * sizeof(column);

		memcpy(&column, place, sizeof(column));
		if (column.offset)
			column.xxh3 = checksum(data, size, column.offset, column.size);
		memcpy(place, &column, sizeof(column));
	}
}

void whole_file_repair(uint8_t *data, size_t size)
{
	struct pimg_header header;

	if (size < sizeof(header))
		return;
	memcpy(&header, data, sizeof(header));
	for (uint32_t i = 0; i < PIMG_SECTIONS_MAX; i++) {
		struct pimg_section *section = &header.sections[i];
		if (section->type == PIMG_SECTION_NONE || section->offset > size ||
		    section->size > size - section->offset)
			continue;
		if (section->type == PIMG_SECTION_INDEX)
			repair_records(data, size, section);
		else if (section->type == PIMG_SECTION_COLUMNS)
			repair_columns(data, size, section);
		section->xxh3 = XXH3_64bits(data + section->offset, section->size);
	}
	header.header_xxh3 = XXH3_64bits(&header, offsetof(struct pimg_header, header_xxh3));
	memcpy(data, &header, sizeof(header));
}

size_t whole_file_mutate(uint8_t *data, size_t size, size_t size_max, unsigned seed,
			 whole_file_mutator *mutate)
{
	uint8_t piece[PIECE_MAX];
	size_t header = sizeof(struct pimg_header);

	if (size < header || seed % 16 == 0) {
		size = mutate(data, size, size_max);
	} else {
		/* the header as often as anything else, so that offsets go on leading to what they did */
		size_t room = seed / 16 % 2 ? header : size, at = seed / 32 % room;
		size_t length = 1 + seed / 7 % PIECE_MAX;
		if (length > room - at)
			length = room - at;
		memcpy(piece, data + at, length);
		length = mutate(piece, length, length);
		memcpy(data + at, piece, length);
	}
	whole_file_repair(data, size);
	return size;
}
