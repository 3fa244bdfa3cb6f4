/*
 * Side data of a sample: items that speed its decoding up or say more about it (SPEC.md, "Side
 * data"). Pure functions. The bytes may change meanwhile: each head is copied once, so that nothing
 * outside of them is touched; what the items hold is for the caller to copy.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Do the items fill the bytes exactly? Nothing (size 0) is valid. */
bool side_data_is_valid(const uint8_t *side, size_t size);
/*
 * Content of the first item of a kind; -ENODATA when there is none before the items end or break
 * off.
 */
int side_data_find(const uint8_t *side, size_t size, uint32_t kind, const uint8_t **ret_content,
		   size_t *ret_size);
/*
 * Copies all items that are not of the kind, then the item that is given as side_data_item_write()
 * made it (item_size 0: none), to output, which has room for size + item_size bytes. Returns what
 * that came to, or -EBADMSG when the items break off.
 */
int side_data_replace(const uint8_t *side, size_t size, uint32_t kind, const uint8_t *item,
		      size_t item_size, uint8_t *output, size_t *ret_size);
/* Bytes of an item with that much content. */
size_t side_data_item_size(size_t content_size);
/* Writes one item of side_data_item_size() bytes. */
void side_data_item_write(uint8_t *output, uint32_t kind, const uint8_t *content,
			  uint32_t content_size);
