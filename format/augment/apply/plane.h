/*
 * Some channels of a raster as values of 32 bits: the bits of its elements, where pixels are only
 * copied, or f32, where they are computed. Pure functions; any thread.
 */
#pragma once

#include "format/augment/resize/resize_kernels.h"

struct plane_form {
	enum packimg_element element;
	bool computed;         /* values are f32, of i32 with 24 bits */
	uint32_t first, count; /* channels in the plane; one of copied pixels */
	uint32_t channels;     /* of the raster */
	const struct resize_kernels *kernels;
};

/* Copies the channels of a region into a plane, rows without padding. */
void plane_load(const struct packimg_raster *raster, const struct plane_form *form,
		uint32_t *plane);
/*
 * Writes the channels to `pixels` pixels of a finished raster. Converts computed values of integers
 * by rounding to nearest, halves to even, and clamps them.
 */
void plane_store(const uint32_t *plane, size_t pixels, const struct plane_form *form,
		 uint8_t *output);
/* Returns the value of one element. */
uint32_t plane_value(const struct plane_form *form, const void *element);
