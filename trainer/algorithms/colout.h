/*
 * ColOut (as in MosaicML Composer): during training, drops random rows and columns, the same ones
 * for all images of a batch. Smaller images take less computation. Rows and columns are dropped at
 * the same rate. The choice depends only on seed and step. Pure functions.
 */
#pragma once

#include <stdint.h>

/* Number of rows or columns kept out of `size`, at least one. `share` is the fraction to drop. */
uint32_t colout_kept(double share, uint32_t size);
/* Draws the indices of the kept rows and columns, ascending; colout_kept() of each. */
void colout_draw(double share, uint64_t seed, uint64_t step, uint32_t height, uint32_t width,
		 uint32_t *ret_rows, uint32_t *ret_columns);
