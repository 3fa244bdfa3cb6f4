#include "format/write/temp_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ID_SIZE = 16 };

/* Builds the path of a file before or after staging. */
static int temp_files_name(const struct temp_files *temp_files, uint32_t shard, bool staged,
			   char ret_path[SHARD_SET_PATH_MAX])
{
	char base[SHARD_SET_PATH_MAX];

	int n = snprintf(base, sizeof(base), "%s/%s%s", temp_files->directory, temp_files->prefix,
			 temp_files->id);
	if (n < 0 || n >= SHARD_SET_PATH_MAX)
		return -ENAMETOOLONG;
	if (staged)
		return shard_name_path(base, shard, temp_files->count, ret_path);
	n = snprintf(ret_path, SHARD_SET_PATH_MAX, "%s.%" PRIu32, base, shard);
	return n < 0 || n >= SHARD_SET_PATH_MAX ? -ENAMETOOLONG : 0;
}

int temp_files_path(const struct temp_files *temp_files, uint32_t shard,
		    char ret_path[SHARD_SET_PATH_MAX])
{
	return temp_files_name(temp_files, shard, temp_files->staged, ret_path);
}

/* Returns the part of name after ".TARGET.partial.ID"; NULL if name does not begin like that. */
static const char *name_tail(const struct temp_files *temp_files, const char *name)
{
	size_t size = strlen(temp_files->prefix);

	if (strncmp(name, temp_files->prefix, size) != 0 ||
	    strspn(name + size, "0123456789abcdef") != ID_SIZE)
		return NULL;
	return name + size + ID_SIZE;
}

/*
 * Removes all files with the ID of `holder`. Removes holder last, because the others are found
 * through it.
 */
static void temp_files_remove_id(const struct temp_files *temp_files, int folder,
				 const char *holder)
{
	size_t size = strlen(temp_files->prefix) + ID_SIZE;
	struct dirent *entry;

	DIR *listing = opendir(temp_files->directory);
	if (!listing)
		return;
	while ((entry = readdir(listing)))
		if (strncmp(entry->d_name, holder, size) == 0 && strcmp(entry->d_name, holder) != 0)
			unlinkat(folder, entry->d_name, 0);
	closedir(listing);
	unlinkat(folder, holder, 0);
}

/* True if the file is the first of its ID and no commit record points to it. */
static bool is_holder(const struct temp_files *temp_files, const char *name, const char *committed)
{
	const char *tail = name_tail(temp_files, name);

	return tail && (strcmp(tail, ".0") == 0 || strncmp(tail, "-00000-of-", 10) == 0) &&
	       strcmp(name, committed) != 0;
}

void temp_files_remove_stale(const struct temp_files *temp_files)
{
	char base[SHARD_SET_PATH_MAX], path[SHARD_SET_PATH_MAX];
	const char *committed = "";
	struct dirent *entry;

	if (shard_set_base(temp_files->target, base) == 0 &&
	    shard_set_commit_record_read(base, path) == 0)
		committed = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	DIR *listing = opendir(temp_files->directory);
	if (!listing)
		return;
	while ((entry = readdir(listing))) {
		if (!is_holder(temp_files, entry->d_name, committed))
			continue;
		int fd = openat(dirfd(listing), entry->d_name,
				O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			temp_files_remove_id(temp_files, dirfd(listing), entry->d_name);
		close(fd);
	}
	closedir(listing);
}

int temp_files_init(struct temp_files *temp_files, const char *target)
{
	struct temp_files p = {.lock_fd = -1, .directory = "."};
	uint64_t id;

	const char *slash = strrchr(target, '/');
	const char *file = slash ? slash + 1 : target;
	if (*file == '\0' || strcmp(file, ".") == 0 || strcmp(file, "..") == 0)
		return -EINVAL;
	if (strlen(target) >= SHARD_SET_PATH_MAX)
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
	strcpy(p.target, target);
	*temp_files = p;
	return 0;
}

/*
 * Locks the first file. The lock belongs to the open file description, so a duplicate descriptor
 * keeps it when the shard is closed.
 */
static int temp_files_lock(struct temp_files *temp_files, int fd)
{
	struct stat status;

	flock(fd, LOCK_EX | LOCK_NB);
	temp_files->lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (temp_files->lock_fd < 0 || fstat(fd, &status) < 0)
		return -errno;
	/*
	 * Another writer that started at the same moment may have removed the file as a leftover
	 * before it was locked.
	 */
	return status.st_nlink == 0 ? -EAGAIN : 0;
}

int temp_files_create(struct temp_files *temp_files, uint8_t *buffer, struct output *ret_output)
{
	static const uint8_t zeros[sizeof(struct pimg_header)];
	char path[SHARD_SET_PATH_MAX];

	int r = temp_files_path(temp_files, temp_files->count, path);
	if (r < 0)
		return r;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	output_init(ret_output, fd, buffer);
	r = temp_files->count++ == 0 ? temp_files_lock(temp_files, fd) : 0;
	return r == 0 ? output_write(ret_output, zeros, sizeof(zeros)) : r;
}

int temp_files_stage(struct temp_files *temp_files)
{
	char from[SHARD_SET_PATH_MAX], to[SHARD_SET_PATH_MAX];

	for (uint32_t shard = 0; shard < temp_files->count; shard++) {
		int r = temp_files_name(temp_files, shard, false, from);
		if (r < 0)
			return r;
		r = temp_files_name(temp_files, shard, true, to);
		if (r < 0)
			return r;
		if (rename(from, to) < 0)
			return -errno;
	}
	temp_files->staged = true;
	return 0;
}

int temp_files_commit(struct temp_files *temp_files, uint32_t shard, const char *path)
{
	char from[SHARD_SET_PATH_MAX];

	int r = temp_files_path(temp_files, shard, from);
	if (r < 0)
		return r;
	return rename(from, path) < 0 ? -errno : 0;
}

void temp_files_deinit(struct temp_files *temp_files)
{
	char path[SHARD_SET_PATH_MAX];

	/* staging may have stopped half-way */
	for (uint32_t shard = temp_files->kept ? 0 : temp_files->count; shard-- > 0;)
		for (int staged = 0; staged < 2; staged++)
			if (temp_files_name(temp_files, shard, staged, path) == 0)
				unlink(path);
	if (temp_files->lock_fd >= 0)
		close(temp_files->lock_fd);
	temp_files->lock_fd = -1;
	temp_files->count = 0;
}
