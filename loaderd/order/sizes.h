/*
 * Sizes of a dataset's images: from the file's list of them, or from each sample's record. The list
 * is not compared with the records. One thread at a time; call it inside sigbus_guard_enter().
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>
#include <stdint.h>

enum { SIZES_CHUNK = 1024 };

/* Reads ascending samples fastest: it keeps a chunk of the list. */
struct size_reader {
	const struct packimg *dataset;
	bool listed;
	uint64_t first, count; /* of the chunk; at first 0 */
	uint16_t chunk[SIZES_CHUNK][2];
};

/* Pixels, upright. */
struct image_size {
	uint32_t width, height;
};

void sizes_init(struct size_reader *reader, const struct packimg *dataset);
/* Returns a size of 0 x 0 for a damaged record. */
struct image_size sizes_at(struct size_reader *reader, uint64_t index);
