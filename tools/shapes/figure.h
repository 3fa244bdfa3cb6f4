/*
 * figure: signed distances to the ten outlines of the shapes image set.
 *
 * Figure units: x points right, y points down, and an outline extends about 1 from the origin in
 * every direction. Distances are negative inside. figure_init() builds the tables once; after that,
 * any thread may call figure_distance().
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

/* Class names, indexed by enum figure, in ascending order. */
extern const char *const figure_names[FIGURE_COUNT];

void figure_init(void);
/*
 * Returns the distance from (x, y) to the outline, in figure units. Exact for polygons; for other
 * figures a lower bound near cusps.
 */
float figure_distance(enum figure figure, float x, float y);
