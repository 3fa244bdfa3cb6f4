/*
 * The order of a grid's tiles. They are laid out as the grid refers to them (ISO/IEC 23008-12,
 * 6.6.2.3), but libavif before 1.1.1 lays them out as the file lists them.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stdbool.h>

/* What libavif does not read, whatever their order. */
struct avif_grid {
	bool twice;  /* the grid has a tile in several places */
	bool shared; /* another image has one of its tiles, too */
};

/*
 * Where the file's image is a grid that lists its tiles in another order: `file` becomes a copy
 * that lists them in the right one. Else it stays empty. 0 or -ENOMEM.
 */
int avif_grid_sort(const uint8_t *data, size_t size, struct buffer *file,
		   struct avif_grid *ret_grid);
