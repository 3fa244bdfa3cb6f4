/*
 * A buffer that grows when a job is larger than all before. Used by one thread. A zeroed block is
 * empty. The owner frees data.
 */
#pragma once

#include <stddef.h>

struct block {
	void *data; /* aligned to 64 bytes */
	size_t size;
};

/* Ensures a capacity of `size` bytes. Growing discards the contents. Returns 0 or -ENOMEM. */
int block_reserve(struct block *block, size_t size);
