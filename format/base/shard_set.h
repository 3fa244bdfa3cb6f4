/*
 * File names of a dataset. A dataset is a single file NAME.pimg, or a set of shards such as
 * NAME-00000-of-00016.pimg (SPEC.md, "Sets"). While a dataset is being replaced, its commit record
 * points to other names (SPEC.md, "Replacing a dataset"). Functions resolve a path without opening
 * the files of the dataset: they read only directories and commit records. Any thread.
 */
#pragma once

#include <stdint.h>

enum {
	SHARD_SET_PATH_MAX = 4096,
	SHARD_SET_ERROR_MAX = 512, /* bytes of an error message */
};

struct shard_name {
	char base[SHARD_SET_PATH_MAX]; /* the path without "-00000-of-00016.pimg" */
	uint32_t shard;
	uint32_t shard_count;
};

/* Splits the path of a shard; -EINVAL if it is not a shard's. */
int shard_name_parse(const char *path, struct shard_name *ret_name);
/* Builds the path of a shard; -ENAMETOOLONG. */
int shard_name_path(const char *base, uint32_t shard, uint32_t shard_count,
		    char ret_path[SHARD_SET_PATH_MAX]);
/*
 * Removes ".pimg" or "-00000-of-00016.pimg" from a path; -EINVAL if it ends in neither,
 * -ENAMETOOLONG.
 */
int shard_set_base(const char *path, char ret_base[SHARD_SET_PATH_MAX]);
/* Builds the path of the set file of a set; -ENAMETOOLONG. */
int shard_set_file_path(const char *base, char ret_path[SHARD_SET_PATH_MAX]);
/* Removes ".pimg.set" from the path of a set file; -EINVAL if it is not one's, -ENAMETOOLONG. */
int shard_set_file_base(const char *path, char ret_base[SHARD_SET_PATH_MAX]);
/* Builds the path of the commit record of a dataset; -ENAMETOOLONG. */
int shard_set_commit_record_path(const char *base, char ret_path[SHARD_SET_PATH_MAX]);
/*
 * Returns the file that the commit record of a dataset points to; -ENOENT if there is no valid
 * commit record.
 */
int shard_set_commit_record_read(const char *base, char ret_path[SHARD_SET_PATH_MAX]);
/*
 * Resolves the path argument of packimg_open() to one existing file: the file itself, the first
 * shard of the set for "NAME.pimg", the only file or set of a directory, or the file that a commit
 * record points to instead. Returns -ENOENT, -EEXIST (several candidates), -ENAMETOOLONG or another
 * negative errno, with a message in error, which may be NULL.
 */
int shard_set_resolve(const char *path, char ret_path[SHARD_SET_PATH_MAX], char *error);
