#include "tools/packimg/common/seal.h"
#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/error.h"
#include "format/header.h"
#include "format/set_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_entry(const char *base, uint32_t shard, uint32_t shard_count,
		      struct set_file_entry *ret_entry, struct packimg_error *error)
{
	char path[SHARD_SET_PATH_MAX];
	struct stat status;
	int r = shard_name_path(base, shard, shard_count, path);

	if (r)
		return packimg_fail(error, r, "%s is too long", base);
	int fd = io_open_regular(path);
	if (fd < 0)
		return packimg_fail(error, fd, "%s: cannot open: %s", path, strerror(-fd));
	r = fstat(fd, &status) ? packimg_fail(error, -errno, "%s: %s", path, strerror(errno))
			       : header_read(fd, path, &ret_entry->header, error);
	ret_entry->bytes = (uint64_t)status.st_size;
	close(fd);
	return r;
}

/* Reads the entries of all shards; the caller frees them. */
static int read_entries(const char *base, uint32_t shard_count, struct set_file_entry **ret_entries,
			struct packimg_error *error)
{
	struct set_file_entry *entries = calloc(shard_count, sizeof(*entries));
	int r = entries ? 0 : packimg_fail(error, -ENOMEM, "out of memory");

	for (uint32_t i = 0; !r && i < shard_count; i++)
		r = read_entry(base, i, shard_count, &entries[i], error);
	if (r)
		free(entries);
	else
		*ret_entries = entries;
	return r;
}

/* Makes the bytes of the set file; the caller frees them. */
static int make_bytes(const char *base, uint32_t shard_count, void **ret_bytes,
		      struct packimg_error *error)
{
	struct set_file_entry *entries;
	int r = read_entries(base, shard_count, &entries, error);

	if (r)
		return r;
	void *bytes = malloc(set_file_size(shard_count));
	if (bytes)
		set_file_write(entries, shard_count, bytes);
	free(entries);
	*ret_bytes = bytes;
	return bytes ? 0 : packimg_fail(error, -ENOMEM, "out of memory");
}

/* Writes a file under a temporary name, and renames it. */
static int write_file(const char *path, const void *bytes, size_t size)
{
	char temporary[SHARD_SET_PATH_MAX + 16], folder[SHARD_SET_PATH_MAX];
	const char *slash = strrchr(path, '/');
	int length = slash ? (int)(slash + 1 - path) : 0;

	snprintf(folder, sizeof(folder), "%.*s", length ? length : 1, length ? path : ".");
	snprintf(temporary, sizeof(temporary), "%.*s.%s.XXXXXX", length, path, path + length);
	int fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	const mode_t mask = umask(0);
	umask(mask);
	int r = fchmod(fd, 0666 & ~mask) ? -errno : io_write(fd, bytes, size);
	r = io_finish(fd, r);
	if (!r && rename(temporary, path))
		r = -errno;
	if (r)
		unlink(temporary);
	return r ? r : io_sync_folder(folder);
}

int seal_write(const char *base, uint32_t shard_count, struct packimg_error *error)
{
	char path[SHARD_SET_PATH_MAX];
	void *bytes;
	int r = shard_set_file_path(base, path);

	r = r ? packimg_fail(error, r, "%s is too long", base)
	      : make_bytes(base, shard_count, &bytes, error);
	if (r)
		return r;
	r = write_file(path, bytes, set_file_size(shard_count));
	free(bytes);
	return r ? packimg_fail(error, r, "%s: %s", path, strerror(-r)) : 0;
}

/* Reads the file, of at most `size` bytes; the caller frees it. Returns its size. */
static int64_t read_file(const char *path, size_t size, uint8_t **ret_bytes,
			 struct packimg_error *error)
{
	int fd = io_open_regular(path);

	if (fd < 0)
		return packimg_fail(error, fd, "%s: cannot open: %s", path, strerror(-fd));
	*ret_bytes = malloc(size);
	int64_t n = *ret_bytes ? io_read_at(fd, *ret_bytes, size, 0) : -ENOMEM;
	close(fd);
	return n < 0 ? packimg_fail(error, (int)n, "%s: %s", path, strerror((int)-n)) : n;
}

static int compare_entries(const char *path, const uint8_t *bytes, const char *base,
			   uint32_t shard_count, struct packimg_error *error)
{
	struct set_file_entry sealed, own;
	int r = 0;

	for (uint32_t i = 0; !r && i < shard_count; i++) {
		set_file_get(bytes, i, &sealed);
		r = read_entry(base, i, shard_count, &own, error);
		if (!r && memcmp(&sealed, &own, sizeof(own)) != 0)
			r = packimg_fail(error, -ESTALE,
					 "%s: shard %" PRIu32
					 " is not the one that it describes; write it again, with "
					 "packimg seal",
					 path, i);
	}
	return r;
}

int seal_compare(const char *path, struct packimg_error *error)
{
	char file[SHARD_SET_PATH_MAX], seal[SHARD_SET_PATH_MAX];
	struct shard_name name;
	uint8_t *bytes = NULL;
	uint32_t count;

	if (shard_set_resolve(path, file, NULL) || shard_name_parse(file, &name) ||
	    shard_set_file_path(name.base, seal) || access(seal, F_OK))
		return 0;
	/* a byte more, so that a longer file is noticed */
	int64_t size = read_file(seal, set_file_size(name.shard_count) + 1, &bytes, error);
	int r = size < 0 ? (int)size : set_file_check(bytes, (size_t)size, seal, &count, error);
	if (!r && count != name.shard_count)
		r = packimg_fail(error, -ESTALE,
				 "%s: is that of %" PRIu32 " shards, not of %" PRIu32
				 "; write it again, with packimg seal",
				 seal, count, name.shard_count);
	if (!r)
		r = compare_entries(seal, bytes, name.base, count, error);
	free(bytes);
	return r;
}
