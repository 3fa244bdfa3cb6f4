#include "format/base/system/atomic_file.h"

#include "format/base/system/io.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int atomic_file_create(struct atomic_file *file, const char *path)
{
	int length = snprintf(file->temporary, sizeof(file->temporary), "%s.%ld.tmp", path,
			      (long)getpid());
	if (length >= (int)sizeof(file->temporary))
		return -ENAMETOOLONG;
	strcpy(file->path, path);
	/*
	 * The name is predictable and the folder may be world-writable: do not write through an
	 * existing file or link.
	 */
	unlink(file->temporary);
	file->fd =
		open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	return file->fd < 0 ? -errno : 0;
}

int atomic_file_write(struct atomic_file *file, const void *data, size_t size)
{
	return io_write(file->fd, data, size);
}

static void folder_of(const char *path, char ret_folder[ATOMIC_FILE_PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	int length = !slash ? 0 : slash == path ? 1 : (int)(slash - path);
	snprintf(ret_folder, ATOMIC_FILE_PATH_MAX, "%.*s", length ? length : 1,
		 length ? path : ".");
}

static int sync_folder_of(const char *path)
{
	char folder[ATOMIC_FILE_PATH_MAX];
	folder_of(path, folder);
	return io_sync_folder(folder);
}

int atomic_file_close(struct atomic_file *file, int r)
{
	r = io_finish(file->fd, r);
	if (!r && rename(file->temporary, file->path))
		r = -errno;
	if (r) {
		unlink(file->temporary);
		return r;
	}
	return sync_folder_of(file->path);
}

/* Returns the error that rename() would return for an existing file at path. */
static int atomic_file_replace(const char *path)
{
	char folder[ATOMIC_FILE_PATH_MAX];
	struct stat found, above;
	uid_t user = geteuid();
	folder_of(path, folder);
	if (lstat(path, &found))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(found.st_mode))
		return -EISDIR;
	if (stat(folder, &above))
		return -errno;
	bool sticky = above.st_mode & S_ISVTX && user != 0;
	return sticky && found.st_uid != user && above.st_uid != user ? -EPERM : 0;
}

int atomic_file_check(const char *path)
{
	struct atomic_file file;
	int r = atomic_file_create(&file, path);
	if (r)
		return r;
	atomic_file_close(&file, -ECANCELED);
	return atomic_file_replace(path);
}

int atomic_file_put(const char *path, const char *text, size_t size)
{
	struct atomic_file file;
	int r = atomic_file_create(&file, path);
	if (r)
		return r;
	return atomic_file_close(&file, atomic_file_write(&file, text, size));
}

size_t atomic_file_leftover(const char *name)
{
	static const char end[] = ".tmp";
	size_t length = strlen(name), left;
	if (length < sizeof(end) || strcmp(name + length - strlen(end), end) != 0)
		return 0;
	for (left = length - strlen(end); left && isdigit((unsigned char)name[left - 1]); left--)
		;
	bool number = left < length - strlen(end);
	return number && left && name[left - 1] == '.' ? left - 1 : 0;
}
