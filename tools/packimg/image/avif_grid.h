/*
 * Fixes the tile order of an AVIF grid. Tiles must be placed in the order in which the grid refers
 * to them (ISO/IEC 23008-12, 6.6.2.3), but libavif before 1.1.1 places them in file order. Pure
 * functions, any thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stdbool.h>

/* Grids that libavif cannot read in any tile order. */
struct avif_grid {
	bool twice;  /* the grid uses a tile in several places */
	bool shared; /* another image uses one of its tiles as well */
};

/*
 * If the image is a grid whose tiles are listed in another order, makes `file` a copy that lists
 * them in the right order; otherwise leaves it empty. Returns 0 or -ENOMEM.
 */
int avif_grid_sort(const uint8_t *data, size_t size, struct buffer *file,
		   struct avif_grid *ret_grid);
