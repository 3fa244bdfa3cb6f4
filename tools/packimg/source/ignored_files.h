/*
 * Files that a conversion ignored because of their names: counts by kind and by folder, so that a
 * class without other files can be reported. Lives in the caller's arena. One thread.
 */
#pragma once

#include "tools/packimg/common/name_table.h"
#include "tools/packimg/source/filter.h"

#include <stdint.h>

enum {
	IGNORED_KINDS_MAX = 200, /* what comes later is counted as "of other kinds" */
};

struct ignored_kind {
	const char *name;  /* an ending such as ".txt", or words */
	const char *first; /* the first such file, PACKIMG_SOURCE_MAX bytes of it at most */
	uint64_t files;
};

struct ignored_files {
	struct arena *arena;
	struct name_table kind_names;
	/* by number; after ignored_files_sort() the most frequent first */
	struct ignored_kind kinds[IGNORED_KINDS_MAX + 1];
	/*
	 * That were entered, or hold files that are not hidden; each ends in '/'. The files are
	 * those that are no images, without what systems put into any folder.
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
/* Sorts kinds for reports; nothing can be added afterwards. */
void ignored_files_sort(struct ignored_files *ignored);
