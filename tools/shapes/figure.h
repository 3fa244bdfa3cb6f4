/*
 * figure: the ten outlines of the shapes image set as signed distances.
 *
 * A figure lives in its own coordinates: x to the right, y down, reaching about 1 from the origin
 * in every direction. A distance is negative inside. Tables are built once by figure_init() and
 * immutable after that; figure_distance() is a pure function then and may be called from any
 * thread.
 */
#pragma once

enum figure {
	FIGURE_ARROW,
	FIGURE_CRESCENT,
	FIGURE_CROSS,
	FIGURE_DISC,
	FIGURE_HEART,
	FIGURE_HEXAGON,
	FIGURE_RING,
	FIGURE_SQUARE,
	FIGURE_STAR,
	FIGURE_TRIANGLE,
	FIGURE_COUNT,
};

/* Names of the classes, in the order of enum figure, which is their order by name. */
extern const char *const figure_names[FIGURE_COUNT];

void figure_init(void);
/*
 * Distance in figure units from (x, y) to the outline; exact for the polygons, a lower bound beside
 * cusps of the others.
 */
float figure_distance(enum figure figure, float x, float y);
