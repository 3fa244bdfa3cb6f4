/* The checkpoints in a folder, found by file name. */
#include "format/base/system/atomic_file.h"
#include "trainer/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "checkpoint-%08llu.safetensors"

int checkpoint_path(const char *folder, uint64_t step, char *ret_path)
{
	int length = snprintf(ret_path, CHECKPOINT_PATH_MAX, "%s/" NAME, folder,
			      (unsigned long long)step);
	return length < CHECKPOINT_PATH_MAX ? 0 : -ENAMETOOLONG;
}

/*
 * Parses the step in a checkpoint's file name. False for all other files, including those with
 * similar names.
 */
static bool name_step(const char *name, uint64_t *ret_step)
{
	char own[64];
	unsigned long long step;
	if (sscanf(name, "checkpoint-%20llu", &step) != 1)
		return false;
	snprintf(own, sizeof(own), NAME, step);
	*ret_step = step;
	return strcmp(own, name) == 0;
}

int checkpoint_newest(const char *folder, uint64_t before, uint64_t *ret_step, char *ret_path)
{
	DIR *dir = opendir(folder);
	if (!dir)
		return -errno;
	bool found = false;
	uint64_t newest = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t step;
		if (name_step(entry->d_name, &step) && step < before && (!found || step > newest)) {
			newest = step;
			found = true;
		}
	}
	closedir(dir);
	if (!found)
		return -ENOENT;
	*ret_step = newest;
	return checkpoint_path(folder, newest, ret_path);
}

/* True for temporary files that a killed run left. */
static bool is_leftover(const char *name)
{
	static const char *const names[] = {"recipe.ini", "summary.json"};
	static const char ending[] = ".safetensors";
	size_t length = atomic_file_leftover(name), end = strlen(ending);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (length == strlen(names[i]) && strncmp(name, names[i], length) == 0)
			return true;
	return length > end && strncmp(name + length - end, ending, end) == 0;
}

static void remove_in(const char *folder, const char *name)
{
	char path[CHECKPOINT_PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path))
		unlink(path);
}

int checkpoint_clear(const char *folder, uint64_t step, bool set_aside)
{
	char path[CHECKPOINT_PATH_MAX], aside[CHECKPOINT_PATH_MAX + 16];
	uint64_t newest = UINT64_MAX;
	int r;
	while (!(r = checkpoint_newest(folder, newest, &newest, path)) && newest >= step) {
		snprintf(aside, sizeof(aside), "%s.unreadable", path);
		if (set_aside ? rename(path, aside) : unlink(path))
			return -errno;
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
		if (is_leftover(entry->d_name) ||
		    (name_step(entry->d_name, &step) && step < before))
			remove_in(folder, entry->d_name);
	}
	closedir(dir);
	return 0;
}
