#include "trainer/log/picture.h"

#include "format/base/text/printable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Grid step: 1, 2 or 5 times a power of ten, such that a range has about PICTURE_LINES of them. */
static double picture_step(double range)
{
	double power = pow(10, floor(log10(range / PICTURE_LINES)));
	double share = range / PICTURE_LINES / power;
	return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

static void picture_column(const struct picture *picture, double x)
{
	fprintf(picture->file,
		"<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>"
		"<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
		picture_x(picture, x), picture_x(picture, x), PICTURE_TOP,
		PICTURE_HEIGHT - PICTURE_BOTTOM, picture_x(picture, x),
		PICTURE_HEIGHT - PICTURE_BOTTOM + 18, x);
}

static void picture_grid(const struct picture *picture)
{
	double step = picture_step(picture->to - picture->from), base = picture->base;
	/* include the last one, even if rounding has moved it */
	for (double x = picture->from; base > 0 && x < picture->to * sqrt(base); x *= base)
		picture_column(picture, x);
	for (double n = ceil(picture->from / step); base == 0 && n * step <= picture->to; n++)
		picture_column(picture, n * step + 0.0); /* + 0.0 avoids -0 */
	step = picture_step(picture->y_max - picture->y_min);
	for (double n = ceil(picture->y_min / step); n * step <= picture->y_max; n++) {
		double y = n * step + 0.0;
		fprintf(picture->file,
			"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
			"<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
			PICTURE_LEFT, PICTURE_WIDTH - PICTURE_RIGHT, picture_y(picture, y),
			picture_y(picture, y), PICTURE_LEFT - 6, picture_y(picture, y) + 4, y);
	}
}

double picture_open(FILE *file, unsigned panels, unsigned rows)
{
	unsigned top = rows ? PICTURE_ROW * (rows + 1) : 0;
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		PICTURE_WIDTH, top + panels * PICTURE_HEIGHT);
	return top;
}

double picture_below(double top)
{
	return top + PICTURE_HEIGHT;
}

void picture_shut(FILE *file)
{
	fputs("</svg>\n", file);
}

void picture_text(FILE *file, const char *text)
{
	/* XML allows neither control characters nor invalid UTF-8. */
	char *shown = printable_copy(text, strlen(text));
	for (const char *at = shown; at && *at; at++) {
		if (*at == '<' || *at == '>' || *at == '&')
			fprintf(file, "&#%d;", *at);
		else
			fputc(*at, file);
	}
	free(shown);
}

void picture_legend(FILE *file, unsigned row, const char *color, const char *text)
{
	unsigned y = PICTURE_ROW * (row + 1);
	fprintf(file,
		"<line x1=\"%d\" x2=\"%d\" y1=\"%u\" y2=\"%u\" stroke=\"%s\" "
		"stroke-width=\"3\"/><text x=\"%d\" y=\"%u\">",
		PICTURE_LEFT, PICTURE_LEFT + 24, y - 4, y - 4, color, PICTURE_LEFT + 32, y);
	picture_text(file, text);
	fputs("</text>\n", file);
}

void picture_note(FILE *file, unsigned row, const char *text)
{
	fprintf(file, "<text x=\"%d\" y=\"%d\" fill=\"#666\">", PICTURE_LEFT,
		PICTURE_ROW * ((int)row + 1));
	picture_text(file, text);
	fputs("</text>\n", file);
}

void picture_begin(const struct picture *picture, const char *x_text, const char *y_text)
{
	fprintf(picture->file, "<g transform=\"translate(0,%g)\">\n", picture->top);
	picture_grid(picture);
	fprintf(picture->file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
		(PICTURE_WIDTH + PICTURE_LEFT - PICTURE_RIGHT) / 2, PICTURE_HEIGHT - 8, x_text);
	fprintf(picture->file, "<text x=\"%d\" y=\"%d\">%s</text>\n", PICTURE_LEFT,
		PICTURE_TOP - 12, y_text);
}

void picture_dot(const struct picture *picture, double x, double y)
{
	fprintf(picture->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"1.5\" fill=\"#999\"/>\n",
		picture_x(picture, x), picture_y(picture, y));
}

void picture_curve(const struct picture *picture, const struct picture_pen *pen, const double *x,
		   const double *y, size_t count)
{
	fprintf(picture->file,
		"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" opacity=\"%g\" "
		"points=\"",
		pen->color, pen->width, pen->opacity);
	for (size_t i = 0; i < count; i++)
		fprintf(picture->file, "%.1f,%.1f ", picture_x(picture, x[i]),
			picture_y(picture, y[i]));
	fputs("\"/>\n", picture->file);
}

void picture_mark(const struct picture *picture, double x, double place, const char *color,
		  const char *text)
{
	fprintf(picture->file,
		"<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" "
		"stroke-dasharray=\"4 3\"/><text x=\"%.1f\" y=\"%d\" fill=\"%s\">%s</text>\n",
		picture_x(picture, x), picture_x(picture, x), PICTURE_TOP,
		PICTURE_HEIGHT - PICTURE_BOTTOM, color, PICTURE_LEFT + place, PICTURE_TOP - 12,
		color, text);
}

void picture_end(const struct picture *picture)
{
	fputs("</g>\n", picture->file);
}
