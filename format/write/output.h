/*
 * A file being written front to back under a temporary name: buffers, keeps count, starts writing
 * to the disk early so that the final fsync is short. Owned by one writer, used by one thread. The
 * temporary name is beside the target and begins with a dot; whoever opened it removes or renames
 * it.
 */
#pragma once

#include "format/layout.h"

#include <stddef.h>
#include <stdint.h>

struct output {
	int fd;
	uint8_t *buffer;
	size_t buffered;
	uint64_t offset;  /* bytes accepted */
	uint64_t started; /* bytes whose way to the disk has begun */
};

enum { OUTPUT_BUFFER_SIZE = 1 << 20 };

/* Takes fd over; buffer is lent, OUTPUT_BUFFER_SIZE bytes. */
void output_init(struct output *output, int fd, uint8_t *buffer);
/* Closes the descriptor, without writing what is buffered. */
void output_deinit(struct output *output);
int output_write(struct output *output, const void *data, size_t size);
/* Zeros up to the next multiple of a power of two. */
int output_align(struct output *output, size_t alignment);
/* Writes at the next place where samples and sections may begin. */
int output_put(struct output *output, const void *data, size_t size, uint64_t *ret_offset);
int output_put_section(struct output *output, uint32_t type, const void *data, size_t size,
		       struct pimg_section *ret_section);
/* Writes what is buffered. */
int output_flush(struct output *output);
