/* Turns stored pixels upright. */
#include "tools/packimg/image/image.h"

void image_orient(const uint8_t *source, uint32_t width, uint32_t height, uint32_t channels,
		  uint8_t orientation, uint8_t *target)
{
	/*
	 * Where the stored pixel (x, y) goes: orientation 2 and 4 mirror, 3 turns by half, 5..8
	 * swap the axes.
	 */
	bool swap = orientation >= 5;
	bool flip_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
	bool flip_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
	size_t upright_width = swap ? height : width, upright_height = swap ? width : height;

	for (uint32_t y = 0; y < height; y++) {
		for (uint32_t x = 0; x < width; x++) {
			size_t column = swap ? y : x, row = swap ? x : y;

			if (flip_x)
				column = upright_width - 1 - column;
			if (flip_y)
				row = upright_height - 1 - row;
			uint8_t *to = target + (row * upright_width + column) * channels;
			for (uint32_t c = 0; c < channels; c++)
				to[c] = *source++;
		}
	}
}
