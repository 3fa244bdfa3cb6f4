#include "format/write/spool.h"

#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

void spool_init(struct spool *spool, const char *directory)
{
	*spool = (struct spool){.directory = directory, .fd = -1};
}

void spool_deinit(struct spool *spool)
{
	if (spool->fd >= 0)
		close(spool->fd);
	spool->fd = -1;
}

/*
 * Creates the file in the target's directory rather than /tmp: a directory with room for the
 * dataset also has room for a spool, which takes a thousandth of that.
 */
static int spool_open(struct spool *spool)
{
	char path[4096];

	spool->fd = open(spool->directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (spool->fd >= 0)
		return 0;
	int n = snprintf(path, sizeof(path), "%s/.pimg-spool-XXXXXX", spool->directory);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	spool->fd = mkostemp(path, O_CLOEXEC);
	if (spool->fd < 0)
		return -errno;
	unlink(path);
	return 0;
}

static int stream_spill(struct spool *spool, struct spool_stream *stream)
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
		int r = spool_open(spool);
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

int spool_append(struct spool *spool, struct spool_stream *stream, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	if (!stream->block) {
		stream->block = malloc(SPOOL_BLOCK_SIZE);
		if (!stream->block)
			return -ENOMEM;
	}
	while (size > 0) {
		if (stream->block_used == SPOOL_BLOCK_SIZE) {
			int r = stream_spill(spool, stream);
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

int64_t spool_read(const struct spool *spool, const struct spool_stream *stream, size_t number,
		   uint8_t *block)
{
	if (number > stream->offset_count)
		return 0;
	if (number == stream->offset_count) {
		if (stream->block_used > 0)
			memcpy(block, stream->block, stream->block_used);
		return (int64_t)stream->block_used;
	}
	int64_t n = io_read_at(spool->fd, block, SPOOL_BLOCK_SIZE, stream->offsets[number]);
	return n >= 0 && n < SPOOL_BLOCK_SIZE ? -EIO : n;
}

static int spool_put_block(struct output *output, XXH3_state_t *state, const void *block,
			   size_t size)
{
	XXH3_64bits_update(state, block, size);
	return output_write(output, block, size);
}

static int stream_copy(const struct spool *spool, const struct spool_stream *stream,
		       struct output *output, XXH3_state_t *state, uint8_t *block)
{
	int64_t size = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && (size = spool_read(spool, stream, i, block)) > 0; i++)
		r = spool_put_block(output, state, block, (size_t)size);
	return r < 0 ? r : (int)size;
}

static int spool_copy(const struct spool *spool, const struct spool_stream *const streams[],
		      size_t count, struct output *output, XXH3_state_t *state, uint8_t *block,
		      struct pimg_section *ret_section)
{
	if (!state || !block)
		return -ENOMEM;
	int r = output_align(output, PIMG_ALIGN);
	if (r < 0)
		return r;
	uint64_t offset = output->offset;
	XXH3_64bits_reset(state);
	for (size_t i = 0; i < count; i++) {
		r = stream_copy(spool, streams[i], output, state, block);
		if (r < 0)
			return r;
	}
	*ret_section = (struct pimg_section){
		.offset = offset,
		.size = output->offset - offset,
		.xxh3 = XXH3_64bits_digest(state),
	};
	return 0;
}

int spool_write(const struct spool *spool, const struct spool_stream *const streams[], size_t count,
		struct output *output, struct pimg_section *ret_section)
{
	XXH3_state_t *state = XXH3_createState();
	uint8_t *block = malloc(SPOOL_BLOCK_SIZE);
	int r = spool_copy(spool, streams, count, output, state, block, ret_section);

	free(block);
	XXH3_freeState(state);
	return r;
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
