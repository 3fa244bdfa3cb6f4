/*
 * `packimg_forge FILE SAMPLE data|side PLACE VALUE` changes the byte at offset PLACE of a sample or
 * of its side data, and corrects all checksums, as an attacker would. FILE is a single file. Only
 * parsing the scan can detect the change.
 */
#include "format/layout.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

static void forge(uint8_t *map, uint64_t sample, bool side, uint64_t place, uint8_t value)
{
	struct pimg_header *header = (struct pimg_header *)map;

	for (uint32_t i = 0; i < header->section_count; i++) {
		struct pimg_section *section = &header->sections[i];
		struct pimg_record *record = (struct pimg_record *)(map + section->offset) + sample;

		if (section->type != PIMG_SECTION_INDEX)
			continue;
		uint8_t *bytes = map + (side ? record->side_offset : record->data_offset);
		uint32_t size = side ? record->side_size : record->data_size;
		if (place >= size)
			exit(3);
		bytes[place] = value;
		*(side ? &record->side_xxh3 : &record->data_xxh3) = XXH3_64bits(bytes, size);
		section->xxh3 = XXH3_64bits(map + section->offset, section->size);
	}
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
}

int main(int argc, char **argv)
{
	struct stat status;
	int fd = argc == 6 ? open(argv[1], O_RDWR) : -1;

	if (fd < 0 || fstat(fd, &status)) {
		fprintf(stderr, "usage: packimg_forge FILE SAMPLE data|side PLACE VALUE\n");
		return 2;
	}
	uint8_t *map =
		mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror(argv[1]);
		return 2;
	}
	forge(map, strtoull(argv[2], NULL, 10), strcmp(argv[3], "side") == 0,
	      strtoull(argv[4], NULL, 10), (uint8_t)strtoul(argv[5], NULL, 10));
	return 0;
}
