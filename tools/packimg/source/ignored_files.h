/*
 * Counts, by kind and by folder, the files that a conversion ignored because of their names, so
 * that it can report a class without other files. Lives in the caller's arena. One thread.
 */
#pragma once

#include "tools/packimg/common/name_table.h"
#include "tools/packimg/source/filter.h"

#include <stdint.h>

enum {
	IGNORED_KINDS_MAX = 200, /* later kinds are counted as "of other kinds" */
};

struct ignored_kind {
	const char *name;  /* an extension such as ".txt", or words */
	const char *first; /* name of the first such file, at most PACKIMG_SOURCE_MAX bytes */
	uint64_t files;
};

struct ignored_files {
	struct arena *arena;
	struct name_table kind_names;
	/* by number; after ignored_files_sort() by descending frequency */
	struct ignored_kind kinds[IGNORED_KINDS_MAX + 1];
	/*
	 * Folders that were entered or hold files that are not hidden; each name ends in '/'.
	 * folder_files counts files that are not images, without those that operating systems
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
/* Sorts kinds for reports; add nothing afterwards. */
void ignored_files_sort(struct ignored_files *ignored);
