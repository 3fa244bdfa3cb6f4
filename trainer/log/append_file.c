#include "trainer/log/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int append_file_open(const char *path)
{
	int fd = open(path,
		      O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
		      0666);
	if (fd < 0)
		return -errno;
	struct stat status;
	int r = fstat(fd, &status) ? -errno : S_ISREG(status.st_mode) ? 0 : -EBADF;
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

const char *append_file_error(int r)
{
	return r == -ELOOP   ? "is a symbolic link, which the trainer does not follow: remove it"
	       : r == -EBADF ? "is not a regular file: remove it"
			     : strerror(-r);
}

/* Removes a partially written record, so that another can follow. */
static void append_file_undo(int fd, size_t written)
{
	off_t size = lseek(fd, 0, SEEK_END);
	if (size < (off_t)written)
		return;
	/* If this fails, append_file_truncate() removes the rest when the run resumes. */
	int r = ftruncate(fd, size - (off_t)written);
	(void)r;
}

int append_file_write(int fd, const void *record, size_t size)
{
	/*
	 * After a short write, write the remaining bytes: on a full disk, this fails with the
	 * errno.
	 */
	size_t written = 0;
	while (written < size) {
		ssize_t n = write(fd, (const char *)record + written, size - written);
		if (n < 0 && errno != EINTR) {
			int r = -errno;
			append_file_undo(fd, written);
			return r;
		}
		written += n < 0 ? 0 : (size_t)n;
	}
	return 0;
}

/* Finds the number of bytes to keep. */
static int append_file_valid_size(FILE *file, uint64_t step, uint64_t (*step_of)(const char *line),
				  off_t *ret_size)
{
	char *line = malloc(APPEND_FILE_LINE_MAX + 1);
	off_t size = 0;
	if (!line)
		return -ENOMEM;
	while (fgets(line, APPEND_FILE_LINE_MAX + 1, file)) {
		/*
		 * strlen() stops at a NUL byte, as in a hole; the line then appears to lack its
		 * newline.
		 */
		size_t length = strlen(line);
		if (!length || line[length - 1] != '\n')
			break;
		line[length - 1] = '\0';
		uint64_t at = step_of(line);
		if (at == APPEND_FILE_NO_STEP || at > step)
			break;
		size += (off_t)length;
	}
	free(line);
	if (ferror(file))
		return -EIO;
	*ret_size = size;
	return 0;
}

int append_file_truncate(int fd, uint64_t step, uint64_t (*step_of)(const char *line))
{
	off_t size;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return -errno;
	FILE *file = fdopen(copy, "r");
	if (!file) {
		close(copy);
		return -ENOMEM;
	}
	rewind(file);
	int r = append_file_valid_size(file, step, step_of, &size);
	fclose(file);
	if (r < 0)
		return r;
	return ftruncate(fd, size) < 0 ? -errno : 0;
}
