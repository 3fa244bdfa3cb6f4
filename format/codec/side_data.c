#include "format/codec/side_data.h"

#include "format/base/copy_once.h"
#include "format/layout.h"

#include <errno.h>
#include <string.h>

/* Advances past the first item; false if it is incomplete or malformed. */
static bool next_item(const uint8_t **side, size_t *size, struct pimg_side_item *ret_item,
		      const uint8_t **ret_content)
{
	static const uint8_t zeros[8];
	struct pimg_side_item item;

	if (*size < sizeof(item))
		return false;
	copy_once(&item, *side, sizeof(item));
	const uint8_t *content = *side + sizeof(item);
	size_t room = *size - sizeof(item), padding = -(size_t)item.size & 7;
	if (item.kind == 0 || item.size > room || padding > room - item.size ||
	    memcmp(content + item.size, zeros, padding) != 0)
		return false;
	*ret_item = item;
	*ret_content = content;
	*side = content + item.size + padding;
	*size = room - item.size - padding;
	return true;
}

bool side_data_is_valid(const uint8_t *side, size_t size)
{
	struct pimg_side_item item;
	const uint8_t *content;

	while (size > 0)
		if (!next_item(&side, &size, &item, &content))
			return false;
	return true;
}

int side_data_find(const uint8_t *side, size_t size, uint32_t kind, const uint8_t **ret_content,
		   size_t *ret_size)
{
	struct pimg_side_item item;
	const uint8_t *content;

	while (next_item(&side, &size, &item, &content)) {
		if (item.kind != kind)
			continue;
		*ret_content = content;
		*ret_size = item.size;
		return 0;
	}
	return -ENODATA;
}

int side_data_replace(const uint8_t *side, size_t size, uint32_t kind, const uint8_t *item,
		      size_t item_size, uint8_t *output, size_t *ret_size)
{
	struct pimg_side_item head;
	const uint8_t *content;
	size_t used = 0;

	while (size > 0) {
		const uint8_t *start = side;

		if (!next_item(&side, &size, &head, &content))
			return -EBADMSG;
		if (head.kind == kind)
			continue;
		memcpy(output + used, start, (size_t)(side - start));
		used += (size_t)(side - start);
	}
	if (item_size > 0)
		memcpy(output + used, item, item_size);
	*ret_size = used + item_size;
	return 0;
}

size_t side_data_item_size(size_t content_size)
{
	return sizeof(struct pimg_side_item) + ((content_size + 7) & ~(size_t)7);
}

void side_data_item_write(uint8_t *output, uint32_t kind, const uint8_t *content,
			  uint32_t content_size)
{
	struct pimg_side_item item = {.kind = kind, .size = content_size};

	memset(output, 0, side_data_item_size(content_size));
	memcpy(output, &item, sizeof(item));
	memcpy(output + sizeof(item), content, content_size);
}
