/*
 * Unfinished files of a writer: named ".TARGET.partial.ID.SHARD" beside the target, where ID is
 * drawn at random; once all shards of a set are complete, ".TARGET.partial.ID-00000-of-00016.pimg",
 * so that they open under these names, too. The first one is locked as long as its writer lives, so
 * that a later writer of the same target can tell leftovers of a killed one from files in use, and
 * removes them, unless a notice names them (replace.h). Owned by one writer, used by one thread.
 */
#pragma once

#include "format/base/set.h"
#include "format/write/output.h"

#include <stdbool.h>

struct partial {
	char target[SET_PATH_MAX];
	char directory[SET_PATH_MAX];
	char prefix[SET_PATH_MAX]; /* ".TARGET.partial." */
	char id[17];
	uint32_t count; /* files made so far */
	bool staged;    /* they are named as a set */
	bool kept;      /* they are the dataset now, and must not be removed */
	int lock_fd;
};

/* Takes the target apart. -EINVAL, -ENAMETOOLONG. */
int partial_init(struct partial *partial, const char *target);
/*
 * Makes the next file, whose number is the shard's, and begins it with room for its header, without
 * magic: unfinished it does not open. buffer is lent, as to output_init().
 */
int partial_create(struct partial *partial, uint8_t *buffer, struct output *ret_output);
int partial_path(const struct partial *partial, uint32_t shard, char ret_path[SET_PATH_MAX]);
/* Names the files as a set, whose first one's path then is partial_path(0). */
int partial_stage(struct partial *partial);
/*
 * Removes what killed writers of the target left behind, except the file that a notice names, and
 * its set.
 */
void partial_remove_stale(const struct partial *partial);
/* Renames a file to its final name; it is then no longer removed. */
int partial_publish(struct partial *partial, uint32_t shard, const char *path);
/* Removes all files that were not published. */
void partial_deinit(struct partial *partial);
