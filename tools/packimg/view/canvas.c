#include "tools/packimg/view/canvas.h"

#include "tools/packimg/view/font.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

struct canvas canvas_part(const struct canvas *canvas, uint32_t x, uint32_t y, uint32_t width,
			  uint32_t height)
{
	return (struct canvas){canvas->rgb + y * canvas->stride + (size_t)x * 3, width, height,
			       canvas->stride};
}

void canvas_dot(struct canvas *canvas, int64_t x, int64_t y, struct colour colour)
{
	if (x < 0 || y < 0 || x >= canvas->width || y >= canvas->height)
		return;
	uint8_t *at = canvas->rgb + (size_t)y * canvas->stride + (size_t)x * 3;
	at[0] = colour.red;
	at[1] = colour.green;
	at[2] = colour.blue;
}

void canvas_fill(struct canvas *canvas, int64_t x, int64_t y, uint32_t width, uint32_t height,
		 struct colour colour)
{
	for (uint32_t j = 0; j < height; j++)
		for (uint32_t i = 0; i < width; i++)
			canvas_dot(canvas, x + i, y + j, colour);
}

static uint8_t mix(uint8_t below, uint8_t above, uint8_t alpha)
{
	return (uint8_t)((below * (255 - alpha) + above * alpha + 127) / 255);
}

void canvas_blend(struct canvas *canvas, uint32_t x, uint32_t y, struct colour colour,
		  uint8_t alpha)
{
	uint8_t *at = canvas->rgb + y * canvas->stride + (size_t)x * 3;

	at[0] = mix(at[0], colour.red, alpha);
	at[1] = mix(at[1], colour.green, alpha);
	at[2] = mix(at[2], colour.blue, alpha);
}

/*
 * Clips a line to one edge of the picture. first and last are fractions of the line's length; keeps
 * the part with delta * t <= room (Liang and Barsky, 1984).
 */
static bool clip_line(double delta, double room, double *first, double *last)
{
	if (delta == 0)
		return room >= 0;
	double t = room / delta;
	if (delta < 0 && t > *first)
		*first = t;
	if (delta > 0 && t < *last)
		*last = t;
	return *first <= *last;
}

void canvas_line(struct canvas *canvas, const double from[2], const double to[2],
		 struct colour colour)
{
	const double size[2] = {canvas->width, canvas->height};
	double delta[2], first = 0, last = 1;

	for (unsigned i = 0; i < 2; i++) {
		delta[i] = to[i] - from[i];
		if (!isfinite(from[i]) || !isfinite(to[i]) || !isfinite(delta[i]))
			return;
		/* The pen may start outside the picture. */
		if (!clip_line(-delta[i], from[i] + CANVAS_PEN, &first, &last) ||
		    !clip_line(delta[i], size[i] - from[i], &first, &last))
			return;
	}
	double length = fmax(fabs(delta[0]), fabs(delta[1])) * (last - first);
	unsigned steps = (unsigned)ceil(length);
	for (unsigned i = 0; i <= steps; i++) {
		double t = steps ? first + (last - first) * i / steps : first;
		double x = floor(from[0] + delta[0] * t), y = floor(from[1] + delta[1] * t);

		/* Rounding takes points of a line that begins far away out of the picture. */
		if (fabs(x) < INT32_MAX && fabs(y) < INT32_MAX)
			canvas_fill(canvas, (int64_t)x, (int64_t)y, CANVAS_PEN, CANVAS_PEN, colour);
	}
}

void canvas_circle(struct canvas *canvas, const double centre[2], double radius,
		   struct colour colour)
{
	/* Also false for NaN. */
	if (!(fabs(centre[0]) < UINT32_MAX) || !(fabs(centre[1]) < UINT32_MAX))
		return;
	int64_t x = (int64_t)floor(centre[0]), y = (int64_t)floor(centre[1]);
	int64_t reach = (int64_t)ceil(radius);
	for (int64_t j = -reach; j <= reach; j++)
		for (int64_t i = -reach; i <= reach; i++)
			if ((double)(i * i + j * j) <= radius * radius)
				canvas_dot(canvas, x + i, y + j, colour);
}

static void put_glyph(struct canvas *canvas, int64_t x, int64_t y, uint32_t character,
		      struct colour colour)
{
	for (unsigned j = 0; j < FONT_HEIGHT; j++)
		for (unsigned i = 0; i < FONT_WIDTH; i++)
			if (font_pixel(character, i, j))
				canvas_dot(canvas, x + i, y + j, colour);
}

/* Each UTF-8 character has one byte that is not a continuation byte. */
static bool begins_character(char byte)
{
	return ((unsigned char)byte & 0xc0) != 0x80;
}

static size_t characters_in(const char *text)
{
	size_t count = 0;

	for (; *text; text++)
		count += begins_character(*text);
	return count;
}

void canvas_text(struct canvas *canvas, int64_t x, int64_t y, uint32_t width_max, const char *text,
		 enum canvas_cut cut, struct colour colour)
{
	enum { DOTS = 3 };
	size_t count = characters_in(text), room = width_max / FONT_ADVANCE;
	size_t dots = count <= room ? 0 : room < DOTS ? room : DOTS;
	size_t shown = count <= room ? count : room - dots;
	size_t first = cut == CANVAS_CUT_BEGINNING ? count - shown : 0, number = 0;

	if (cut == CANVAS_CUT_BEGINNING)
		for (size_t i = 0; i < dots; i++, x += FONT_ADVANCE)
			put_glyph(canvas, x, y, '.', colour);
	for (; *text; text++) {
		if (!begins_character(*text))
			continue;
		if (number >= first && number < first + shown) {
			put_glyph(canvas, x, y, (unsigned char)*text, colour);
			x += FONT_ADVANCE;
		}
		number++;
	}
	if (cut == CANVAS_CUT_END)
		for (size_t i = 0; i < dots; i++, x += FONT_ADVANCE)
			put_glyph(canvas, x, y, '.', colour);
}
