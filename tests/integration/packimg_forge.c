/*
 * Changes a byte of a sample's side data and makes all checksums fit again, as somebody with intent would:
 *   packimg_forge FILE SAMPLE PLACE VALUE
 * FILE is a single file. What only a look at the scan can find is left to be found.
 */
#include "layout.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

static void forge(uint8_t *map, uint64_t sample, uint64_t place, uint8_t value)
{
	struct pimg_header *header = (struct pimg_header *)map;

	for (uint32_t i = 0; i < header->section_count; i++) {
		struct pimg_section *section = &header->sections[i];
		struct pimg_record *record = (struct pimg_record *)(map + section->offset) + sample;

		if (section->type != PIMG_SECTION_INDEX)
			continue;
		if (place >= record->side_size)
			exit(3);
		map[record->side_offset + place] = value;
		record->side_xxh3 = XXH3_64bits(map + record->side_offset, record->side_size);
		section->xxh3 = XXH3_64bits(map + section->offset, section->size);
	}
	header->header_xxh3 = XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3));
}

int main(int argc, char **argv)
{
	struct stat status;
	int fd = argc == 5 ? open(argv[1], O_RDWR) : -1;

	if (fd < 0 || fstat(fd, &status)) {
		fprintf(stderr, "usage: packimg_forge FILE SAMPLE PLACE VALUE\n");
		return 2;
	}
	uint8_t *map =
		mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		perror(argv[1]);
		return 2;
	}
	forge(map, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
	      (uint8_t)strtoul(argv[4], NULL, 10));
	return 0;
}
