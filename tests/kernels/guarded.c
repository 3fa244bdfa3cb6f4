#include "tests/kernels/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

uint8_t *guarded_new(struct guarded *guarded, size_t size)
{
	size_t page = 4096, pages = (size + page - 1) / page;

	guarded->map_size = (pages + 2) * page;
	guarded->size = size;
	guarded->map = mmap(NULL, guarded->map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (guarded->map == MAP_FAILED ||
	    mprotect(guarded->map + page, pages * page, PROT_READ | PROT_WRITE) < 0) {
		perror("mmap");
		exit(1);
	}
	return guarded->map + (pages + 1) * page - size;
}

void guarded_free(struct guarded *guarded)
{
	munmap(guarded->map, guarded->map_size);
}
