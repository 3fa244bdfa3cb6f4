#include "partial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ID_SIZE = 16 };

static int name_path(const struct partial *partial, const char *id, uint32_t shard,
		     char ret_path[SET_PATH_MAX])
{
	int n = snprintf(ret_path, SET_PATH_MAX, "%s/%s%s.%" PRIu32, partial->directory,
			 partial->prefix, id, shard);
	return n < 0 || n >= SET_PATH_MAX ? -ENAMETOOLONG : 0;
}

int partial_path(const struct partial *partial, uint32_t shard, char ret_path[SET_PATH_MAX])
{
	return name_path(partial, partial->id, shard, ret_path);
}

/* Removes the files of one ID if its writer is gone. */
static void remove_stale(const struct partial *partial, const char *id)
{
	char path[SET_PATH_MAX];

	if (name_path(partial, id, 0, path) < 0)
		return;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		for (uint32_t shard = 1; name_path(partial, id, shard, path) == 0; shard++)
			if (unlink(path) < 0)
				break;
		if (name_path(partial, id, 0, path) == 0)
			unlink(path);
	}
	close(fd);
}

static void remove_stale_all(const struct partial *partial)
{
	size_t prefix_size = strlen(partial->prefix);
	struct dirent *entry;
	char id[ID_SIZE + 1];

	DIR *listing = opendir(partial->directory);
	if (!listing)
		return;
	while ((entry = readdir(listing))) {
		if (strncmp(entry->d_name, partial->prefix, prefix_size) != 0)
			continue;
		const char *rest = entry->d_name + prefix_size;
		if (strspn(rest, "0123456789abcdef") != ID_SIZE ||
		    strcmp(rest + ID_SIZE, ".0") != 0)
			continue;
		memcpy(id, rest, ID_SIZE);
		id[ID_SIZE] = '\0';
		remove_stale(partial, id);
	}
	closedir(listing);
}

int partial_init(struct partial *partial, const char *target)
{
	struct partial p = {.lock_fd = -1, .directory = "."};
	uint64_t id;

	const char *slash = strrchr(target, '/');
	const char *file = slash ? slash + 1 : target;
	if (*file == '\0' || strcmp(file, ".") == 0 || strcmp(file, "..") == 0)
		return -EINVAL;
	if (strlen(target) >= SET_PATH_MAX)
		return -ENAMETOOLONG;
	if (slash)
		snprintf(p.directory, sizeof(p.directory), "%.*s",
			 slash == target ? 1 : (int)(slash - target), target);
	int n = snprintf(p.prefix, sizeof(p.prefix), ".%s.partial.", file);
	if (n < 0 || (size_t)n >= sizeof(p.prefix))
		return -ENAMETOOLONG;
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return -errno;
	snprintf(p.id, sizeof(p.id), "%016" PRIx64, id);
	remove_stale_all(&p);
	*partial = p;
	return 0;
}

int partial_create(struct partial *partial)
{
	char path[SET_PATH_MAX];
	struct stat status;

	int r = partial_path(partial, partial->count, path);
	if (r < 0)
		return r;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	partial->count++;
	if (partial->count > 1)
		return fd;
	/* the lock belongs to the open file, which the duplicate keeps when the shard is closed */
	flock(fd, LOCK_EX | LOCK_NB);
	partial->lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	r = partial->lock_fd < 0 || fstat(fd, &status) < 0 ? -errno : 0;
	/* a writer that started at the same moment may have taken it for a leftover before it was locked */
	if (r == 0 && status.st_nlink == 0)
		r = -EAGAIN;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

int partial_publish(struct partial *partial, uint32_t shard, const char *path)
{
	char from[SET_PATH_MAX];

	int r = partial_path(partial, shard, from);
	if (r < 0)
		return r;
	return rename(from, path) < 0 ? -errno : 0;
}

int partial_sync_directory(const struct partial *partial)
{
	int fd = open(partial->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* some file systems cannot sync a directory and say EINVAL; there is nothing more to be done there */
	int r = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
	close(fd);
	return r;
}

void partial_deinit(struct partial *partial)
{
	char path[SET_PATH_MAX];

	for (uint32_t shard = partial->count; shard-- > 0;)
		if (partial_path(partial, shard, path) == 0)
			unlink(path);
	if (partial->lock_fd >= 0)
		close(partial->lock_fd);
	partial->lock_fd = -1;
	partial->count = 0;
}
