#include "format/base/shard_set.h"
#include "format/base/text/text.h"

#include "format/base/text/sentence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX          ".pimg"
#define NOTICE          ".replaced"
#define SET_FILE_SUFFIX ".pimg.set"

enum {
	SUFFIX_SIZE = sizeof(SUFFIX) - 1,
	NOTICE_SIZE = sizeof(NOTICE) - 1,
	SET_FILE_SUFFIX_SIZE = sizeof(SET_FILE_SUFFIX) - 1,
	NUMBERS_SIZE = sizeof("-00000-of-00000") - 1,
};

static int parse_five(const char *text, uint32_t *ret_value)
{
	uint32_t value = 0;

	for (int i = 0; i < 5; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		value = value * 10 + (uint32_t)(text[i] - '0');
	}
	*ret_value = value;
	return 0;
}

static bool has_suffix(const char *path)
{
	size_t size = strlen(path);
	return size > SUFFIX_SIZE && strcmp(path + size - SUFFIX_SIZE, SUFFIX) == 0;
}

int shard_name_parse(const char *path, struct shard_name *ret_name)
{
	size_t size = strlen(path);
	uint32_t shard, shard_count;

	if (!has_suffix(path) || size <= SUFFIX_SIZE + NUMBERS_SIZE || size >= SHARD_SET_PATH_MAX)
		return -EINVAL;
	const char *numbers = path + size - SUFFIX_SIZE - NUMBERS_SIZE;
	if (numbers[0] != '-' || memcmp(numbers + 6, "-of-", 4) != 0 || numbers[-1] == '/')
		return -EINVAL;
	if (parse_five(numbers + 1, &shard) < 0 || parse_five(numbers + 10, &shard_count) < 0)
		return -EINVAL;
	if (shard_count == 0 || shard >= shard_count)
		return -EINVAL;
	memcpy(ret_name->base, path, (size_t)(numbers - path));
	ret_name->base[numbers - path] = '\0';
	ret_name->shard = shard;
	ret_name->shard_count = shard_count;
	return 0;
}

int shard_name_path(const char *base, uint32_t shard, uint32_t shard_count,
		    char ret_path[SHARD_SET_PATH_MAX])
{
	if (strlen(base) + NUMBERS_SIZE + SUFFIX_SIZE >= SHARD_SET_PATH_MAX)
		return -ENAMETOOLONG;
	snprintf(ret_path, SHARD_SET_PATH_MAX, "%.*s-%05u-of-%05u" SUFFIX,
		 SHARD_SET_PATH_MAX - NUMBERS_SIZE - SUFFIX_SIZE - 1, base, shard, shard_count);
	return 0;
}

int shard_set_base(const char *path, char ret_base[SHARD_SET_PATH_MAX])
{
	struct shard_name name;
	size_t size = strlen(path);

	if (size >= SHARD_SET_PATH_MAX)
		return -ENAMETOOLONG;
	if (shard_name_parse(path, &name) == 0) {
		memcpy(ret_base, name.base, strlen(name.base) + 1);
		return 0;
	}
	if (!has_suffix(path) || path[size - SUFFIX_SIZE - 1] == '/')
		return -EINVAL;
	memcpy(ret_base, path, size - SUFFIX_SIZE);
	ret_base[size - SUFFIX_SIZE] = '\0';
	return 0;
}

int shard_set_file_path(const char *base, char ret_path[SHARD_SET_PATH_MAX])
{
	int n = snprintf(ret_path, SHARD_SET_PATH_MAX, "%s" SET_FILE_SUFFIX, base);
	return n < 0 || n >= SHARD_SET_PATH_MAX ? -ENAMETOOLONG : 0;
}

int shard_set_file_base(const char *path, char ret_base[SHARD_SET_PATH_MAX])
{
	size_t size = strlen(path);

	if (size >= SHARD_SET_PATH_MAX)
		return -ENAMETOOLONG;
	if (size <= SET_FILE_SUFFIX_SIZE || path[size - SET_FILE_SUFFIX_SIZE - 1] == '/' ||
	    strcmp(path + size - SET_FILE_SUFFIX_SIZE, SET_FILE_SUFFIX) != 0)
		return -EINVAL;
	memcpy(ret_base, path, size - SET_FILE_SUFFIX_SIZE);
	ret_base[size - SET_FILE_SUFFIX_SIZE] = '\0';
	return 0;
}

/* Length of a path without its last component. */
static int folder_size(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? (int)(slash + 1 - path) : 0;
}

int shard_set_commit_record_path(const char *base, char ret_path[SHARD_SET_PATH_MAX])
{
	int folder = folder_size(base);
	int n = snprintf(ret_path, SHARD_SET_PATH_MAX, "%.*s.%s" SUFFIX NOTICE, folder, base,
			 base + folder);
	return n < 0 || n >= SHARD_SET_PATH_MAX ? -ENAMETOOLONG : 0;
}

/*
 * True if a commit record may be trusted. In a folder that anyone may write to, trusts only users
 * whose symbolic links the kernel would follow there (fs.protected_symlinks).
 */
