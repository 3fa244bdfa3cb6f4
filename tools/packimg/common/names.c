#include "tools/packimg/common/names.h"

#include "tools/packimg/common/shuffle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void names_init(struct names *names, struct arena *arena)
{
	*names = (struct names){.arena = arena};
}

void names_deinit(struct names *names)
{
	if (names->arena) {
		arena_release(names->arena, names->names);
		arena_release(names->arena, names->slots);
	}
	*names = (struct names){0};
}

/* Slot of the name, or the free slot where it belongs. */
static uint32_t find_slot(const struct names *names, const char *name)
{
	uint32_t slot = (uint32_t)shuffle_hash(name, strlen(name), 0) & (names->slot_count - 1);

	while (names->slots[slot] && strcmp(names->names[names->slots[slot] - 1], name) != 0)
		slot = (slot + 1) & (names->slot_count - 1);
	return slot;
}

static int grow(struct names *names)
{
	if (arena_room(names->arena, &names->names, names->count, &names->room,
		       sizeof(*names->names)))
		return -ENOMEM;
	uint32_t *slots = arena_array(names->arena, names->room * 2 * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	arena_release(names->arena, names->slots);
	names->slots = slots;
	names->slot_count = (uint32_t)names->room * 2;
	for (uint32_t i = 0; i < names->count; i++)
		names->slots[find_slot(names, names->names[i])] = i + 1;
	return 0;
}

int names_add(struct names *names, const char *name, uint32_t *ret_number, bool *ret_added)
{
	bool added = false;

	if (names->count == names->slot_count / 2 && grow(names))
		return -ENOMEM;
	uint32_t slot = find_slot(names, name);
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

int names_find(const struct names *names, const char *name, uint32_t *ret_number)
{
	if (!names->slot_count)
		return -ENOENT;
	uint32_t slot = find_slot(names, name);
	if (!names->slots[slot])
		return -ENOENT;
	*ret_number = names->slots[slot] - 1;
	return 0;
}

static int order_compare(const void *a, const void *b, void *context)
{
	const struct names *names = context;

	return strcmp(names->names[*(const uint32_t *)a], names->names[*(const uint32_t *)b]);
}

void names_sort(const struct names *names, uint32_t *order)
{
	for (uint32_t i = 0; i < names->count; i++)
		order[i] = i;
	qsort_r(order, names->count, sizeof(*order), order_compare, (void *)(uintptr_t)names);
}
