/*
 * Replaces the dataset of a name by a writer's complete files (SPEC.md, "Replacing a dataset").
 * Crash-safe: killed at any moment, either the old or the new dataset opens. One thread.
 */
#pragma once

#include "format/write/temp_files.h"

/*
 * Positive when the base has files that a plain rename would leave behind: shards, a commit record,
 * or, for a set, BASE.pimg. Negative errno; -EISDIR when a folder has one of these names.
 */
int replace_is_needed(const char *base, bool set);
/*
 * Commits all files as the shards of base or, without `set`, the only one as BASE.pimg, and removes
 * the old dataset. A failure after the commit record is in place leaves the files under their
 * current names, where the record leads to them (temp_files->kept).
 */
int replace_commit(struct temp_files *temp_files, const char *base, bool set);
