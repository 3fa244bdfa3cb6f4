#include "format/write/spool.h"

#include "format/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

void spool_init(struct spool *spool)
{
	*spool = (struct spool){.fd = -1};
}

void spool_deinit(struct spool *spool)
{
	if (spool->fd >= 0)
		close(spool->fd);
	spool->fd = -1;
}

void spool_reset(struct spool *spool)
{
	spool->end = 0;
}

/*
 * Beside the target rather than in /tmp: there is room for the dataset, hence for a thousandth of
 * it.
 */
static int spool_open(struct spool *spool, const char *directory)
{
	char path[4096];

	spool->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (spool->fd >= 0)
		return 0;
	int n = snprintf(path, sizeof(path), "%s/.pimg-spool-XXXXXX", directory);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	spool->fd = mkostemp(path, O_CLOEXEC);
	if (spool->fd < 0)
		return -errno;
	unlink(path);
	return 0;
}

static int stream_spill(struct spool *spool, const char *directory, struct spool_stream *stream)
{
	if (stream->offset_count == stream->offset_max) {
		size_t max = stream->offset_max ? stream->offset_max * 2 : 16;
		uint64_t *offsets = realloc(stream->offsets, max * sizeof(*offsets));
		if (!offsets)
			return -ENOMEM;
		stream->offsets = offsets;
		stream->offset_max = max;
	}
	if (spool->fd < 0) {
		int r = spool_open(spool, directory);
		if (r < 0)
			return r;
	}
	int r = io_write_at(spool->fd, stream->block, SPOOL_BLOCK_SIZE, spool->end);
	if (r < 0)
		return r;
	stream->offsets[stream->offset_count++] = spool->end;
	stream->block_used = 0;
	spool->end += SPOOL_BLOCK_SIZE;
	return 0;
}

int spool_append(struct spool *spool, const char *directory, struct spool_stream *stream,
		 const void *data, size_t size)
{
	const uint8_t *bytes = data;

	if (!stream->block) {
		stream->block = malloc(SPOOL_BLOCK_SIZE);
		if (!stream->block)
			return -ENOMEM;
	}
	while (size > 0) {
		if (stream->block_used == SPOOL_BLOCK_SIZE) {
			int r = stream_spill(spool, directory, stream);
			if (r < 0)
				return r;
		}
		size_t room = SPOOL_BLOCK_SIZE - stream->block_used;
		size_t n = size < room ? size : room;
		memcpy(stream->block + stream->block_used, bytes, n);
		stream->block_used += n;
		stream->size += n;
		bytes += n;
		size -= n;
	}
	return 0;
}

int spool_copy(const struct spool *spool, const struct spool_stream *stream, struct output *output,
	       void *xxh3_state)
{
	int r = 0;

	if (stream->offset_count > 0) {
		uint8_t *block = malloc(SPOOL_BLOCK_SIZE);
		if (!block)
			return -ENOMEM;
		for (size_t i = 0; i < stream->offset_count && r == 0; i++) {
			int64_t n =
				io_read_at(spool->fd, block, SPOOL_BLOCK_SIZE, stream->offsets[i]);
			r = n < 0 ? (int)n : n < SPOOL_BLOCK_SIZE ? -EIO : 0;
			if (r == 0 && xxh3_state)
				XXH3_64bits_update(xxh3_state, block, SPOOL_BLOCK_SIZE);
			if (r == 0)
				r = output_write(output, block, SPOOL_BLOCK_SIZE);
		}
		free(block);
		if (r < 0)
			return r;
	}
	if (stream->block_used == 0)
		return 0;
	if (xxh3_state)
		XXH3_64bits_update(xxh3_state, stream->block, stream->block_used);
	return output_write(output, stream->block, stream->block_used);
}

void spool_stream_reset(struct spool_stream *stream)
{
	stream->block_used = 0;
	stream->offset_count = 0;
	stream->size = 0;
}

void spool_stream_deinit(struct spool_stream *stream)
{
	free(stream->block);
	free(stream->offsets);
	*stream = (struct spool_stream){0};
}
