/*
 * ColOut: each batch leaves out rows and columns, the same of all its images, in training only;
 * what is kept moves together, and so there is less to compute (MosaicML Composer, ColOut; its
 * count of what is kept, and the same share of rows and columns). Which they are depends on seed
 * and step alone. Plain functions.
 */
#pragma once

#include <stdint.h>

/* How many of so many rows or columns are kept; at least one. */
uint32_t colout_kept(double share, uint32_t size);
/* [colout_kept()] each, rising. */
void colout_draw(double share, uint64_t seed, uint64_t step, uint32_t height, uint32_t width,
		 uint32_t *ret_rows, uint32_t *ret_columns);
