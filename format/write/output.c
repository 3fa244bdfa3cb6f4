#include "format/write/output.h"

#include "format/base/system/io.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Bytes after which write-back starts: large enough to stay sequential on a rotating disk. */
enum { WRITE_BEHIND_SIZE = 8 << 20 };

void output_init(struct output *output, int fd, uint8_t *buffer)
{
	*output = (struct output){.fd = fd, .buffer = buffer};
}

void output_deinit(struct output *output)
{
	if (output->fd >= 0)
		close(output->fd);
	output->fd = -1;
}

static int output_put_bytes(struct output *output, const void *data, size_t size, uint64_t offset)
{
	int r = io_write_at(output->fd, data, size, offset);
	if (r < 0)
		return r;
	uint64_t written = offset + size;
	if (written - output->started >= WRITE_BEHIND_SIZE) {
		/*
		 * Starts write-back without waiting. If the file system cannot, the final fsync
		 * writes everything.
		 */
		sync_file_range(output->fd, (off_t)output->started,
				(off_t)(written - output->started), SYNC_FILE_RANGE_WRITE);
		output->started = written;
	}
	return 0;
}

int output_flush(struct output *output)
{
	size_t buffered = output->buffered;

	output->buffered = 0;
	return buffered ? output_put_bytes(output, output->buffer, buffered,
					   output->offset - buffered)
			: 0;
}

int output_write(struct output *output, const void *data, size_t size)
{
	const uint8_t *bytes = data;

	if (output->buffered > 0 || size < OUTPUT_BUFFER_SIZE) {
		size_t room = OUTPUT_BUFFER_SIZE - output->buffered;
		size_t n = size < room ? size : room;
		memcpy(output->buffer + output->buffered, bytes, n);
		output->buffered += n;
		output->offset += n;
		bytes += n;
		size -= n;
		if (output->buffered == OUTPUT_BUFFER_SIZE) {
			int r = output_flush(output);
			if (r < 0)
				return r;
		}
	}
	if (size >= OUTPUT_BUFFER_SIZE) {
		/* The buffer is empty here: write whole multiples of its size directly. */
		size_t n = size - size % OUTPUT_BUFFER_SIZE;
		int r = output_put_bytes(output, bytes, n, output->offset);
		if (r < 0)
			return r;
		output->offset += n;
		bytes += n;
		size -= n;
	}
	if (size > 0) {
		memcpy(output->buffer + output->buffered, bytes, size);
		output->buffered += size;
		output->offset += size;
	}
	return 0;
}

int output_align(struct output *output, size_t alignment)
{
	static const uint8_t zeros[64];
	size_t size = (size_t)(-output->offset & (alignment - 1));

	return size ? output_write(output, zeros, size) : 0;
}

int output_put(struct output *output, const void *data, size_t size, uint64_t *ret_offset)
{
	int r = output_align(output, PIMG_ALIGN);
	if (r < 0)
		return r;
	*ret_offset = output->offset;
	return output_write(output, data, size);
}

int output_put_section(struct output *output, uint32_t type, const void *data, size_t size,
		       struct pimg_section *ret_section)
{
	*ret_section =
		(struct pimg_section){.type = type, .size = size, .xxh3 = XXH3_64bits(data, size)};
	return output_put(output, data, size, &ret_section->offset);
}
