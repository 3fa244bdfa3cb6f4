/*
 * Unfinished files of a writer: named ".TARGET.partial.ID.SHARD" beside the target, where ID is
 * drawn at random; once all shards of a set are complete, ".TARGET.partial.ID-00000-of-00016.pimg",
 * so that they open under these names, too. The first one is locked as long as its writer lives, so
 * that a later writer of the same target can tell leftovers of a killed one from files in use, and
 * removes them, unless a commit record names them (replace.h). Owned by one writer, used by one
 * thread.
 */
#pragma once

#include "format/base/shard_set.h"
#include "format/write/output.h"

#include <stdbool.h>

struct temp_files {
	char target[SHARD_SET_PATH_MAX];
	char directory[SHARD_SET_PATH_MAX];
	char prefix[SHARD_SET_PATH_MAX]; /* ".TARGET.partial." */
	char id[17];
	uint32_t count; /* files made so far */
	bool staged;    /* they are named as a set */
	bool kept;      /* they are the dataset now, and must not be removed */
	int lock_fd;
};

/* Takes the target apart. -EINVAL, -ENAMETOOLONG. */
int temp_files_init(struct temp_files *temp_files, const char *target);
/*
 * Makes the next file, whose number is the shard's, and begins it with room for its header, without
 * magic: unfinished it does not open. buffer is lent, as to output_init().
 */
int temp_files_create(struct temp_files *temp_files, uint8_t *buffer, struct output *ret_output);
int temp_files_path(const struct temp_files *temp_files, uint32_t shard,
		    char ret_path[SHARD_SET_PATH_MAX]);
/* Names the files as a set, whose first one's path then is temp_files_path(0). */
int temp_files_stage(struct temp_files *temp_files);
/*
 * Removes what killed writers of the target left behind, except the file that a commit record
 * names, and its set.
 */
void temp_files_remove_stale(const struct temp_files *temp_files);
/* Renames a file to its final name; it is then no longer removed. */
int temp_files_commit(struct temp_files *temp_files, uint32_t shard, const char *path);
/* Removes all files that were not committed. */
void temp_files_deinit(struct temp_files *temp_files);
