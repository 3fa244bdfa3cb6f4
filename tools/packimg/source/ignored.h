/*
 * Files that a conversion passed over because of their names: how many of each kind, and in which
 * folders, so that a class which has no other files can be named. All of it lives in the arena that
 * is given. One thread.
 */
#pragma once

#include "tools/packimg/common/names.h"
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

struct ignored {
	struct arena *arena;
	struct names kind_names;
	/* by number; after ignored_sort() the most frequent first */
	struct ignored_kind kinds[IGNORED_KINDS_MAX + 1];
	/*
	 * That were entered, or hold files that are not hidden; each ends in '/'. The files are
	 * those that are no images, without what systems put into any folder.
	 */
	struct names folders;
	uint64_t *folder_files;
	size_t folder_room;
	uint64_t files, excluded;
};

void ignored_init(struct ignored *ignored, struct arena *arena);
void ignored_deinit(struct ignored *ignored);
/* 0 or -ENOMEM. */
int ignored_add(struct ignored *ignored, const char *name, enum filter_verdict verdict);
/* Before anything is told of kinds; nothing can be added any more. */
void ignored_sort(struct ignored *ignored);
