/*
 * One channel of a raster as values of 32 bits: the bits of its elements, where pixels are only
 * copied, or f32, where they are computed. Pure functions; any thread.
 */
#pragma once

#include "format/packimg.h"

struct plane_form {
	enum packimg_element element;
	bool computed; /* values are f32; u8, u16, i16 and i32 are converted, i32 to 24 bits */
};

/* Copies a channel into a plane, rows without padding. */
void plane_load(const struct packimg_raster *raster, uint32_t channel, bool computed,
		uint32_t *plane);
/*
 * Writes `count` values to a channel of pixels of pixel_size bytes. Converts computed values of
 * integers by rounding to nearest, halves to even, and clamps them.
 */
void plane_store(const uint32_t *plane, size_t count, const struct plane_form *form,
		 size_t pixel_size, uint8_t *output);
/* Returns the value of one element. */
uint32_t plane_value(const struct plane_form *form, const void *element);
