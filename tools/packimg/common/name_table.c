#include "tools/packimg/common/name_table.h"

#include "tools/packimg/common/shuffle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void name_table_init(struct name_table *names, struct arena *arena)
{
	*names = (struct name_table){.arena = arena};
}

void name_table_deinit(struct name_table *names)
{
	if (names->arena) {
		arena_release(names->arena, names->names);
		arena_release(names->arena, names->slots);
	}
	*names = (struct name_table){0};
}

/* Returns the slot of the name, or the free slot where it belongs. */
static uint32_t name_table_find_slot(const struct name_table *names, const char *name)
{
	uint32_t slot = (uint32_t)shuffle_hash(name, strlen(name), 0) & (names->slot_count - 1);

	while (names->slots[slot] && strcmp(names->names[names->slots[slot] - 1], name) != 0)
		slot = (slot + 1) & (names->slot_count - 1);
	return slot;
}

static int name_table_grow(struct name_table *names)
{
	if (arena_reserve(names->arena, &names->names, names->count, &names->capacity,
			  sizeof(*names->names)))
		return -ENOMEM;
	uint32_t *slots = arena_array(names->arena, names->capacity * 2 * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	arena_release(names->arena, names->slots);
	names->slots = slots;
	names->slot_count = (uint32_t)names->capacity * 2;
	for (uint32_t i = 0; i < names->count; i++)
		names->slots[name_table_find_slot(names, names->names[i])] = i + 1;
	return 0;
}

int name_table_add(struct name_table *names, const char *name, uint32_t *ret_number,
		   bool *ret_added)
{
	bool added = false;

	if (names->count == names->slot_count / 2 && name_table_grow(names))
		return -ENOMEM;
	uint32_t slot = name_table_find_slot(names, name);
	if (!names->slots[slot]) {
		const char *copy = arena_copy(names->arena, name, strlen(name));

		if (!copy)
			return -ENOMEM;
		names->names[names->count] = copy;
		names->slots[slot] = ++names->count;
		added = true;
	}
	*ret_number = names->slots[slot] - 1;
	if (ret_added)
		*ret_added = added;
	return 0;
}

int name_table_find(const struct name_table *names, const char *name, uint32_t *ret_number)
{
	if (!names->slot_count)
		return -ENOENT;
	uint32_t slot = name_table_find_slot(names, name);
	if (!names->slots[slot])
		return -ENOENT;
	*ret_number = names->slots[slot] - 1;
	return 0;
}

static int order_compare(const void *a, const void *b, void *context)
{
	const struct name_table *names = context;

	return strcmp(names->names[*(const uint32_t *)a], names->names[*(const uint32_t *)b]);
}

void name_table_sort(const struct name_table *names, uint32_t *order)
{
	for (uint32_t i = 0; i < names->count; i++)
		order[i] = i;
	qsort_r(order, names->count, sizeof(*order), order_compare, (void *)(uintptr_t)names);
}
