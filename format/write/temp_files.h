/*
 * Files of a writer before they are committed: ".TARGET.partial.ID.SHARD" in the target's
 * directory, with a random ID. When all shards of a set are complete, they are renamed to
 * ".TARGET.partial.ID-00000-of-00016.pimg" (staged); the set can be opened by these names. The
 * first file stays locked while its writer lives. A later writer of the same target removes
 * unlocked files as leftovers, except those that a commit record points to (replace.h). Owned by
 * one writer, used by one thread.
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
	uint32_t count; /* files created so far */
	bool staged;    /* the files have their staged names */
	bool kept;      /* the files are the committed dataset: deinit must not remove them */
	int lock_fd;
};

/* Splits the path of the target; creates nothing. -EINVAL, -ENAMETOOLONG. */
int temp_files_init(struct temp_files *temp_files, const char *target);
/*
 * Creates the file of the next shard. Fills the space of the header with zeros: without magic, the
 * file does not open. Borrows buffer, as output_init() does.
 */
int temp_files_create(struct temp_files *temp_files, uint8_t *buffer, struct output *ret_output);
int temp_files_path(const struct temp_files *temp_files, uint32_t shard,
		    char ret_path[SHARD_SET_PATH_MAX]);
/* Renames the files to their staged names; temp_files_path(0) then returns the first one. */
int temp_files_stage(struct temp_files *temp_files);
/*
 * Removes leftovers of killed writers of the target, except the file that a commit record points to
 * and the other shards of its set.
 */
void temp_files_remove_stale(const struct temp_files *temp_files);
/* Renames a file to its final name. deinit no longer removes it. */
int temp_files_commit(struct temp_files *temp_files, uint32_t shard, const char *path);
/* Removes all files that were not committed, unless kept. */
void temp_files_deinit(struct temp_files *temp_files);
