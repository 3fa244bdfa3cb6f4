/*
 * Plots of measurements: an SVG file of vertically stacked panels. Each has curves of y over x,
 * marks on the x axis and a label per axis. Draw background elements first, from one thread; check
 * ferror() for write errors. Strings may contain any bytes.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* A panel. */
struct picture {
	FILE *file;
	double from, to;     /* x range; positive if the scale is logarithmic */
	double y_min, y_max; /* y range; values outside are clamped to the border */
	/*
	 * base of x's logarithmic scale, with a grid line at each power of it times `from`; 0 for
	 * linear
	 */
	double base;
	double top; /* offset from the top of the file in pixels */
};

/* Starts the file with space for `rows` of legend. Returns the offset of the first panel. */
double picture_open(FILE *file, unsigned panels, unsigned rows);
void picture_close(FILE *file);
/* Draws a row of the legend. */
void picture_legend(FILE *file, unsigned row, const char *color, const char *text);
/* Draws a row of the legend that explains lines and dots. */
void picture_note(FILE *file, unsigned row, const char *text);
/* Offset of the panel below the one at `top`. */
double picture_next_top(double top);

/* Starts a panel, with a grid. */
void picture_begin(const struct picture *picture, const char *x_text, const char *y_text);
void picture_dot(const struct picture *picture, double x, double y);
struct picture_pen {
	const char *color;
	double width, opacity;
};
/* Draws a line through `count` points. */
void picture_curve(const struct picture *picture, const struct picture_pen *pen, const double *x,
		   const double *y, size_t count);
/*
 * Draws a dashed vertical line at x. Its label begins `place` pixels from the left edge of the
 * grid.
 */
void picture_mark(const struct picture *picture, double x, double place, const char *color,
		  const char *text);
void picture_end(const struct picture *picture);

extern const struct picture_pen picture_black;
