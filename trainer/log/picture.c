#include "trainer/log/picture.h"

#include "format/base/text/svg.h"

#include <math.h>

enum {
	PICTURE_WIDTH = 720,
	PICTURE_HEIGHT = 420,
	PICTURE_LEFT = 64, /* margins */
	PICTURE_TOP = 32,
	PICTURE_RIGHT = 24,
	PICTURE_BOTTOM = 48,
	PICTURE_ROW = 18, /* height of a legend row */
	PICTURE_LINES = 5,
};

const struct picture_pen picture_black = {"black", 1.5, 1};

static double picture_x(const struct picture *picture, double x)
{
	double share = picture->base > 0 ? log(x / picture->from) / log(picture->to / picture->from)
					 : (x - picture->from) / (picture->to - picture->from);
	return PICTURE_LEFT + (PICTURE_WIDTH - PICTURE_LEFT - PICTURE_RIGHT) * share;
}

static double picture_y(const struct picture *picture, double y)
{
	double inside = fmax(fmin(y, picture->y_max), picture->y_min);
	double share = (inside - picture->y_min) / (picture->y_max - picture->y_min);
	return PICTURE_HEIGHT - PICTURE_BOTTOM -
	       (PICTURE_HEIGHT - PICTURE_TOP - PICTURE_BOTTOM) * share;
}

/*
 * Returns the grid step: 1, 2 or 5 times a power of ten, so that `range` has about PICTURE_LINES
 * lines.
 */
static double picture_step(double range)
{
	double power = pow(10, floor(log10(range / PICTURE_LINES)));
	double share = range / PICTURE_LINES / power;
	return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

/* Prints the number of a grid line. */
static void put_number(const struct picture *picture, double x, double y, const char *anchor,
		       double number)
{
	char text[32];
	snprintf(text, sizeof(text), "%g", number);
	svg_text(picture->file, x, y, anchor, "", text);
}

static void picture_column(const struct picture *picture, double x)
{
	double at = picture_x(picture, x);
	svg_line(picture->file, at, PICTURE_TOP, at, PICTURE_HEIGHT - PICTURE_BOTTOM, "#ddd", "");
	put_number(picture, at, PICTURE_HEIGHT - PICTURE_BOTTOM + 18, "middle", x);
}

static void picture_grid(const struct picture *picture)
{
	double step = picture_step(picture->to - picture->from), base = picture->base;
	/* the tolerance of sqrt(base) includes the last line despite rounding */
	for (double x = picture->from; base > 0 && x < picture->to * sqrt(base); x *= base)
		picture_column(picture, x);
	for (double n = ceil(picture->from / step); base == 0 && n * step <= picture->to; n++)
		picture_column(picture, n * step + 0.0); /* + 0.0 turns -0 into 0 */
	step = picture_step(picture->y_max - picture->y_min);
	for (double n = ceil(picture->y_min / step); n * step <= picture->y_max; n++) {
		double y = n * step + 0.0, at = picture_y(picture, y);
		svg_line(picture->file, PICTURE_LEFT, at, PICTURE_WIDTH - PICTURE_RIGHT, at, "#ddd",
			 "");
		put_number(picture, PICTURE_LEFT - 6, at + 4, "end", y);
	}
}

double picture_open(FILE *file, unsigned panels, unsigned rows)
{
	unsigned top = rows ? PICTURE_ROW * (rows + 1) : 0;
	svg_begin(file, PICTURE_WIDTH, top + panels * PICTURE_HEIGHT);
	return top;
}

double picture_next_top(double top)
{
	return top + PICTURE_HEIGHT;
}

void picture_close(FILE *file)
{
	svg_end(file);
}

void picture_legend(FILE *file, unsigned row, const char *color, const char *text)
{
	double y = PICTURE_ROW * (row + 1);
	svg_line(file, PICTURE_LEFT, y - 4, PICTURE_LEFT + 24, y - 4, color, " stroke-width=\"3\"");
	svg_text(file, PICTURE_LEFT + 32, y, "start", "", text);
}

void picture_note(FILE *file, unsigned row, const char *text)
{
	svg_text(file, PICTURE_LEFT, PICTURE_ROW * (row + 1), "start", " fill=\"#666\"", text);
}

void picture_begin(const struct picture *picture, const char *x_text, const char *y_text)
{
	fprintf(picture->file, "<g transform=\"translate(0,%g)\">\n", picture->top);
	picture_grid(picture);
	svg_text(picture->file, (PICTURE_WIDTH + PICTURE_LEFT - PICTURE_RIGHT) / 2,
		 PICTURE_HEIGHT - 8, "middle", "", x_text);
	svg_text(picture->file, PICTURE_LEFT, PICTURE_TOP - 12, "start", "", y_text);
}

void picture_dot(const struct picture *picture, double x, double y)
{
	svg_circle(picture->file, picture_x(picture, x), picture_y(picture, y), 1.5, "#999");
}

void picture_curve(const struct picture *picture, const struct picture_pen *pen, const double *x,
		   const double *y, size_t count)
{
	char opacity[32];
	snprintf(opacity, sizeof(opacity), " opacity=\"%g\"", pen->opacity);
	svg_polyline_begin(picture->file, pen->color, pen->width, opacity);
	for (size_t i = 0; i < count; i++)
		svg_polyline_add(picture->file, picture_x(picture, x[i]), picture_y(picture, y[i]));
	svg_polyline_end(picture->file);
}

void picture_mark(const struct picture *picture, double x, double place, const char *color,
		  const char *text)
{
	double at = picture_x(picture, x);
	char fill[32];
	svg_line(picture->file, at, PICTURE_TOP, at, PICTURE_HEIGHT - PICTURE_BOTTOM, color,
		 " stroke-dasharray=\"4 3\"");
	snprintf(fill, sizeof(fill), " fill=\"%s\"", color);
	svg_text(picture->file, PICTURE_LEFT + place, PICTURE_TOP - 12, "start", fill, text);
}

void picture_end(const struct picture *picture)
{
	fputs("</g>\n", picture->file);
}
