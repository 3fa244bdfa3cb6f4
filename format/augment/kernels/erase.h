/*
 * Erases a rectangle, in a picture of bytes or in a finished sample. In a finished sample the value
 * is in units of that sample: zero is the mean if it was normalised. Noise depends only on a key,
 * so daemon and client make the same noise. Plain values; any thread.
 */
#pragma once

#include "format/augment/pipeline.h"

#include <stdbool.h>

struct erase {
	uint32_t x, y, width, height; /* within the picture */
	bool noise;   /* fill with noise: uniform for bytes, standard normal for finished floats */
	uint64_t key; /* key of the noise */
	float value[3]; /* fill without noise: red, green, blue */
};

/* Erases in rows of row_width pixels of four bytes (effects.h). Values are 0 .. 255. */
void erase_pixels(const struct erase *erase, uint32_t *pixels, uint32_t row_width);
/* Erases in a finished sample of the given shape. */
void erase_sample(const struct erase *erase, const struct pipeline_shape *shape, void *output);
