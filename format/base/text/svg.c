#include "format/base/text/svg.h"

#include "format/base/text/printable.h"

#include <stdlib.h>
#include <string.h>

const char *const svg_colors[SVG_COLORS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
					    "#e69f00", "#56b4e9", "#000000", "#999999"};

void svg_begin(FILE *file, double width, double height)
{
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		width, height, width, height);
}

void svg_end(FILE *file)
{
	fputs("</svg>\n", file);
}

void svg_text(FILE *file, double x, double y, const char *anchor, const char *more,
	      const char *text)
{
	/* XML allows neither control characters nor invalid UTF-8. */
	char *shown = printable_copy(text, strlen(text));

	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more);
	for (const char *at = shown; at && *at; at++) {
		if (*at == '<')
			fputs("&lt;", file);
		else if (*at == '>')
			fputs("&gt;", file);
		else if (*at == '&')
			fputs("&amp;", file);
		else
			fputc(*at, file);
	}
	fputs("</text>\n", file);
	free(shown);
}

void svg_line(FILE *file, double x1, double y1, double x2, double y2, const char *color,
	      const char *more)
{
	fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n",
		x1, y1, x2, y2, color, more);
}

void svg_rect(FILE *file, double x, double y, double width, double height, const char *fill,
	      const char *more)
{
	fprintf(file,
		"<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"%s/>\n", x,
		y, width, height, fill, more);
}

void svg_circle(FILE *file, double x, double y, double radius, const char *color)
{
	fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", x, y, radius,
		color);
}

void svg_polyline_begin(FILE *file, const char *color, double width, const char *more)
{
	fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\"%s points=\"",
		color, width, more);
}

void svg_polyline_add(FILE *file, double x, double y)
{
	fprintf(file, "%.1f,%.1f ", x, y);
}

void svg_polyline_end(FILE *file)
{
	fputs("\"/>\n", file);
}
