/*
 * Memory of one thread that grows when it meets a larger job than before. Zeros are an empty one;
 * data is its owner's to free.
 */
#pragma once

#include <stddef.h>

struct block {
	void *data; /* aligned to 64 bytes */
	size_t size;
};

/* Sees to it that there are size bytes; what was in them is lost when they have to grow. -ENOMEM.
 */
int block_reserve(struct block *block, size_t size);
