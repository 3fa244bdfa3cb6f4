/*
 * Interned names, numbered in order of first appearance: classes, fields, keys. Names and tables
 * live in an arena that the caller owns and that must outlive the table. One thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stdbool.h>
#include <stdint.h>

struct name_table {
	struct arena *arena;
	const char **names; /* by number; null-terminated */
	uint32_t count;
	size_t capacity;
	uint32_t *slots; /* open addressing: number + 1, 0 if free */
	uint32_t slot_count;
};

void name_table_init(struct name_table *names, struct arena *arena);
void name_table_deinit(struct name_table *names);
/* Finds or adds a name; 0 or -ENOMEM. ret_added may be NULL. */
int name_table_add(struct name_table *names, const char *name, uint32_t *ret_number,
		   bool *ret_added);
/* Finds a name; -ENOENT if the table does not contain it. */
int name_table_find(const struct name_table *names, const char *name, uint32_t *ret_number);
/* Writes the numbers to order[0..count), sorted bytewise by their names. */
void name_table_sort(const struct name_table *names, uint32_t *order);
