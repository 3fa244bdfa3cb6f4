#include "trainer/log/picture.h"

#include <math.h>

enum {
	PICTURE_WIDTH = 720,
	PICTURE_HEIGHT = 420,
	PICTURE_LEFT = 64, /* margins */
	PICTURE_TOP = 32,
	PICTURE_RIGHT = 24,
	PICTURE_BOTTOM = 48,
};

static double picture_x(const struct picture *picture, double x)
{
	return PICTURE_LEFT + (PICTURE_WIDTH - PICTURE_LEFT - PICTURE_RIGHT) *
				      log(x / picture->from) / log(picture->to / picture->from);
}

static double picture_y(const struct picture *picture, double y)
{
	double inside = fmax(fmin(y, picture->most), picture->least);
	double share = (inside - picture->least) / (picture->most - picture->least);
	return PICTURE_HEIGHT - PICTURE_BOTTOM -
	       (PICTURE_HEIGHT - PICTURE_TOP - PICTURE_BOTTOM) * share;
}

static void picture_grid(const struct picture *picture, double base)
{
	FILE *file = picture->file;
	/* up to the last one, which rounding may have moved */
	for (double x = picture->from; x < picture->to * sqrt(base); x *= base) {
		fprintf(file,
			"<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>"
			"<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
			picture_x(picture, x), picture_x(picture, x), PICTURE_TOP,
			PICTURE_HEIGHT - PICTURE_BOTTOM, picture_x(picture, x),
			PICTURE_HEIGHT - PICTURE_BOTTOM + 18, x);
	}
	for (int i = 0; i <= 4; i++) {
		double y = picture->least + (picture->most - picture->least) * i / 4;
		fprintf(file,
			"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
			"<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n",
			PICTURE_LEFT, PICTURE_WIDTH - PICTURE_RIGHT, picture_y(picture, y),
			picture_y(picture, y), PICTURE_LEFT - 6, picture_y(picture, y) + 4, y);
	}
}

void picture_begin(const struct picture *picture, double base, const char *x_text,
		   const char *y_text)
{
	fprintf(picture->file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		PICTURE_WIDTH, PICTURE_HEIGHT);
	picture_grid(picture, base);
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

void picture_curve(const struct picture *picture, const double *x, const double *y, size_t count)
{
	fputs("<polyline fill=\"none\" stroke=\"black\" stroke-width=\"1.5\" points=\"",
	      picture->file);
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
	fputs("</svg>\n", picture->file);
}
