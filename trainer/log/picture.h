/*
 * A picture of measurements: an SVG file of panels, one below the other, each with curves of y over
 * x, marks at places of x and a text to each axis. Drawn from back to front, by one thread; errors
 * of writing stay with the file. Texts but those of the legend are ours.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* A panel. */
struct picture {
	FILE *file;
	double from, to;    /* x, above 0 where its scale is logarithmic */
	double least, most; /* y; what lies outside is drawn at the border */
	double base; /* of x's logarithmic scale, with a line at each power from `from`; 0: linear
		      */
	double top;  /* pixels above it */
};

/* Around the panels, with room for rows of a legend above them; the offset of the first panel. */
double picture_open(FILE *file, unsigned panels, unsigned rows);
void picture_shut(FILE *file);
/* Anybody's text, as SVG has it. */
void picture_text(FILE *file, const char *text);
/* A row of the legend. text: anybody's. */
void picture_legend(FILE *file, unsigned row, const char *color, const char *text);
/* A row of it that says what lines and dots are. */
void picture_note(FILE *file, unsigned row, const char *text);
/* The offset of the panel below. */
double picture_below(double top);

/* Opens a panel, with a grid. */
void picture_begin(const struct picture *picture, const char *x_text, const char *y_text);
void picture_dot(const struct picture *picture, double x, double y);
struct picture_pen {
	const char *color;
	double width, opacity;
};
/* A line through count points. */
void picture_curve(const struct picture *picture, const struct picture_pen *pen, const double *x,
		   const double *y, size_t count);
/* A dashed line at x, whose text begins at `place`, a number of pixels from the left of the grid.
 */
void picture_mark(const struct picture *picture, double x, double place, const char *color,
		  const char *text);
void picture_end(const struct picture *picture);

extern const struct picture_pen picture_black;
