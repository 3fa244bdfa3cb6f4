/* The checkpoints in a folder, found by file name. */
#include "format/base/system/atomic_file.h"
#include "format/base/system/io.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/sharded.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "checkpoint-%08llu%s"

static const char *const endings[] = {".safetensors", ".sharded"};

int checkpoint_path(const char *folder, uint64_t step, bool sharded, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s/" NAME, folder,
			      (unsigned long long)step, endings[sharded]);
	return length < CHECKPOINT_PATH_MAX ? 0 : -ENAMETOOLONG;
}

/*
 * Parses the step in a checkpoint's file name. False for all other files, including those with
 * similar names.
 */
static bool name_step(const char *name, uint64_t *ret_step, bool *ret_sharded)
{
	char own[64];
	unsigned long long step;
	if (sscanf(name, "checkpoint-%20llu", &step) != 1)
		return false;
	*ret_step = step;
	for (int sharded = 0; sharded < 2; sharded++) {
		snprintf(own, sizeof(own), NAME, step, endings[sharded]);
		*ret_sharded = sharded;
		if (strcmp(own, name) == 0)
			return true;
	}
	return false;
}

bool checkpoint_is_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char index[CHECKPOINT_PATH_MAX];
	uint64_t step;
	bool sharded = false;
	if (!sharded_is(path))
		return false;
	if (name_step(slash ? slash + 1 : path, &step, &sharded) && sharded)
		return true;
	int length = snprintf(index, sizeof(index), "%s/" SHARDED_INDEX, path);
	return length < (int)sizeof(index) && access(index, F_OK) == 0;
}

int checkpoint_newest(const char *folder, uint64_t before, uint64_t *ret_step, char *ret_path)
{
	DIR *dir = opendir(folder);
	if (!dir)
		return -errno;
	bool found = false, sharded = false;
	uint64_t newest = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t step;
		bool is_folder;
		/* of two of a step, which no run writes, the whole one */
		if (name_step(entry->d_name, &step, &is_folder) && step < before &&
		    (!found || step > newest || (step == newest && !is_folder))) {
			newest = step;
			sharded = is_folder;
			found = true;
		}
	}
	closedir(dir);
	if (!found)
		return -ENOENT;
	*ret_step = newest;
	return checkpoint_path(folder, newest, sharded, ret_path);
}

/* ---- folders of sharded checkpoints ---- */

/* Removes a folder and the files in it. */
static int remove_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		int r = -errno;
		io_close(fd);
		return r;
	}
	for (struct dirent *entry; (entry = readdir(dir));)
		unlinkat(fd, entry->d_name, 0); /* fails for . and .. */
	closedir(dir);
	return rmdir(path) ? -errno : 0;
}

static int temporary_name(const char *path, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s.%ld.tmp", path, (long)getpid());
	return length < CHECKPOINT_PATH_MAX ? 0 : -ENAMETOOLONG;
}

int checkpoint_begin_folder(const char *path, char *ret_path)
{
	int r = temporary_name(path, ret_path);
	if (r < 0)
		return r;
	remove_folder(ret_path); /* of an earlier process with this number */
	return mkdir(ret_path, 0777) ? -errno : 0;
}

/* Syncs the folder that contains a path. */
static int sync_above(const char *path)
{
	char above[CHECKPOINT_PATH_MAX];
	const char *slash = strrchr(path, '/');
	int length = !slash || slash == path ? 1 : (int)(slash - path);
	snprintf(above, sizeof(above), "%.*s", length, slash ? path : ".");
	return io_sync_folder(above);
}

int checkpoint_end_folder(const char *temporary, const char *path, int r)
{
	if (r == 0)
		r = io_sync_folder(temporary);
	if (r == 0 && rename(temporary, path))
		r = -errno;
	if (r < 0) {
		remove_folder(temporary);
		return r;
	}
	return sync_above(path);
}

/*
 * Removes a sharded checkpoint: first under a temporary name, so that no part of it remains under
 * its own.
 */
static int remove_sharded(const char *path)
{
	char temporary[CHECKPOINT_PATH_MAX];
	int r = temporary_name(path, temporary);
	if (r < 0)
		return r;
	return rename(path, temporary) ? -errno : remove_folder(temporary);
}

/* ---- removal ---- */

/* True for temporary files that a killed run left. */
static bool is_leftover(const char *name)
{
	static const char *const names[] = {"recipe.ini", "summary.json"};
	size_t length = atomic_file_leftover(name);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (length == strlen(names[i]) && strncmp(name, names[i], length) == 0)
			return true;
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		size_t end = strlen(endings[i]);
		if (length > end && strncmp(name + length - end, endings[i], end) == 0)
			return true;
	}
	return false;
}

/* Removes a file or a folder of a sharded checkpoint. */
static int remove_path(const char *path)
{
	struct stat status;
	if (lstat(path, &status))
		return -errno;
	if (!S_ISDIR(status.st_mode))
		return unlink(path) ? -errno : 0;
	return atomic_file_leftover(path) ? remove_folder(path) : remove_sharded(path);
}

static void remove_in(const char *folder, const char *name)
{
	char path[CHECKPOINT_PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path))
		remove_path(path);
}

static int set_path_aside(const char *path)
{
	char aside[CHECKPOINT_PATH_MAX + 16];
	snprintf(aside, sizeof(aside), "%s.unreadable", path);
	if (rename(path, aside) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	/* an earlier sharded one of the step */
	int r = remove_folder(aside);
	if (r < 0)
		return r;
	return rename(path, aside) ? -errno : 0;
}

int checkpoint_clear(const char *folder, uint64_t step, bool set_aside)
{
	char path[CHECKPOINT_PATH_MAX];
	uint64_t newest = UINT64_MAX, before = UINT64_MAX;
	int r;
	while (!(r = checkpoint_newest(folder, before, &newest, path)) && newest >= step) {
		r = set_aside ? set_path_aside(path) : remove_path(path);
		if (r < 0)
			return r;
	}
	return r == -ENOENT ? 0 : r;
}

int checkpoint_prune(const char *folder, uint64_t keep)
{
	char path[CHECKPOINT_PATH_MAX];
	uint64_t before = UINT64_MAX;
	for (uint64_t i = 0; i < keep; i++) {
		int r = checkpoint_newest(folder, before, &before, path);
		if (r == -ENOENT)
			before = 0;
		if (r)
			break;
	}
	DIR *dir = opendir(folder);
	if (!dir)
		return -errno;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t step;
		bool sharded;
		if (is_leftover(entry->d_name) ||
		    (name_step(entry->d_name, &step, &sharded) && step < before))
			remove_in(folder, entry->d_name);
	}
	closedir(dir);
	return 0;
}