static bool commit_record_is_trusted(const char *base, const struct stat *record)
{
	char folder[SHARD_SET_PATH_MAX];
	struct stat status;

	snprintf(folder, sizeof(folder), "%.*s.", folder_size(base), base);
	if (stat(folder, &status) < 0)
		return false;
	if (!(status.st_mode & S_ISVTX) || !(status.st_mode & S_IWOTH))
		return true;
	return record->st_uid == geteuid() || record->st_uid == status.st_uid;
}

/*
 * Reads the line of the commit record, unterminated. Returns its size, or -ENOENT if there is no
 * valid record.
 */
static ssize_t commit_record_load(const char *base, char line[SHARD_SET_PATH_MAX])
{
	struct stat status;

	int r = shard_set_commit_record_path(base, line);
	if (r < 0)
		return r;
	int fd = open(line, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -ENOENT;
	ssize_t n = -1;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
	    commit_record_is_trusted(base, &status))
		n = pread(fd, line, SHARD_SET_PATH_MAX, 0);
	close(fd);
	return n > 0 && n < SHARD_SET_PATH_MAX && line[n - 1] == '\n' ? n - 1 : -ENOENT;
}

int shard_set_commit_record_read(const char *base, char ret_path[SHARD_SET_PATH_MAX])
{
	char line[SHARD_SET_PATH_MAX], path[SHARD_SET_PATH_MAX];
	int folder = folder_size(base);
	size_t name_size = strlen(base + folder);
	struct stat status;

	ssize_t size = commit_record_load(base, line);
	if (size < 0)
		return (int)size;
	/* The record must name a file in the same folder, named after the dataset. */
	if ((size_t)size <= name_size + 2 || line[0] != '.' ||
	    memcmp(line + 1, base + folder, name_size) != 0 || line[name_size + 1] != '.' ||
	    memchr(line, '/', (size_t)size) || memchr(line, '\0', (size_t)size))
		return -ENOENT;
	int n = snprintf(path, sizeof(path), "%.*s%.*s", folder, base, (int)size, line);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	/* A record that names a missing file is left over from a completed replacement. */
	if (lstat(path, &status) < 0 || !S_ISREG(status.st_mode))
		return -ENOENT;
	memcpy(ret_path, path, (size_t)n + 1);
	return 0;
}

/* Result of a directory scan: the only candidate, or the first two that conflict. */
struct candidates {
	char found[2][SHARD_SET_PATH_MAX];
	size_t count;
	bool has_commit_records;  /* a commit record was found */
	bool heed_commit_records; /* check every name for a commit record */
};

/* Adds a candidate. All shards of one set are the same candidate. */
static int candidates_add(struct candidates *candidates, const char *path)
{
	struct shard_name name;
	char canonical[SHARD_SET_PATH_MAX], base[SHARD_SET_PATH_MAX];

	if (candidates->heed_commit_records && shard_set_base(path, base) == 0 &&
	    shard_set_commit_record_read(base, canonical) == 0) {
		/* All files of the dataset are this one candidate. */
	} else if (shard_name_parse(path, &name) == 0) {
		int r = shard_name_path(name.base, 0, name.shard_count, canonical);
		if (r < 0)
			return r;
	} else if (strlen(path) < SHARD_SET_PATH_MAX) {
		memcpy(canonical, path, strlen(path) + 1);
	} else {
		return -ENAMETOOLONG;
	}
	if (candidates->count > 0 && strcmp(candidates->found[0], canonical) == 0)
		return 0;
	if (candidates->count < 2)
		memcpy(candidates->found[candidates->count], canonical, sizeof(canonical));
	candidates->count++;
	return 0;
}

static bool is_commit_record(const char *name)
{
	size_t size = strlen(name);
	return name[0] == '.' && size > NOTICE_SIZE + SUFFIX_SIZE + 1 &&
	       memcmp(name + size - NOTICE_SIZE - SUFFIX_SIZE, SUFFIX NOTICE,
		      SUFFIX_SIZE + NOTICE_SIZE) == 0;
}

/*
 * Adds the dataset of a commit record. During a replacement, the record may be the only file with
 * the dataset's name. Ignores an invalid record.
 */
static int candidates_add_commit_record(struct candidates *candidates, const char *directory,
					const char *name)
{
	char path[SHARD_SET_PATH_MAX], base[SHARD_SET_PATH_MAX], target[SHARD_SET_PATH_MAX];

	int n = snprintf(path, sizeof(path), "%s/%.*s", directory,
			 (int)(strlen(name) - NOTICE_SIZE - 1), name + 1);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	if (shard_set_base(path, base) < 0 || shard_set_commit_record_read(base, target) < 0)
		return 0;
	return candidates_add(candidates, path);
}

