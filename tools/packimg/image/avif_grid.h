/*
 * Corrects the tile order of an AVIF grid. Tiles must be placed in the order in which the grid
 * refers to them (ISO/IEC 23008-12, 6.6.2.3), but libavif before 1.1.1 places them in file order.
 * Pure functions, any thread.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stdbool.h>

/* Properties that keep libavif from reading a grid, whatever the order of its tiles. */
struct avif_grid {
	bool twice;  /* the grid uses a tile at several positions */
	bool shared; /* another image also uses one of the grid's tiles */
};

/*
 * If the image is a grid whose tiles are listed in another order, stores a copy of the file that
 * lists them in the right order in `file`; otherwise leaves `file` empty. Returns 0 or -ENOMEM.
 */
int avif_grid_sort(const uint8_t *data, size_t size, struct buffer *file,
		   struct avif_grid *ret_grid);
