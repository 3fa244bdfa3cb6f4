/*
 * Replaces the dataset that has a writer's name with the complete files of that writer (SPEC.md,
 * "Replacing a dataset"). Crash-safe: after a kill at any moment, either the old or the new dataset
 * opens. One thread.
 */
#pragma once

#include "format/write/temp_files.h"

/*
 * Returns a positive value if a plain rename would leave files of base behind: shards, a commit
 * record or, for a set, BASE.pimg. Negative errno on failure; -EISDIR if one of these names is a
 * directory.
 */
int replace_is_needed(const char *base, bool set);
/*
 * Commits all files as the shards of base or, if `set` is false, the only file as BASE.pimg, and
 * removes the old dataset. If it fails after the commit record is in place, the files keep their
 * current names, to which the record points (temp_files->kept).
 */
int replace_commit(struct temp_files *temp_files, const char *base, bool set);
