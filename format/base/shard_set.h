/*
 * Names of a dataset's files: a single NAME.pimg, or the shards NAME-00000-of-00016.pimg of a set
 * (SPEC.md, "Sets"), and the commit record that leads to other names while a dataset is being
 * replaced (SPEC.md, "Replacing a dataset"). Finds the files that a path stands for; of these it
 * opens none. Pure apart from listings and commit records; any thread.
 */
#pragma once

#include <stdint.h>

enum {
	SHARD_SET_PATH_MAX = 4096,
	SHARD_SET_ERROR_MAX = 512, /* bytes of an error text */
};

struct shard_name {
	char base[SHARD_SET_PATH_MAX]; /* path before "-00000-of-00016.pimg" */
	uint32_t shard;
	uint32_t shard_count;
};

/* Takes a shard's path apart; -EINVAL when it is not named like one. */
int shard_name_parse(const char *path, struct shard_name *ret_name);
/* Path of a shard; -ENAMETOOLONG. */
int shard_name_path(const char *base, uint32_t shard, uint32_t shard_count,
		    char ret_path[SHARD_SET_PATH_MAX]);
/*
 * Path without ".pimg" or "-00000-of-00016.pimg"; -EINVAL when it ends in neither, -ENAMETOOLONG.
 */
int shard_set_base(const char *path, char ret_base[SHARD_SET_PATH_MAX]);
/* Path of the commit record of the dataset with that base; -ENAMETOOLONG. */
int shard_set_commit_record_path(const char *base, char ret_path[SHARD_SET_PATH_MAX]);
/*
 * The file that the commit record names in place of the dataset with that base; -ENOENT when there
 * is no commit record that counts.
 */
int shard_set_commit_record_read(const char *base, char ret_path[SHARD_SET_PATH_MAX]);
/*
 * Resolves what packimg_open() was given to one existing file: the file itself, the first shard of
 * the set that "NAME.pimg" stands for, or the only file or set of a directory; or what a commit
 * record names in its place. -ENOENT, -EEXIST (several candidates), -ENAMETOOLONG, ... with a
 * sentence in error, which may be NULL.
 */
int shard_set_resolve(const char *path, char ret_path[SHARD_SET_PATH_MAX], char *error);
