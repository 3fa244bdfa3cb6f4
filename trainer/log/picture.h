/*
 * Plots of measurements: an SVG file of panels, stacked vertically, each with curves of y over x,
 * marks on the x axis and a label per axis. Draw from back to front, from one thread; check
 * ferror() for write errors. Texts may have any bytes.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* A panel. */
struct picture {
	FILE *file;
	double from, to;     /* x range, above 0 on a logarithmic scale */
	double y_min, y_max; /* y range; values outside are clamped to the border */
	double base; /* of x's logarithmic scale, with a line at each power from `from`; 0: linear
		      */
	double top;  /* offset from the top in pixels */
};

/* Starts the file, with space for a legend of `rows`; returns the offset of the first panel. */
double picture_open(FILE *file, unsigned panels, unsigned rows);
void picture_shut(FILE *file);
/* A legend row. */
void picture_legend(FILE *file, unsigned row, const char *color, const char *text);
/* A legend row that explains lines and dots. */
void picture_note(FILE *file, unsigned row, const char *text);
/* Offset of the next panel. */
double picture_below(double top);

/* Starts a panel, with a grid. */
void picture_begin(const struct picture *picture, const char *x_text, const char *y_text);
void picture_dot(const struct picture *picture, double x, double y);
struct picture_pen {
	const char *color;
	double width, opacity;
};
/* A line through count points. */
void picture_curve(const struct picture *picture, const struct picture_pen *pen, const double *x,
		   const double *y, size_t count);
/* A dashed vertical line at x, whose label begins `place` pixels from the left of the grid. */
void picture_mark(const struct picture *picture, double x, double place, const char *color,
		  const char *text);
void picture_end(const struct picture *picture);

extern const struct picture_pen picture_black;
