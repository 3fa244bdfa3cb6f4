/*
 * A buffer of one thread that grows when a job is larger than all before. A zeroed block is empty.
 * The owner frees data.
 */
#pragma once

#include <stddef.h>

struct block {
	void *data; /* aligned to 64 bytes */
	size_t size;
};

/* Ensures a capacity of `size` bytes. Growing discards the contents. Returns -ENOMEM on failure. */
int block_reserve(struct block *block, size_t size);
