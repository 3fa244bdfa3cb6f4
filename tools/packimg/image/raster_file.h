/*
 * Files of masks, depth and other images that are not 8-bit RGB: PNG for one or three channels of
 * u8 and u16, else NumPy's .npy, format 1.0 (numpy.lib.format). Lossless. Any thread.
 */
#pragma once

#include "format/packimg.h"
#include "tools/packimg/common/memory.h"

/* Returns ".png" or ".npy". */
const char *raster_file_ending(enum packimg_element element, uint32_t channels);
/* Replaces the buffer by the file. */
int raster_file_write(const struct packimg_raster *raster, struct buffer *file,
		      struct packimg_error *error);
/* Replaces the buffer by a PNG: one, three or, with alpha, four channels of u8 or u16. */
int raster_file_write_png(const struct packimg_raster *raster, struct buffer *file,
			  struct packimg_error *error);
