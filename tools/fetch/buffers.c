#include "tools/fetch/buffers.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

int buffers_init(struct buffers *buffers, unsigned count, size_t size)
{
	unsigned *given = calloc(count, sizeof(*given));
	void *memory = mmap(NULL, count * size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	*buffers = (struct buffers){0};
	if (!given || memory == MAP_FAILED) {
		if (memory != MAP_FAILED)
			munmap(memory, count * size);
		free(given);
		return -ENOMEM;
	}
	*buffers = (struct buffers){memory, size, count, given, count};
	for (unsigned i = 0; i < count; i++)
		given[i] = count - 1 - i;
	return 0;
}

void buffers_close(struct buffers *buffers)
{
	if (buffers->memory)
		munmap(buffers->memory, buffers->count * buffers->size);
	free(buffers->given);
	*buffers = (struct buffers){0};
}

uint8_t *buffers_take(struct buffers *buffers)
{
	if (!buffers->given_count)
		return NULL;
	return buffers->memory + buffers->given[--buffers->given_count] * buffers->size;
}

void buffers_give(struct buffers *buffers, uint8_t *buffer)
{
	if (buffer)
		buffers->given[buffers->given_count++] =
			(unsigned)((size_t)(buffer - buffers->memory) / buffers->size);
}
