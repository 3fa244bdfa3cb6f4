#include "tools/packimg/image/avif_grid.h"

#include "tools/packimg/image/avif_boxes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	IDS = 1 << 16, /* larger ids are ignored; no grid has as many tiles */
	FLAGS = 3,
};

/* Entries of a list box, each with the id of the item that it describes. */
struct entries {
	struct entry {
		uint32_t id;
		uint8_t *begin, *end;
	} * entries;
	size_t count, capacity;
};

static int add_entry(struct entries *list, uint32_t id, uint8_t *begin, uint8_t *end)
{
	int r = array_reserve(&list->entries, list->count, &list->capacity, sizeof(*list->entries));

	if (!r)
		list->entries[list->count++] = (struct entry){id, begin, end};
	return r;
}

static int list_infos(struct bytes iinf, struct entries *list)
{
	uint8_t *begin;
	struct bytes info;
	uint32_t type;
	int r = 0;

	uint64_t version = bytes_take(&iinf, 1);
	bytes_skip(&iinf, FLAGS + (version ? 4 : 2));
	for (begin = iinf.at; !r && bytes_take_box(&iinf, &type, &info); begin = iinf.at) {
		version = bytes_take(&info, 1);
		bytes_skip(&info, FLAGS);
		r = add_entry(list, (uint32_t)bytes_take(&info, version >= 3 ? 4 : 2), begin,
			      iinf.at);
	}
	return r;
}

static int list_locations(struct bytes iloc, struct entries *list)
{
	uint64_t version = bytes_take(&iloc, 1);
	int r = 0;

	bytes_skip(&iloc, FLAGS);
	uint64_t sizes = bytes_take(&iloc, 2);
	uint64_t extent = (sizes >> 12) + (sizes >> 8 & 15) + (version ? sizes & 15 : 0);
	for (uint64_t left = bytes_take(&iloc, version < 2 ? 2 : 4);
	     !r && left > 0 && iloc.at < iloc.end; left--) {
		uint8_t *begin = iloc.at;
		uint32_t id = (uint32_t)bytes_take(&iloc, version < 2 ? 2 : 4);

		bytes_skip(&iloc, (version ? 2 : 0) + 2 + (sizes >> 4 & 15));
		bytes_skip(&iloc, bytes_take(&iloc, 2) * extent);
		r = add_entry(list, id, begin, iloc.at);
	}
	return r;
}

/* Number of each item's tile, from 1 on; 0 if the item is not a tile. */
struct tiles {
	uint32_t count;
	uint32_t numbers[IDS];
};

static void number_tiles(struct bytes dimg, uint32_t id_size, struct tiles *tiles,
			 struct avif_grid *grid)
{
	for (uint64_t left = bytes_take(&dimg, 2); left > 0; left--) {
		uint64_t id = bytes_take(&dimg, id_size);

		grid->twice |= id < IDS && tiles->numbers[id];
		tiles->count++;
		if (id < IDS)
			tiles->numbers[id] = tiles->count;
	}
}

static bool has_tile(struct bytes dimg, uint32_t id_size, const struct tiles *tiles)
{
	for (uint64_t left = bytes_take(&dimg, 2); left > 0; left--) {
		uint64_t id = bytes_take(&dimg, id_size);

		if (id < IDS && tiles->numbers[id])
			return true;
	}
	return false;
}

/*
 * Lists the tiles of the primary image, if it has any, and detects tiles that other images share.
 */
static void list_tiles(struct bytes meta, struct tiles *tiles, struct avif_grid *grid)
{
	struct bytes pitm = bytes_find_box(meta, BOX_TYPE('p', 'i', 't', 'm')),
		     iref = bytes_find_box(meta, BOX_TYPE('i', 'r', 'e', 'f')), dimg;
	uint64_t version = bytes_take(&pitm, 1);
	uint32_t type;

	bytes_skip(&pitm, FLAGS);
	uint64_t image = bytes_take(&pitm, version ? 4 : 2);
	uint32_t id_size = bytes_take(&iref, 1) ? 4 : 2;
	bytes_skip(&iref, FLAGS);
	for (struct bytes left = iref; !tiles->count && bytes_take_box(&left, &type, &dimg);)
		if (type == BOX_TYPE('d', 'i', 'm', 'g') && bytes_take(&dimg, id_size) == image)
			number_tiles(dimg, id_size, tiles, grid);
	while (bytes_take_box(&iref, &type, &dimg))
		if (type == BOX_TYPE('d', 'i', 'm', 'g') && bytes_take(&dimg, id_size) != image)
			grid->shared |= has_tile(dimg, id_size, tiles);
}

