#include "side.h"

#include "layout.h"

#include <string.h>

bool side_is_valid(const uint8_t *side, size_t size)
{
	static const uint8_t zeros[8];
	struct pimg_side_item item;

	while (size > 0) {
		if (size < sizeof(item))
			return false;
		memcpy(&item, side, sizeof(item));
		side += sizeof(item);
		size -= sizeof(item);
		size_t padding = -(size_t)item.size & 7;
		if (item.kind == 0 || item.size > size || padding > size - item.size ||
		    memcmp(side + item.size, zeros, padding) != 0)
			return false;
		side += item.size + padding;
		size -= item.size + padding;
	}
	return true;
}