/* Adds a directory entry: any *.pimg or, if base is set, only a shard of "directory/base". */
static int candidates_meet(struct candidates *candidates, const char *directory, const char *base,
			   const char *file)
{
	char path[SHARD_SET_PATH_MAX];
	struct shard_name name;

	if (is_commit_record(file)) {
		candidates->has_commit_records = true;
		return candidates->heed_commit_records
			       ? candidates_add_commit_record(candidates, directory, file)
			       : 0;
	}
	if (file[0] == '.' || !has_suffix(file) ||
	    (base && (shard_name_parse(file, &name) < 0 || strcmp(name.base, base) != 0)))
		return 0;
	int n = snprintf(path, sizeof(path), "%s/%s", directory, file);
	return n < 0 || (size_t)n >= sizeof(path) ? -ENAMETOOLONG
						  : candidates_add(candidates, path);
}

static int candidates_list(const char *directory, const char *base, struct candidates *candidates,
			   char *error)
{
	const struct dirent *entry;
	DIR *listing = opendir(directory);
	int r = listing ? 0 : -errno;

	while (r == 0) {
		errno = 0;
		entry = readdir(listing);
		if (!entry) {
			r = -errno;
			break;
		}
		r = candidates_meet(candidates, directory, base, entry->d_name);
	}
	if (listing)
		closedir(listing);
	if (r < 0)
		return sentence_fail(error, SHARD_SET_ERROR_MAX, r,
				     "%s: cannot list the directory: %s", directory, strerror(-r));
	return 0;
}

static int candidates_choose(const struct candidates *candidates, const char *path,
			     char ret_path[SHARD_SET_PATH_MAX], char *error)
{
	if (candidates->count > 1)
		return sentence_fail(
			error, SHARD_SET_ERROR_MAX, -EEXIST,
			"%.150s: several datasets fit, %.120s and %.120s; name one of them", path,
			candidates->found[0], candidates->found[1]);
	memcpy(ret_path, candidates->found[0], SHARD_SET_PATH_MAX);
	return 0;
}

/* Finds the shards of DIR/NAME if "DIR/NAME.pimg" does not exist. */
static int shard_set_find(const char *path, char ret_path[SHARD_SET_PATH_MAX], char *error)
{
	char directory[SHARD_SET_PATH_MAX] = ".", base[SHARD_SET_PATH_MAX];
	struct candidates candidates = {0};

	if (text_is_address(path))
		return sentence_fail(error, SHARD_SET_ERROR_MAX, -ENOENT,
				     "%s is an address, not a file; packimg fetch copies a dataset "
				     "from a store",
				     path);
	const char *slash = strrchr(path, '/');
	const char *file = slash ? slash + 1 : path;
	if (slash)
		snprintf(directory, sizeof(directory), "%.*s",
			 slash == path ? 1 : (int)(slash - path), path);
	snprintf(base, sizeof(base), "%.*s", (int)(strlen(file) - SUFFIX_SIZE), file);

	struct stat status;
	if (stat(directory, &status) < 0)
		return sentence_fail(error, SHARD_SET_ERROR_MAX, -ENOENT,
				     "%s: there is no such file", path);
	int r = candidates_list(directory, base, &candidates, error);
	if (r < 0)
		return r;
	if (candidates.count == 0)
		return sentence_fail(
			error, SHARD_SET_ERROR_MAX, -ENOENT,
			"%s: there is no such file, and no shards %.*s-00000-of-*.pimg either",
			path, (int)(strlen(path) - SUFFIX_SIZE), path);
	return candidates_choose(&candidates, path, ret_path, error);
}

int shard_set_resolve(const char *path, char ret_path[SHARD_SET_PATH_MAX], char *error)
{
	struct candidates candidates = {0};
	char base[SHARD_SET_PATH_MAX];
	struct stat status;
	int r;

	if (strlen(path) >= SHARD_SET_PATH_MAX)
		return sentence_fail(error, SHARD_SET_ERROR_MAX, -ENAMETOOLONG,
				     "%.100s...: the path is too long", path);
	if (shard_set_base(path, base) == 0 && shard_set_commit_record_read(base, ret_path) == 0)
		return 0;
	if (stat(path, &status) < 0) {
		r = -errno;
		if (r == -ENOENT && has_suffix(path))
			return shard_set_find(path, ret_path, error);
		return sentence_fail(error, SHARD_SET_ERROR_MAX, r, "%s: %s", path,
				     r == -ENOENT ? "there is no such file" : strerror(-r));
	}
	if (!S_ISDIR(status.st_mode)) {
		memcpy(ret_path, path, strlen(path) + 1);
		return 0;
	}
	r = candidates_list(path, NULL, &candidates, error);
	if (r == 0 && candidates.has_commit_records) {
		candidates = (struct candidates){.heed_commit_records = true};
		r = candidates_list(path, NULL, &candidates, error);
	}
	if (r < 0)
		return r;
	if (candidates.count == 0)
		return sentence_fail(error, SHARD_SET_ERROR_MAX, -ENOENT,
				     "%s: the directory holds no .pimg file; packimg convert makes "
				     "one of images",
				     path);
	return candidates_choose(&candidates, path, ret_path, error);
}
