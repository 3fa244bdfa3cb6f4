/*
 * Counts the files that a conversion ignored because of their names, by kind and by folder, so that
 * the conversion can report which files a class without images has. Lives in the caller's arena.
 * One thread.
 */
#pragma once

#include "tools/packimg/common/name_table.h"
#include "tools/packimg/source/filter.h"

#include <stdint.h>

enum {
	IGNORED_KINDS_MAX = 200, /* further kinds are counted as "of other kinds" */
};

struct ignored_kind {
	const char *name; /* an extension such as ".txt", or a description */
	const char
		*first; /* name of the first file of this kind, at most PACKIMG_SOURCE_MAX bytes */
	uint64_t files;
};

struct ignored_files {
	struct arena *arena;
	struct name_table kind_names;
	/* kinds by number; sorted by descending frequency after ignored_files_sort() */
	struct ignored_kind kinds[IGNORED_KINDS_MAX + 1];
	/*
	 * Folders that were entered or contain files that are not hidden; each name ends in '/'.
	 * folder_files counts the files other than images, except those that operating systems
	 * create in any folder.
	 */
	struct name_table folders;
	uint64_t *folder_files;
	size_t folder_capacity;
	uint64_t files, excluded;
};

void ignored_files_init(struct ignored_files *ignored, struct arena *arena);
void ignored_files_deinit(struct ignored_files *ignored);
/* 0 or -ENOMEM. */
int ignored_files_add(struct ignored_files *ignored, const char *name, enum filter_verdict verdict);
/* Sorts the kinds for reports. Add nothing afterwards. */
void ignored_files_sort(struct ignored_files *ignored);
