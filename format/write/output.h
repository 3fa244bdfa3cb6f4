/*
 * A file written sequentially under a temporary name. Buffers, counts bytes, and starts write-back
 * early to keep the final fsync short. Owned by one writer, used by one thread. The code that
 * created the file renames or removes it.
 */
#pragma once

#include "format/layout.h"

#include <stddef.h>
#include <stdint.h>

struct output {
	int fd;
	uint8_t *buffer;
	size_t buffered;
	uint64_t offset;  /* bytes written or buffered so far */
	uint64_t started; /* bytes for which write-back was started */
};

enum { OUTPUT_BUFFER_SIZE = 1 << 20 };

/* Takes ownership of fd; borrows buffer, OUTPUT_BUFFER_SIZE bytes. */
void output_init(struct output *output, int fd, uint8_t *buffer);
/* Closes the descriptor and discards buffered bytes. */
void output_deinit(struct output *output);
int output_write(struct output *output, const void *data, size_t size);
/* Pads with zeros to a multiple of alignment, a power of two. */
int output_align(struct output *output, size_t alignment);
/* Writes data at the next aligned offset (SPEC.md, "Terms"). */
int output_put(struct output *output, const void *data, size_t size, uint64_t *ret_offset);
int output_put_section(struct output *output, uint32_t type, const void *data, size_t size,
		       struct pimg_section *ret_section);
/* Writes buffered bytes to the file. */
int output_flush(struct output *output);
