/*
 * A writer's complete files become the dataset of their name in place of one that is there:
 * SPEC.md, "Replacing a dataset". Killed at any moment, either the old or the new one opens. One
 * thread.
 */
#pragma once

#include "format/write/temp_files.h"

/*
 * Whether files of a dataset with that base are there that a rename would not replace: shards, a
 * commit record, or BASE.pimg where a set is to be. Negative errno; -EISDIR when a folder is in the
 * way.
 */
int replace_is_needed(const char *base, bool set);
/*
 * Commits all files of partial: as shards of base, or, without `set`, its only one as BASE.pimg.
 * Removes the old dataset. When it fails behind the point from which the new dataset is the one
 * that opens, its files stay under the names that they have (partial->kept).
 */
int replace_commit(struct temp_files *temp_files, const char *base, bool set);
