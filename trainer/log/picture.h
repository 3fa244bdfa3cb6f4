/*
 * A picture of measurements: an SVG file with a curve of y over x, whose scale is logarithmic,
 * marks at places of x and a text to each axis. Drawn from back to front, by one thread; errors of
 * writing stay with the file.
 */
#pragma once

#include <stdio.h>

struct picture {
	FILE *file;
	double from, to;    /* x, above 0 */
	double least, most; /* y; what lies outside is drawn at the border */
};

/* Opens the picture, with a grid: of y five lines, of x one at each power of `base` from `from`. */
void picture_begin(const struct picture *picture, double base, const char *x_text,
		   const char *y_text);
void picture_dot(const struct picture *picture, double x, double y);
/* A line through count points. */
void picture_curve(const struct picture *picture, const double *x, const double *y, size_t count);
/* A dashed line at x, whose text begins at `place`, a number of pixels from the left of the grid.
 */
void picture_mark(const struct picture *picture, double x, double place, const char *color,
		  const char *text);
void picture_end(const struct picture *picture);
