#include "tools/packimg/image/avif_grid.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	IDS = 1 << 16, /* larger ones have no grid of more tiles than these, and are left alone */
	FLAGS = 3,
};

/* Bytes that are taken from the first on; what is not there is 0. */
struct bytes {
	uint8_t *at, *end;
};

static uint64_t avif_take(struct bytes *bytes, uint32_t count)
{
	uint64_t value = 0;

	for (; count > 0 && bytes->at < bytes->end; count--)
		value = value << 8 | *bytes->at++;
	return count ? 0 : value;
}

static void avif_skip(struct bytes *bytes, uint64_t count)
{
	uint64_t left = (uint64_t)(bytes->end - bytes->at);

	bytes->at += count < left ? count : left;
}

/* A box (ISO/IEC 14496-12, 4.2): its type, and what is in it. False at the end. */
static bool avif_take_box(struct bytes *bytes, uint32_t *ret_type, struct bytes *ret_content)
{
	struct bytes content = *bytes;
	uint64_t left = (uint64_t)(bytes->end - bytes->at), size = avif_take(&content, 4);

	*ret_type = (uint32_t)avif_take(&content, 4);
	if (size == 1)
		size = avif_take(&content, 8);
	else if (size == 0)
		size = left;
	if (size > left || size < (uint64_t)(content.at - bytes->at) || left < 8)
		return false;
	content.end = bytes->at + size;
	bytes->at += size;
	*ret_content = content;
	return true;
}

#define TYPE(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* The first box of a type; empty: there is none. */
static struct bytes find_box(struct bytes bytes, uint32_t wanted)
{
	struct bytes content;
	uint32_t type;

	while (avif_take_box(&bytes, &type, &content))
		if (type == wanted)
			return content;
	return (struct bytes){bytes.at, bytes.at};
}

/* Entries of a list, each with the number of the item that it belongs to. */
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

	uint64_t version = avif_take(&iinf, 1);
	avif_skip(&iinf, FLAGS + (version ? 4 : 2));
	for (begin = iinf.at; !r && avif_take_box(&iinf, &type, &info); begin = iinf.at) {
		version = avif_take(&info, 1);
		avif_skip(&info, FLAGS);
		r = add_entry(list, (uint32_t)avif_take(&info, version >= 3 ? 4 : 2), begin,
			      iinf.at);
	}
	return r;
}

static int list_locations(struct bytes iloc, struct entries *list)
{
	uint64_t version = avif_take(&iloc, 1);
	int r = 0;

	avif_skip(&iloc, FLAGS);
	uint64_t sizes = avif_take(&iloc, 2);
	uint64_t extent = (sizes >> 12) + (sizes >> 8 & 15) + (version ? sizes & 15 : 0);
	for (uint64_t left = avif_take(&iloc, version < 2 ? 2 : 4);
	     !r && left > 0 && iloc.at < iloc.end; left--) {
		uint8_t *begin = iloc.at;
		uint32_t id = (uint32_t)avif_take(&iloc, version < 2 ? 2 : 4);

		avif_skip(&iloc, (version ? 2 : 0) + 2 + (sizes >> 4 & 15));
		avif_skip(&iloc, avif_take(&iloc, 2) * extent);
		r = add_entry(list, id, begin, iloc.at);
	}
	return r;
}

/* Which tile of the grid an item is, from 1 on; 0: none. */
struct tiles {
	uint32_t count;
	uint32_t numbers[IDS];
};

/* The tiles of the file's image, if it has any. -ENOTSUP: one is several. */
static int list_tiles(struct bytes meta, struct tiles *tiles)
{
	struct bytes pitm = find_box(meta, TYPE('p', 'i', 't', 'm')),
		     iref = find_box(meta, TYPE('i', 'r', 'e', 'f')), dimg;
	uint64_t version = avif_take(&pitm, 1);
	uint32_t type;

	avif_skip(&pitm, FLAGS);
	uint64_t image = avif_take(&pitm, version ? 4 : 2);
	uint32_t id_size = avif_take(&iref, 1) ? 4 : 2;
	avif_skip(&iref, FLAGS);
	while (avif_take_box(&iref, &type, &dimg)) {
		if (type != TYPE('d', 'i', 'm', 'g') || avif_take(&dimg, id_size) != image)
			continue;
		for (uint64_t left = avif_take(&dimg, 2); left > 0; left--) {
			uint64_t id = avif_take(&dimg, id_size);

			if (id < IDS && tiles->numbers[id])
				return -ENOTSUP;
			tiles->count++;
			if (id < IDS)
				tiles->numbers[id] = tiles->count;
		}
		return 0;
	}
	return 0;
}

static uint32_t number_of(const struct tiles *tiles, uint32_t id)
{
	return id < IDS ? tiles->numbers[id] : 0;
}

/* The entries of all tiles by number. False: one has none, or several. */
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

/* Puts the entries of tiles into their order, at the places where entries of tiles stand. */
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

/* Both lists of items are sorted: the library takes their order from the one that it sees first. */
static int sort_meta(struct bytes meta, const struct tiles *tiles)
{
	struct entries infos = {0}, locations = {0};

	int r = list_infos(find_box(meta, TYPE('i', 'i', 'n', 'f')), &infos);
	if (!r)
		r = list_locations(find_box(meta, TYPE('i', 'l', 'o', 'c')), &locations);
	if (!r)
		r = sort_entries(&infos, tiles);
	if (!r)
		r = sort_entries(&locations, tiles);
	free(infos.entries);
	free(locations.entries);
	return r;
}

static int sort_tiles(struct bytes meta)
{
	struct tiles *tiles = calloc(1, sizeof(*tiles));

	if (!tiles)
		return -ENOMEM;
	avif_skip(&meta, 1 + FLAGS);
	int r = list_tiles(meta, tiles);
	if (!r && tiles->count)
		r = sort_meta(meta, tiles);
	free(tiles);
	return r;
}

int avif_grid_sort(const uint8_t *data, size_t size, struct buffer *file)
{
	/* what is in the box is read and sorted in a copy, which nobody changes meanwhile */
	struct bytes all = {(uint8_t *)(uintptr_t)data, (uint8_t *)(uintptr_t)data + size};
	struct bytes meta = find_box(all, TYPE('m', 'e', 't', 'a'));
	size_t offset = (size_t)(meta.at - data), length = (size_t)(meta.end - meta.at);
	struct buffer copy = {0};

	if (!length)
		return 0;
	int r = buffer_append(&copy, meta.at, length);
	if (!r)
		r = sort_tiles((struct bytes){copy.data, copy.data + length});
	if (!r && memcmp(copy.data, data + offset, length) != 0) {
		r = buffer_append(file, data, size);
		if (!r)
			memcpy(file->data + offset, copy.data, length);
	}
	buffer_deinit(&copy);
	return r;
}
