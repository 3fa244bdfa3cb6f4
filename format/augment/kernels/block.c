#include "format/augment/kernels/block.h"

#include <errno.h>
#include <stdlib.h>

int block_reserve(struct block *block, size_t size)
{
	if (size <= block->size)
		return 0;
	/*
	 * Reserve a quarter more, so that crops of random sizes do not grow the buffer many times.
	 */
	size = (size + size / 4 + 4095) & ~(size_t)4095;
	void *data = aligned_alloc(64, size);

	if (!data)
		return -ENOMEM;
	free(block->data);
	block->data = data;
	block->size = size;
	return 0;
}
