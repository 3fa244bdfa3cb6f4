/*
 * Erases a rectangle, either in a picture of bytes or in a finished sample. In a finished sample
 * the value is in units of the result (zero is the mean if it was normalised). Noise is drawn from
 * a key, so it does not depend on where it is made. Plain values; any thread.
 */
#pragma once

#include "format/augment/pipeline.h"

#include <stdbool.h>

struct erase {
	uint32_t x, y, width, height; /* within the picture */
	bool noise;     /* for bytes uniform; for finished floats normal with deviation 1 */
	uint64_t key;   /* key of the noise */
	float value[3]; /* without noise: red, green, blue */
};

/* `pixels`: rows of row_width pixels of four bytes (effects.h). Values are 0 .. 255. */
void erase_pixels(const struct erase *erase, uint32_t *pixels, uint32_t row_width);
/* Erases in a finished sample of that shape. */
void erase_sample(const struct erase *erase, const struct pipeline_shape *shape, void *output);
