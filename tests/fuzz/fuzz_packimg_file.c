/*
 * Any bytes as a .pimg file: opened, checked, every record, name, class and value read, the first samples decoded. A second time with every checksum put right, which
 * no mutation would get past otherwise: of samples, side data, columns, sections and the header; opened by descriptor then. libFuzzer's mutations
 * keep them right, too, so that what they find is kept as a file that is whole.
 */
#include "dataset_read.h"
#include "fuzz.h"
#include "layout.h"
#include "packimg.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum { REPAIRED_MAX = 64, PIECE_MAX = 64, MEMORY_MAX = 64 << 20 };

static struct packimg_decoder *decoder;

static void read_and_close(struct packimg *dataset)
{
	dataset_read(decoder, dataset);
	packimg_close(dataset);
}

static int put_file(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return -1;
	}
	return fd;
}

static void open_by_path(const uint8_t *data, size_t size)
{
	struct packimg *dataset;
	struct packimg_error error;
	char path[64];

	int fd = put_file(data, size);
	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (packimg_open(path, &dataset, &error) == 0)
		read_and_close(dataset);
	close(fd);
}

static void open_by_descriptor(const uint8_t *data, size_t size)
{
	struct packimg_identity identity;
	struct packimg *dataset;
	struct packimg_error error;

	int fd = put_file(data, size);
	if (fd < 0)
		return;
	packimg_identify(fd, "fuzz", &identity, &error);
	if (packimg_open_fds("fuzz", &fd, 1, &dataset, &error) == 0)
		read_and_close(dataset);
	else
		close(fd);
	fd = put_file(data, size);
	if (fd < 0)
		return;
	if (packimg_open_facts(fd, "fuzz", &dataset, &error) == 0)
		read_and_close(dataset);
	else
		close(fd);
}

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

static void repair_checksums(uint8_t *data, size_t size)
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

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

/* A short piece of the file, of the header as often as of anything else, so that offsets go on leading to what they did. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
	uint8_t piece[PIECE_MAX];
	size_t header = sizeof(struct pimg_header);

	if (size < header || seed % 16 == 0) {
		size = LLVMFuzzerMutate(data, size, size_max);
	} else {
		size_t room = seed / 16 % 2 ? header : size, at = seed / 32 % room;
		size_t length = 1 + seed / 7 % PIECE_MAX;
		if (length > room - at)
			length = room - at;
		memcpy(piece, data + at, length);
		length = LLVMFuzzerMutate(piece, length, length);
		memcpy(data + at, piece, length);
	}
	repair_checksums(data, size);
	return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!decoder) {
		if (packimg_decoder_new(&decoder) < 0)
			return 0;
		packimg_decoder_limit(decoder, MEMORY_MAX);
	}
	open_by_path(data, size);
	uint8_t *copy = malloc(size + 1);
	memcpy(copy, data, size);
	repair_checksums(copy, size);
	open_by_descriptor(copy, size);
	free(copy);
	return 0;
}
