#include "format/write/replace.h"

#include "format/base/system/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Calls `each` for every shard of base, of any shard count. Its path is valid only during the call.
 * Returns the sum of the results, or a negative errno.
 */
static int for_each_shard(const char *base, int (*each)(const char *path))
{
	char folder[SHARD_SET_PATH_MAX], path[SHARD_SET_PATH_MAX];
	struct shard_name name;
	struct dirent *entry;
	int r = 0, count = 0;

	const char *slash = strrchr(base, '/');
	snprintf(folder, sizeof(folder), "%.*s.", slash ? (int)(slash + 1 - base) : 0, base);
	DIR *listing = opendir(folder);
	if (!listing)
		return -errno;
	while (r >= 0 && (entry = readdir(listing))) {
		if (shard_name_parse(entry->d_name, &name) < 0 ||
		    strcmp(name.base, slash ? slash + 1 : base) != 0)
			continue;
		r = shard_name_path(base, name.shard, name.shard_count, path);
		if (r == 0)
			r = each(path);
		count += r > 0;
	}
	closedir(listing);
	return r < 0 ? r : count;
}

/* Returns 1 or 0, or -EISDIR if path is a directory; nothing may be changed then. */
static int file_exists(const char *path)
{
	struct stat status;

	if (lstat(path, &status) < 0)
		return 0;
	return S_ISDIR(status.st_mode) ? -EISDIR : 1;
}

static int single_path(const char *base, char ret_path[SHARD_SET_PATH_MAX])
{
	int n = snprintf(ret_path, SHARD_SET_PATH_MAX, "%s.pimg", base);
	return n < 0 || n >= SHARD_SET_PATH_MAX ? -ENAMETOOLONG : 0;
}

static int remove_file(const char *path)
{
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

int replace_is_needed(const char *base, bool set)
{
	char path[SHARD_SET_PATH_MAX];

	int single = single_path(base, path);
	if (single == 0)
		single = file_exists(path);
	if (single < 0)
		return single;
	int record = shard_set_commit_record_path(base, path);
	if (record == 0)
		record = file_exists(path);
	if (record < 0)
		return record;
	int shards = for_each_shard(base, file_exists);
	return shards < 0 ? shards : shards > 0 || record || (set && single);
}

/* Writes the commit record. From then on the new dataset is the one that opens. */
static int replace_write_commit_record(const struct temp_files *temp_files, const char *base)
{
	char first[SHARD_SET_PATH_MAX], path[SHARD_SET_PATH_MAX], draft[SHARD_SET_PATH_MAX];

	int r = temp_files_path(temp_files, 0, first);
	if (r < 0)
		return r;
	r = shard_set_commit_record_path(base, path);
	if (r < 0)
		return r;
	int n = snprintf(draft, sizeof(draft), "%s/%s%s.commit", temp_files->directory,
			 temp_files->prefix, temp_files->id);
	if (n < 0 || n >= SHARD_SET_PATH_MAX)
		return -ENAMETOOLONG;
	int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	char *line = strrchr(first, '/') + 1;
	size_t size = strlen(line);
	line[size] = '\n';
	r = io_finish(fd, io_write(fd, line, size + 1));
	if (r == 0 && rename(draft, path) < 0)
		r = -errno;
	if (r < 0)
		unlink(draft);
	return r;
}

static int copy_file(const char *from, const char *to)
{
	struct stat status;
	ssize_t n = 1;
	int r = 0;

	int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (in < 0)
		return -errno;
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (out < 0)
		r = -errno;
	while (r == 0 && n > 0) {
		n = copy_file_range(in, NULL, out, NULL, 1 << 30, 0);
		r = n < 0 ? -errno : 0;
	}
	/*
	 * Normally both files have the same mode, from the umask. Copy it in case one was changed.
	 */
	if (r == 0 && (fstat(in, &status) < 0 || fchmod(out, status.st_mode & 07777) < 0))
		r = -errno;
	if (out >= 0)
		r = io_finish(out, r);
	close(in);
	return r;
}

/* Links the files to their final names. The staged names must stay until all links exist. */
static int replace_link_shards(const struct temp_files *temp_files, const char *base)
{
	char from[SHARD_SET_PATH_MAX], to[SHARD_SET_PATH_MAX];
	int r = 0;

	for (uint32_t shard = 0; shard < temp_files->count && r == 0; shard++) {
		r = temp_files_path(temp_files, shard, from);
		if (r < 0)
			return r;
		r = shard_name_path(base, shard, temp_files->count, to);
		if (r < 0)
			return r;
		r = link(from, to) < 0 ? -errno : 0;
		/* the file system has no hard links, or a link count is at its limit */
		if (r == -EPERM || r == -EOPNOTSUPP || r == -ENOSYS || r == -EMLINK)
			r = copy_file(from, to);
	}
	return r;
}

/*
 * Removes the old dataset and links the new one to its names. Meanwhile the commit record points to
 * the new dataset.
 */
static int replace_files(struct temp_files *temp_files, const char *base, bool set)
{
	char single[SHARD_SET_PATH_MAX];

	int r = single_path(base, single);
	if (r < 0)
		return r;
	r = for_each_shard(base, remove_file);
	if (r < 0)
		return r;
	if (!set)
		return temp_files_commit(temp_files, 0, single);
	r = remove_file(single);
	return r == 0 ? replace_link_shards(temp_files, base) : r;
}

/* Replaces the files and removes the commit record. Syncs each step before the next one begins. */
static int replace_finish(struct temp_files *temp_files, const char *base, const char *record,
			  bool set)
{
	int r = io_sync_folder(temp_files->directory);
	if (r < 0)
		return r;
	r = replace_files(temp_files, base, set);
	if (r != 0)
		return r;
	r = io_sync_folder(temp_files->directory);
	if (r < 0)
		return r;
	r = remove_file(record);
	if (r != 0)
		return r;
	return io_sync_folder(temp_files->directory);
}

int replace_commit(struct temp_files *temp_files, const char *base, bool set)
{
	char record[SHARD_SET_PATH_MAX];

	int r = set ? temp_files_stage(temp_files) : 0;
	if (r < 0)
		return r;
	r = shard_set_commit_record_path(base, record);
	if (r < 0)
		return r;
	r = io_sync_folder(temp_files->directory);
	if (r < 0)
		return r;
	r = replace_write_commit_record(temp_files, base);
	if (r < 0)
		return r;
	temp_files->kept = true;
	r = replace_finish(temp_files, base, record, set);
	if (r < 0)
		return r;
	temp_files->kept = false;
	temp_files_remove_stale(temp_files);
	return 0;
}
