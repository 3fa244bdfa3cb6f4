/*
 * Temporary storage for data that a writer collects per sample but writes only after the last
 * sample: index records, names, columns. Many byte streams share one unlinked temporary file. A
 * stream keeps in memory one block, and eight bytes for each of its blocks in the file. Owned by
 * one writer, used by one thread.
 */
#pragma once

#include "format/layout.h"
#include "format/write/output.h"

#include <stddef.h>
#include <stdint.h>

enum { SPOOL_BLOCK_SIZE = 1 << 16 };

struct spool {
	const char *directory; /* directory of the file, which is created on first use; borrowed */
	int fd;                /* -1 until the first block is full */
	uint64_t end; /* file bytes in use; to reuse the file, set to 0 and reset all streams */
};

struct spool_stream {
	uint8_t *block;
	size_t block_used;
	uint64_t *offsets; /* file offsets of full blocks */
	size_t offset_count, offset_max;
	uint64_t size;
};

void spool_init(struct spool *spool, const char *directory);
void spool_deinit(struct spool *spool);
/* Appends to a stream. A zeroed stream is a valid empty one. */
int spool_append(struct spool *spool, struct spool_stream *stream, const void *data, size_t size);
/*
 * Reads a block of a stream, by number, into SPOOL_BLOCK_SIZE bytes. Returns its size, less than
 * SPOOL_BLOCK_SIZE only for the last block, and 0 after it.
 */
int64_t spool_read(const struct spool *spool, const struct spool_stream *stream, size_t number,
		   uint8_t *block);
/*
 * Writes the streams one after another as one section. Sets offset, size and checksum of
 * ret_section, but not its type.
 */
int spool_write(const struct spool *spool, const struct spool_stream *const streams[], size_t count,
		struct output *output, struct pimg_section *ret_section);
void spool_stream_reset(struct spool_stream *stream);
void spool_stream_deinit(struct spool_stream *stream);
