/*
 * A picture in memory to draw on: 8-bit RGB. Clips to the picture; coordinates may be any numbers.
 * Owned by its creator, used by one thread.
 */
#pragma once

#include "tools/packimg/view/colours.h"

#include <stddef.h>
#include <stdint.h>

struct canvas {
	uint8_t *rgb;
	uint32_t width, height; /* pixels */
	size_t stride;          /* bytes between row starts */
};

enum { CANVAS_PEN = 2 /* pixels, the width of lines */ };

/* Returns the canvas of a part of the picture, which must be inside it. */
struct canvas canvas_part(const struct canvas *canvas, uint32_t x, uint32_t y, uint32_t width,
			  uint32_t height);
/* Sets a pixel, unless it is outside the picture. */
void canvas_dot(struct canvas *canvas, int64_t x, int64_t y, struct colour colour);
void canvas_fill(struct canvas *canvas, int64_t x, int64_t y, uint32_t width, uint32_t height,
		 struct colour colour);
/* Blends the colour into a pixel of the picture; alpha 255 replaces it. */
void canvas_blend(struct canvas *canvas, uint32_t x, uint32_t y, struct colour colour,
		  uint8_t alpha);
/* Draws a line between the points, unless a coordinate is not finite. */
void canvas_line(struct canvas *canvas, const double from[2], const double to[2],
		 struct colour colour);
/* Draws a filled circle, unless a coordinate is not finite. */
void canvas_circle(struct canvas *canvas, const double centre[2], double radius,
		   struct colour colour);
/*
 * Draws a line of UTF-8 text in the font of font.h, with its top left corner at x, y. If it is
 * wider than width_max pixels, replaces its beginning or end with "...".
 */
enum canvas_cut { CANVAS_CUT_END, CANVAS_CUT_BEGINNING };
void canvas_text(struct canvas *canvas, int64_t x, int64_t y, uint32_t width_max, const char *text,
		 enum canvas_cut cut, struct colour colour);
