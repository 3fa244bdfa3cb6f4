#include "tests/fuzz/support/whole_file.h"

#include "format/layout.h"
#include "tests/fuzz/support/mutate.h"

#include <string.h>
#include <xxhash.h>

enum { REPAIRED_MAX = 64, PIECE_MAX = 64, WORD = 8, TABLE_MAX = 1024 };

/* Returns 0 if the range is not within the file, in which case no checksum can be right. */
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
		/* zeros in section `images` mean that there is no image */
		if (record.data_size == 0)
			continue;
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
		if (section->type == PIMG_SECTION_INDEX || section->type == PIMG_SECTION_IMAGES)
			repair_records(data, size, section);
		else if (section->type == PIMG_SECTION_COLUMNS)
			repair_columns(data, size, section);
		section->xxh3 = XXH3_64bits(data + section->offset, section->size);
	}
	header.header_xxh3 = XXH3_64bits(&header, offsetof(struct pimg_header, header_xxh3));
	memcpy(data, &header, sizeof(header));
}

/* A range of bytes in the file. */
struct range {
	size_t begin, size;
};

/*
 * Returns the range of a section's table, which holds offsets and counts; the whole file if the
 * section has no table.
 */
static struct range table_of(const uint8_t *data, size_t size, uint64_t number)
{
	struct pimg_header header;
	memcpy(&header, data, sizeof(header));
	uint32_t count =
		header.section_count < PIMG_SECTIONS_MAX ? header.section_count : PIMG_SECTIONS_MAX;
	const struct pimg_section *section = &header.sections[count > 0 ? number % count : 0];
	if (section->size == 0 || section->offset > size || section->size > size - section->offset)
		return (struct range){0, size};
	return (struct range){section->offset,
			      section->size < TABLE_MAX ? section->size : TABLE_MAX};
}

/*
 * Picks the header or a table half of the time, because they hold offsets. Picks a single word as
 * often as a longer piece, because they consist of words.
 */
static struct range draw_piece(const uint8_t *data, size_t size, uint64_t *state)
{
	struct range room = {0, size};
	uint64_t where = mutate_random(state) % 4;
	if (where == 0)
		room.size = sizeof(struct pimg_header);
	else if (where == 1)
		room = table_of(data, size, mutate_random(state));
	size_t at = mutate_random(state) % room.size, length = 1 + mutate_random(state) % PIECE_MAX;
	if (mutate_random(state) % 2) {
		at -= at % (WORD / 2);
		length = WORD / 2 * (1 + length % 2);
	}
	if (length > room.size - at)
		length = room.size - at;
	return (struct range){room.begin + at, length};
}

size_t whole_file_mutate(uint8_t *data, size_t size, size_t size_max, unsigned seed,
			 whole_file_mutator *mutate)
{
	uint8_t bytes[PIECE_MAX];
	uint64_t state = seed;

	if (size < sizeof(struct pimg_header) || mutate_random(&state) % 16 == 0) {
		size = mutate(data, size, size_max);
	} else {
		struct range piece = draw_piece(data, size, &state);
		memcpy(bytes, data + piece.begin, piece.size);
		size_t length = mutate(bytes, piece.size, piece.size);
		memcpy(data + piece.begin, bytes, length);
	}
	whole_file_repair(data, size);
	return size;
}
