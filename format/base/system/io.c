#include "format/base/system/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int io_write_all(int fd, const void *data, size_t size, bool at, uint64_t offset)
{
	const uint8_t *bytes = data;

	while (size > 0) {
		ssize_t n = at ? pwrite(fd, bytes, size, (off_t)offset) : write(fd, bytes, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		bytes += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int io_write(int fd, const void *data, size_t size)
{
	return io_write_all(fd, data, size, false, 0);
}

int io_write_at(int fd, const void *data, size_t size, uint64_t offset)
{
	return io_write_all(fd, data, size, true, offset);
}

int64_t io_read_at(int fd, void *data, uint64_t size, uint64_t offset)
{
	uint64_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, (uint8_t *)data + done, size - done, (off_t)(offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

int io_open_regular(const char *path)
{
	struct stat status;

	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	int r = fstat(fd, &status) < 0 ? -errno : S_ISREG(status.st_mode) ? 0 : -EBADF;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

int io_lock(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	int r = -errno;
	close(fd);
	return r;
}

void io_close(int fd)
{
	int error = errno;

	if (fd >= 0)
		close(fd);
	errno = error;
}

int io_finish(int fd, int r)
{
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && !r)
		r = -errno;
	return r;
}

int io_sync_folder(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
	close(fd);
	return r;
}
