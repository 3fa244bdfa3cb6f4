#include "tools/shapes/figure.h"

#include <math.h>
#include <stddef.h>

enum { POINTS_MAX = 40 };

struct polygon {
	size_t count;
	float x[POINTS_MAX], y[POINTS_MAX];
};

const char *const figure_names[FIGURE_COUNT] = {
	"arrow",   "crescent", "cross",  "disc", "heart",
	"hexagon", "ring",     "square", "star", "triangle",
};

static struct polygon polygons[FIGURE_COUNT];

static void polygon_add(struct polygon *polygon, double x, double y)
{
	polygon->x[polygon->count] = (float)x;
	polygon->y[polygon->count] = (float)y;
	polygon->count++;
}

/* Corners on the unit circle; corners with odd numbers are at the radius `inner` instead. */
static void polygon_regular(struct polygon *polygon, size_t corners, double inner)
{
	for (size_t i = 0; i < corners; i++) {
		double angle = 2 * M_PI * (double)i / (double)corners - M_PI / 2;
		double radius = i % 2 ? inner : 1;

		polygon_add(polygon, radius * cos(angle), radius * sin(angle));
	}
}

static void polygon_points(struct polygon *polygon, const double (*points)[2], size_t count)
{
	for (size_t i = 0; i < count; i++)
		polygon_add(polygon, points[i][0], points[i][1]);
}

/*
 * The curve x = 16 sin^3 t, y = 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t, centred and scaled to
 * reach 1.
 */
static void polygon_heart(struct polygon *polygon)
{
	for (size_t i = 0; i < POINTS_MAX; i++) {
		double t = 2 * M_PI * (double)i / POINTS_MAX;
		double s = sin(t);
		double y = 13 * cos(t) - 5 * cos(2 * t) - 2 * cos(3 * t) - cos(4 * t);

		polygon_add(polygon, s * s * s * 16 / 16.5, (-y - 2) / 16.5);
	}
}

void figure_init(void)
{
	static const double arrow[][2] = {
		{1, 0},       {0.1, -0.8}, {0.1, -0.3}, {-0.95, -0.3},
		{-0.95, 0.3}, {0.1, 0.3},  {0.1, 0.8},
	};
	static const double cross[][2] = {
		{-0.3, -1}, {0.3, -1}, {0.3, -0.3}, {1, -0.3}, {1, 0.3},   {0.3, 0.3},
		{0.3, 1},   {-0.3, 1}, {-0.3, 0.3}, {-1, 0.3}, {-1, -0.3}, {-0.3, -0.3},
	};

	for (size_t i = 0; i < FIGURE_COUNT; i++)
		polygons[i].count = 0;
	polygon_points(&polygons[FIGURE_ARROW], arrow, sizeof(arrow) / sizeof(arrow[0]));
	polygon_points(&polygons[FIGURE_CROSS], cross, sizeof(cross) / sizeof(cross[0]));
	polygon_heart(&polygons[FIGURE_HEART]);
	polygon_regular(&polygons[FIGURE_HEXAGON], 6, 1);
	polygon_regular(&polygons[FIGURE_SQUARE], 4, 1);
	polygon_regular(&polygons[FIGURE_STAR], 10, 0.42);
	polygon_regular(&polygons[FIGURE_TRIANGLE], 3, 1);
}

/*
 * Signed distance to the nearest edge, negative inside: a ray to the right crosses an odd number of
 * edges.
 */
static float polygon_distance(const struct polygon *polygon, float x, float y)
{
	float nearest = INFINITY;
	int inside = 0;

	for (size_t i = 0, j = polygon->count - 1; i < polygon->count; j = i++) {
		float ax = polygon->x[j], ay = polygon->y[j];
		float bx = polygon->x[i] - ax, by = polygon->y[i] - ay;
		float px = x - ax, py = y - ay;
		float t = (px * bx + py * by) / (bx * bx + by * by);

		t = fminf(fmaxf(t, 0), 1);
		float dx = px - t * bx, dy = py - t * by;

		nearest = fminf(nearest, dx * dx + dy * dy);
		if ((ay > y) != (ay + by > y) && x < ax + bx * (y - ay) / by)
			inside = !inside;
	}
	return inside ? -sqrtf(nearest) : sqrtf(nearest);
}

float figure_distance(enum figure figure, float x, float y)
{
	float radius = sqrtf(x * x + y * y);

	switch (figure) {
	case FIGURE_DISC:
		return radius - 0.9f;
	case FIGURE_RING:
		return fabsf(radius - 0.72f) - 0.22f;
	case FIGURE_CRESCENT:
		/* A disc minus a smaller disc beside its centre. */
		return fmaxf(radius - 0.95f, 0.78f - hypotf(x - 0.5f, y));
	default:
		return polygon_distance(&polygons[figure], x, y);
	}
}
