/*
 * Pixels that are numbers of any element, such as depths, as a picture: grey, or RGB of the first
 * three channels. They are read in place, from a decoder, a mapped file or a finished sample; they
 * may change meanwhile and may be anything, also not finite. Pure functions, any thread.
 */
#pragma once

#include "format/base/schema.h"

#include <stddef.h>
#include <stdint.h>

struct grid {
	const uint8_t *data;
	ptrdiff_t step_x, step_y, step_channel; /* bytes */
	uint32_t width, height, channels;
	enum schema_element element; /* u8, u16, i16, i32, f16, bf16 or f32 */
};

/* The numbers shown as black and white. */
struct levels {
	double black, white;
	uint64_t not_finite; /* pixels with a channel that is not finite, which are drawn red */
};

/* Returns the number in channel 0 of a pixel of integers. */
int64_t grid_integer(const struct grid *grid, uint32_t x, uint32_t y);
/*
 * Returns the smallest and the largest finite number of the channels shown. They are equal if all
 * numbers are, and 0 if none is finite.
 */
struct levels grid_levels(const struct grid *grid);
/*
 * Draws the grid scaled to height x width x 3 bytes by the nearest pixel. Numbers beyond the levels
 * are black or white; if the levels are equal, all are grey.
 */
void grid_draw(const struct grid *grid, const struct levels *levels, uint32_t width,
	       uint32_t height, uint8_t *rgb);
/*
 * Write "black is 0, white is 3500", with the number of pixels that are not finite and the channels
 * shown if these are not all, or only "0 to 3500". Truncate like snprintf().
 */
void grid_describe(const struct grid *grid, const struct levels *levels, char *text, size_t size);
void grid_describe_range(const struct grid *grid, const struct levels *levels, char *text,
			 size_t size);
