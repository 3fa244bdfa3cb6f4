#include "tools/packimg/source/blob_store.h"

#include "format/base/system/io.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void blob_store_deinit(struct blob_store *blobs)
{
	for (uint32_t i = 0; i < blobs->count; i++) {
		struct container *container = &blobs->containers[i];

		if (container->fd >= 0)
			close(container->fd);
		if (container->spill_fd >= 0)
			close(container->spill_fd);
		archive_reader_close(container->stream);
		free(container->path);
	}
	free(blobs->containers);
	*blobs = (struct blob_store){0};
}

int blob_store_add(struct blob_store *blobs, const char *path, bool folder, uint32_t *ret_container,
		   struct packimg_error *error)
{
	struct container container = {.spill_fd = -1};
	struct stat status;
	/*
	 * The archive reader has opened the pipe: opening it again could wait for another writer.
	 */
	int flags = folder                                                 ? O_RDONLY | O_DIRECTORY
		    : stat(path, &status) == 0 && S_ISFIFO(status.st_mode) ? O_PATH
									   : O_RDONLY;

	if (array_reserve(&blobs->containers, blobs->count, &blobs->capacity, sizeof(container)))
		return packimg_fail(error, -ENOMEM, "out of memory");
	container.fd = open(path, flags | O_CLOEXEC);
	if (container.fd < 0)
		return packimg_fail(error, -errno, "%s: %s", path, strerror(errno));
	container.path = strdup(path);
	if (!container.path) {
		close(container.fd);
		return packimg_fail(error, -ENOMEM, "out of memory");
	}
	*ret_container = blobs->count;
	blobs->containers[blobs->count++] = container;
	return 0;
}

int blob_store_spill(struct blob_store *blobs, uint32_t number, const void *bytes, size_t size,
		     struct packimg_error *error)
{
	struct container *container = &blobs->containers[number];

	if (container->spill_fd < 0) {
		int fd = temporary_file();

		if (fd < 0)
			return packimg_fail(error, fd,
					    "%s: cannot create a temporary file for the contents "
					    "of %s: %s; set TMPDIR to a folder with space",
					    temporary_folder(), container->path, strerror(-fd));
		container->spill_fd = fd;
	}
	int r = io_write_at(container->spill_fd, bytes, size, container->spill_size);
	if (r)
		return packimg_fail(error, r,
				    "%s: cannot unpack %s to a temporary file: %s; set TMPDIR to a "
				    "folder with space, or convert without --shuffle",
				    temporary_folder(), container->path, strerror(-r));
	container->spill_size += size;
	return 0;
}

static int check_size(const struct blob_store *blobs, uint64_t size, struct packimg_error *error)
{
	if (size <= blobs->limits.file_max)
		return 0;
	return packimg_fail(error, -EFBIG, "larger than the limit for image files (%s, --max-file)",
			    text_bytes(TEXT, blobs->limits.file_max));
}

/* Appends up to `size` bytes of a file; fewer at its end. */
static int read_range(const struct blob_store *blobs, int fd, uint64_t offset, uint64_t size,
		      struct buffer *buffer, struct packimg_error *error)
{
	int r = check_size(blobs, size, error);
	if (r)
		return r;
	if (buffer_reserve(buffer, buffer->size + (size_t)size + 1))
		return packimg_fail(error, -ENOMEM, "out of memory");
	int64_t n = io_read_at(fd, buffer->data + buffer->size, size, offset);
	if (n < 0)
		return packimg_fail(error, (int)n, "cannot be read: %s", strerror((int)-n));
	buffer->size += (size_t)n;
	return 0;
}

static int read_file(const struct blob_store *blobs, int fd, struct buffer *buffer,
		     struct packimg_error *error)
{
	struct stat status;

	if (fstat(fd, &status))
		return packimg_fail(error, -errno, "%s", strerror(errno));
	if (!S_ISREG(status.st_mode))
		return packimg_fail(error, -EINVAL, "not a regular file");
	return read_range(blobs, fd, 0, (uint64_t)status.st_size, buffer, error);
}

/* Appends the header of a PNM file with these pixels. */
static int append_pnm_header(const struct blob_pixels *pixels, struct buffer *buffer,
			     struct packimg_error *error)
{
	char header[32];
	int size = snprintf(header, sizeof(header), "P%c\n%u %u\n255\n",
			    pixels->channels == 1 ? '5' : '6', pixels->width, pixels->height);

	return buffer_append(buffer, header, (size_t)size)
		       ? packimg_fail(error, -ENOMEM, "out of memory")
		       : 0;
}

/* Interleaves the planes at the end of the buffer, `size` bytes in all. */
static int interleave(struct buffer *buffer, size_t size, uint32_t channels,
		      struct packimg_error *error)
{
	const size_t count = size / channels;

	if (buffer_reserve(buffer, buffer->size + size))
		return packimg_fail(error, -ENOMEM, "out of memory");
	uint8_t *pixels = buffer->data + buffer->size - size, *planes = pixels + size;
	memcpy(planes, pixels, size);
	for (size_t i = 0; i < count; i++)
		for (uint32_t c = 0; c < channels; c++)
			pixels[i * channels + c] = planes[c * count + i];
	return 0;
}

int blob_store_read(const struct blob_store *blobs, const struct blob_location *location,
		    struct buffer *buffer, struct packimg_error *error)
{
	const struct container *container = &blobs->containers[location->container];
	if (location->kind == LOCATION_FILE) {
		int file = openat(container->fd, location->path,
				  O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (file < 0)
			return packimg_fail(error, -errno, "cannot be opened: %s", strerror(errno));
		int r = read_file(blobs, file, buffer, error);
		close(file);
		return r;
	}
	int fd = location->kind == LOCATION_SPILL ? container->spill_fd : container->fd;
	int r = location->pixels.width ? append_pnm_header(&location->pixels, buffer, error) : 0;
	if (r)
		return r;
	size_t before = buffer->size;
	r = read_range(blobs, fd, location->offset, location->size, buffer, error);
	if (r)
		return r;
	if (buffer->size - before < location->size)
		return packimg_fail(error, -EBADMSG, "%s ends before the image does",
				    container->path);
	return location->pixels.planar
		       ? interleave(buffer, location->size, location->pixels.channels, error)
		       : 0;
}

int blob_store_read_stream(struct blob_store *blobs, const struct blob_location *location,
			   struct buffer *buffer, struct packimg_error *error)
{
	struct container *container = &blobs->containers[location->container];
	struct archive_member member;
	int r;

	if (!container->stream) {
		r = archive_reader_open(container->path, &blobs->limits, &container->stream, error);
		if (r)
			return r;
		container->stream_member = UINT64_MAX;
	}
	while (container->stream_member != location->offset) {
		r = archive_reader_next(container->stream, &member, error);
		if (r < 0)
			return r;
		if (r)
			return packimg_fail(error, -EBADMSG, "%s changed while it was read",
					    container->path);
		container->stream_member = member.number;
	}
	return archive_reader_read(container->stream, blobs->limits.file_max, buffer, NULL, error);
}