static uint32_t number_of(const struct tiles *tiles, uint32_t id)
{
	return id < IDS ? tiles->numbers[id] : 0;
}

/*
 * Sorts the entries of all tiles by tile number. Returns false if a tile has no entry or several.
 */
static bool number_entries(const struct entries *list, const struct tiles *tiles,
			   const struct entry **ret_sorted)
{
	uint32_t found = 0;

	for (size_t i = 0; i < list->count; i++) {
		uint32_t number = number_of(tiles, list->entries[i].id);

		if (number && ret_sorted[number])
			return false;
		if (number) {
			ret_sorted[number] = &list->entries[i];
			found++;
		}
	}
	return found == tiles->count;
}

/* Redistributes the tiles' entries, in sorted order, among the positions of these entries. */
static int sort_entries(const struct entries *list, const struct tiles *tiles)
{
	const struct entry **sorted = calloc((size_t)tiles->count + 1, sizeof(struct entry *));
	struct buffer bytes = {0};
	uint32_t number = 0;
	int r = 0;

	if (!sorted)
		return -ENOMEM;
	if (number_entries(list, tiles, sorted)) {
		for (size_t i = 0; !r && i < list->count; i++) {
			const struct entry *entry = &list->entries[i];

			if (number_of(tiles, entry->id))
				entry = sorted[++number];
			r = buffer_append(&bytes, entry->begin,
					  (size_t)(entry->end - entry->begin));
		}
		if (!r)
			memcpy(list->entries[0].begin, bytes.data, bytes.size);
	}
	buffer_deinit(&bytes);
	free(sorted);
	return r;
}

/* Sorts both lists of items, because the library uses the order of the list that comes first. */
static int sort_meta(struct bytes meta, const struct tiles *tiles)
{
	struct entries infos = {0}, locations = {0};

	int r = list_infos(bytes_find_box(meta, BOX_TYPE('i', 'i', 'n', 'f')), &infos);
	if (!r)
		r = list_locations(bytes_find_box(meta, BOX_TYPE('i', 'l', 'o', 'c')), &locations);
	if (!r)
		r = sort_entries(&infos, tiles);
	if (!r)
		r = sort_entries(&locations, tiles);
	free(infos.entries);
	free(locations.entries);
	return r;
}

static int sort_tiles(struct bytes meta, struct avif_grid *grid)
{
	struct tiles *tiles = calloc(1, sizeof(*tiles));
	int r = 0;

	if (!tiles)
		return -ENOMEM;
	bytes_skip(&meta, 1 + FLAGS);
	list_tiles(meta, tiles, grid);
	if (tiles->count && !grid->twice)
		r = sort_meta(meta, tiles);
	free(tiles);
	return r;
}

int avif_grid_sort(const uint8_t *data, size_t size, struct buffer *file,
		   struct avif_grid *ret_grid)
{
	/* reads and sorts the box in a copy, which cannot change meanwhile */
	struct bytes meta = bytes_find_box(bytes_of(data, size), BOX_TYPE('m', 'e', 't', 'a'));
	size_t offset = (size_t)(meta.at - data), length = (size_t)(meta.end - meta.at);
	struct avif_grid grid = {0};
	struct buffer copy = {0};
	int r = 0;

	if (length)
		r = buffer_append(&copy, meta.at, length);
	if (!r && length)
		r = sort_tiles((struct bytes){copy.data, copy.data + length}, &grid);
	if (!r && length && memcmp(copy.data, data + offset, length) != 0) {
		r = buffer_append(file, data, size);
		if (!r)
			memcpy(file->data + offset, copy.data, length);
	}
	buffer_deinit(&copy);
	if (!r)
		*ret_grid = grid;
	return r;
}
