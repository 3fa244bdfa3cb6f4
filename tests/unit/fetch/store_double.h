/*
 * A store for tests of loaderd-fetch, in place of tools/store/store.c: it answers requests from
 * memory, the newest first, when it is run. It has one file, or the shards of a set and its set
 * file. A request for bytes beyond the size that it has announced ends the program. One thread.
 */
#pragma once

#include "tools/store/store.h"

enum { STORE_DOUBLE_SHARDS = 3, STORE_DOUBLE_FILES = 4, STORE_DOUBLE_QUEUE = 4096 };

struct store {
	uint8_t *bytes[STORE_DOUBLE_FILES]; /* the shards, and the set file */
	size_t sizes[STORE_DOUBLE_FILES];
	uint64_t beyond; /* bytes that are announced and not there */
	struct store_request queue[STORE_DOUBLE_QUEUE];
	unsigned queued;
	struct store_counters counters;
};

extern struct store *const store_double;
