/*
 * A set of names numbered in order of first appearance: classes, fields, keys. The names are copied
 * into an arena that the caller owns and that must outlive the set; the set's tables lie there,
 * too. One thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stdbool.h>
#include <stdint.h>

struct names {
	struct arena *arena;
	const char **names; /* by number, terminated */
	uint32_t count;
	size_t room;
	uint32_t *slots; /* open addressing: number + 1, 0 is free */
	uint32_t slot_count;
};

void names_init(struct names *names, struct arena *arena);
void names_deinit(struct names *names);
/* Number of the name, added when new; 0 or -ENOMEM. ret_added may be NULL. */
int names_add(struct names *names, const char *name, uint32_t *ret_number, bool *ret_added);
/* -ENOENT when the name is not in the set. */
int names_find(const struct names *names, const char *name, uint32_t *ret_number);
/* Numbers in bytewise order of their names, into order[0..count). */
void names_sort(const struct names *names, uint32_t *order);
