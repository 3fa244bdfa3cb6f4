/*
 * Writes an SVG image: shapes and text on a white page, in pixels from the top left. Draw from back
 * to front, from one thread; check ferror() for write errors. `more` is a string of further
 * attributes, such as " opacity=\"0.5\"", or "". Only text is escaped.
 */
#pragma once

#include <stdio.h>

enum { SVG_COLORS = 8 };
/* Colors that colour-blind readers can tell apart (Okabe and Ito, 2008). */
extern const char *const svg_colors[SVG_COLORS];

void svg_begin(FILE *file, double width, double height);
void svg_end(FILE *file);

/* anchor: "start", "middle" or "end". text: any bytes, shown as printable characters. */
void svg_text(FILE *file, double x, double y, const char *anchor, const char *more,
	      const char *text);
void svg_line(FILE *file, double x1, double y1, double x2, double y2, const char *color,
	      const char *more);
void svg_rect(FILE *file, double x, double y, double width, double height, const char *fill,
	      const char *more);
void svg_circle(FILE *file, double x, double y, double radius, const char *color);
/* A line through the points added between begin and end. */
void svg_polyline_begin(FILE *file, const char *color, double width, const char *more);
void svg_polyline_add(FILE *file, double x, double y);
void svg_polyline_end(FILE *file);
