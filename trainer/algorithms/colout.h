/*
 * ColOut: in training, each batch drops the same random rows and columns of all its images, which
 * shrinks the images and so the computation (MosaicML Composer, ColOut; same kept count, same share
 * of rows and columns). The choice depends only on seed and step. Pure functions.
 */
#pragma once

#include <stdint.h>

/* Rows or columns kept out of `size`; at least one. */
uint32_t colout_kept(double share, uint32_t size);
/* Draws the kept rows and columns: colout_kept() ascending indices each. */
void colout_draw(double share, uint64_t seed, uint64_t step, uint32_t height, uint32_t width,
		 uint32_t *ret_rows, uint32_t *ret_columns);
