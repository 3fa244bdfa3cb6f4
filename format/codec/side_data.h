/*
 * Side data of a sample: items that speed up decoding or describe the sample (SPEC.md, "Side
 * data"). Pure functions. The bytes may change during a call: each item header is copied once, so
 * no access is outside the buffer. The caller must copy the content of an item before using it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True if the items fill the bytes exactly. Size 0 is valid. */
bool side_data_is_valid(const uint8_t *side, size_t size);
/*
 * Finds the content of the first item of a kind; -ENODATA if no item of that kind precedes the end
 * or a malformed item.
 */
int side_data_find(const uint8_t *side, size_t size, uint32_t kind, const uint8_t **ret_content,
		   size_t *ret_size);
/*
 * Copies all items except those of the given kind to output, then appends item, as written by
 * side_data_item_write(). With item_size 0, appends nothing. output has room for size + item_size
 * bytes. ret_size is the number of bytes written. -EBADMSG if the items are malformed.
 */
int side_data_replace(const uint8_t *side, size_t size, uint32_t kind, const uint8_t *item,
		      size_t item_size, uint8_t *output, size_t *ret_size);
/* Returns the size of an item with content_size bytes of content. */
size_t side_data_item_size(size_t content_size);
/* Writes one item of side_data_item_size() bytes. */
void side_data_item_write(uint8_t *output, uint32_t kind, const uint8_t *content,
			  uint32_t content_size);
