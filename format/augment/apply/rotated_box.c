#include "format/augment/apply/rotated_box.h"
#include "format/base/portable_math.h"

#include <math.h>

enum { CORNERS = 4 };

/* Upper left, upper right, lower right, lower left, before the rotation. */
struct corners {
	double x[CORNERS], y[CORNERS];
};

/* The edge from each corner to the next: y = slope * x + intercept. */
struct edges {
	double slope[CORNERS], intercept[CORNERS];
};

static const double pi = 0x1.921fb54442d18p1;

static double radians_of(double degrees)
{
	/* Exact, and within the range of the portable sines. */
	return fmod(degrees, 360) * pi / 180;
}

/* torchvision's _cxcywhr_to_xywhr() and _xywhr_to_xyxyxyxy(). */
static struct corners corners_of(const struct rotated_box *box)
{
	double angle = radians_of(box->degrees), c = portable_cos(angle), s = portable_sin(angle);
	double half_width = box->width / 2, half_height = box->height / 2;
	double x = box->x - half_width * c - half_height * s;
	double y = box->y + half_width * s - half_height * c;
	double w = box->width, h = box->height;

	return (struct corners){{x, x + w * c, x + (w * c + h * s), x + h * s},
				{y, y - w * s, y - (w * s - h * c), y + h * c}};
}

/* torchvision's _xyxyxyxy_to_xywhr() and _xywhr_to_cxcywhr(). */
static struct rotated_box box_of(const struct corners *corners)
{
	const double *x = corners->x, *y = corners->y;
	double degrees = portable_atan2(y[0] - y[1], x[1] - x[0]) / pi * 180;
	double angle = radians_of(degrees), c = portable_cos(angle), s = portable_sin(angle);
	double width = sqrt((x[1] - x[0]) * (x[1] - x[0]) + (y[1] - y[0]) * (y[1] - y[0]));
	double height = sqrt((x[2] - x[1]) * (x[2] - x[1]) + (y[2] - y[1]) * (y[2] - y[1]));

	return (struct rotated_box){
		.x = x[0] + width / 2 * c + height / 2 * s,
		.y = y[0] - width / 2 * s + height / 2 * c,
		.width = width,
		.height = height,
		.degrees = degrees,
	};
}

static double distance(const struct corners *corners, int from, int to)
{
	double x = corners->x[to] - corners->x[from], y = corners->y[to] - corners->y[from];

	return sqrt(x * x + y * y);
}

/* torchvision's _parallelogram_to_bounding_boxes(). */
static void corners_to_rectangle(struct corners *corners)
{
	double *x = corners->x, *y = corners->y;
	double centre_x = (x[0] + x[2]) / 2, centre_y = (y[0] + y[2]) / 2;
	double along = distance(corners, 0, 1), down = distance(corners, 0, 3);
	double angle_along = portable_atan2(y[0] - y[1], x[1] - x[0]);
	double angle_down = portable_atan2(y[0] - y[3], x[3] - x[0]);
	double between = angle_along - angle_down;
	double sign = between > pi / 2 ? -1 : 1;
	double c = portable_cos(between), s = portable_sin(between);
	double width = along < down ? along * s : along + down * c * sign;
	double height = along > down ? down * s : down + along * c * sign;
	double angle = down > along ? angle_down + pi / 2 : angle_along;

	c = portable_cos(angle);
	s = portable_sin(angle);
	for (int i = 0; i < CORNERS; i++) {
		double half_width = i == 1 || i == 2 ? width / 2 : -width / 2;
		double half_height = i >= 2 ? height / 2 : -height / 2;

		x[i] = centre_x + half_width * c + half_height * s;
		y[i] = centre_y + half_height * c - half_width * s;
	}
}

/* ---- clamping ---- */

/* torch.clamp(), also for bounds in disorder; not a number if one of the three is not. */
static double clamp(double value, double low, double high)
{
	if (isnan(value) || isnan(low) || isnan(high))
		return NAN;
	value = value < low ? low : value;
	return value > high ? high : value;
}

/* torch.isclose() */
static bool is_close(double value, double other)
{
	return value == other || fabs(value - other) <= 1e-8 + 1e-5 * fabs(other);
}

/* Returns the number of the leftmost corner; of several, which may differ by a hundredth, the
 * upper. */
static int corners_leftmost(const struct corners *corners)
{
	double x_max = 0, y_max = 0, least = 0;
	int found = 0;

	for (int i = 0; i < CORNERS; i++) {
		x_max = fmax(x_max, fabs(corners->x[i]));
		y_max = fmax(y_max, fabs(corners->y[i]));
	}
	for (int i = 0; i < CORNERS; i++) {
		double at = corners->y[i] / y_max + corners->x[i] / x_max * 100;

		if (i == 0 || at < least) {
			least = at;
			found = i;
		}
	}
	return found;
}

/* Makes corner `first` the first. */
static void corners_shift(struct corners *corners, int first)
{
	const struct corners from = *corners;

	for (int i = 0; i < CORNERS; i++) {
		corners->x[i] = from.x[(first + i) % CORNERS];
		corners->y[i] = from.y[(first + i) % CORNERS];
	}
}

static struct edges edges_of(const struct corners *corners)
{
	struct edges edges;

	for (int i = 0; i < CORNERS; i++) {
		int next = (i + 1) % CORNERS;

		edges.slope[i] =
			(corners->y[next] - corners->y[i]) / (corners->x[next] - corners->x[i]);
		edges.intercept[i] = corners->y[i] - edges.slope[i] * corners->x[i];
	}
	return edges;
}

/*
 * Moves the edges at the leftmost corner to where the box meets the left side of the frame, of this
 * height, at most as far as the box that was given reaches.
 */
static void edges_clamp(struct edges *edges, const struct corners *given, double height)
{
	const struct edges of_given = edges_of(given);
	const double *most = of_given.intercept;
	double *b = edges->intercept;

	b[0] = clamp(clamp(b[1], b[0], b[2]), 0, height);
	b[3] = clamp(clamp(b[2], b[1], b[3]), 0, height);
	b[0] = clamp(b[0], most[0], most[2]);
	b[2] = clamp(b[2], most[0], most[2]);
	b[1] = clamp(b[1], most[1], most[3]);
	b[3] = clamp(b[3], most[1], most[3]);
}

/* Sets ret_corners to where each edge meets the one before. Returns false if some do not. */
static bool edges_meet(const struct edges *edges, struct corners *ret_corners)
{
	struct corners corners;

	for (int i = 0; i < CORNERS; i++) {
		int before = (i + CORNERS - 1) % CORNERS;
		const double *a = edges->slope, *b = edges->intercept;

		corners.x[i] = -(b[i] - b[before]) / (a[i] - a[before]);
		corners.y[i] = a[i] * corners.x[i] + b[i];
		if (isnan(corners.x[i]) || isnan(corners.y[i]))
			return false;
	}
	*ret_corners = corners;
	return true;
}

/*
 * torchvision's _clamp_along_y_axis(): clamps to the left side of the frame. The first corner is
 * the leftmost one. Returns false if nothing is left.
 */
static bool corners_clamp_left(struct corners *corners, const struct corners *given, double height)
{
	const double *x = corners->x, *y = corners->y;
	bool upright = is_close(y[0], y[1]) || is_close(y[2], y[3]);
	bool outside = x[0] <= 0 && x[1] <= 0 && x[2] <= 0 && x[3] <= 0;

	if (outside || is_close(y[0], y[3]) || is_close(y[1], y[2]) ||
	    (upright && is_close(x[0], x[1])))
		return false;
	if (upright) {
		corners->x[0] = clamp(x[0], 0, INFINITY);
		corners->x[3] = clamp(x[3], 0, INFINITY);
	} else if (x[0] < 0) {
		struct edges edges = edges_of(corners);

		edges_clamp(&edges, given, height);
		edges_meet(&edges, corners);
	}
	return true;
}

/* Turns corners by a quarter, so that the upper side of a frame of this width is its left one. */
static void corners_turn(struct corners *corners, double width)
{
	for (int i = 0; i < CORNERS; i++) {
		double x = corners->x[i];

		corners->x[i] = corners->y[i];
		corners->y[i] = width - x;
	}
}

/*
 * torchvision's _clamp_rotated_bounding_boxes(). Of a box of which nothing is left, it makes one
 * without a size in the lower left corner of the frame.
 */
static void corners_clamp(struct corners *corners, double width, double height)
{
	struct corners given = *corners;

	for (int side = 0; side < 4; side++) {
		double across = side % 2 == 0 ? width : height;
		double down = side % 2 == 0 ? height : width;
		int first = corners_leftmost(corners);

		corners_shift(corners, first);
		corners_shift(&given, first);
		if (!corners_clamp_left(corners, &given, down)) {
			*corners = (struct corners){{0}, {height, height, height, height}};
			return;
		}
		/* By the same number, not back: torchvision leaves boxes turned by 180 degrees. */
		corners_shift(corners, first);
		corners_shift(&given, first);
		corners_turn(corners, across);
		corners_turn(&given, across);
	}
}

static void box_clamp(struct rotated_box *box, const struct geometry_step *step)
{
	struct corners corners = corners_of(box);

	corners_clamp(&corners, step->width, step->height);
	*box = box_of(&corners);
}

/* ---- steps ---- */

static void corners_resize(struct corners *corners, const struct geometry_step *step)
{
	/* torchvision's factors are f32. */
	float across = (float)((double)step->width / step->from_width);
	float down = (float)((double)step->height / step->from_height);

	for (int i = 0; i < CORNERS; i++) {
		corners->x[i] *= across;
		corners->y[i] *= down;
	}
}

static void corners_warp(struct corners *corners, const struct geometry *geometry,
			 const struct geometry_step *step)
{
	const float *m = geometry->effects.effects[step->effect].warp.forward;
	double half_x = step->width * 0.5, half_y = step->height * 0.5;

	for (int i = 0; i < CORNERS; i++) {
		double x = corners->x[i] - half_x, y = corners->y[i] - half_y;

		corners->x[i] = x * m[0] + y * m[1] + m[2] + half_x;
		corners->y[i] = x * m[3] + y * m[4] + m[5] + half_y;
	}
}

static void box_map(const struct geometry *geometry, const struct geometry_step *step,
		    struct rotated_box *box)
{
	struct corners corners = corners_of(box);

	if (step->kind == GEOMETRY_STEP_RESIZE)
		corners_resize(&corners, step);
	else
		corners_warp(&corners, geometry, step);
	corners_to_rectangle(&corners);
	corners_clamp(&corners, step->width, step->height);
	*box = box_of(&corners);
}

static bool box_is_shown(const struct geometry_step *step, const struct rotated_box *box)
{
	double x = box->x - step->x, y = box->y - step->y;

	return x > 0 && x < step->width && y > 0 && y < step->height;
}

void rotated_box_step(const struct geometry *geometry, const struct geometry_step *step,
		      struct rotated_box *box)
{
	if (step->by_centre && !box_is_shown(step, box)) {
		*box = (struct rotated_box){0};
		return;
	}
	switch (step->kind) {
	case GEOMETRY_STEP_CROP:
		box->x -= step->x;
		box->y -= step->y;
		box_clamp(box, step);
		return;
	case GEOMETRY_STEP_PAD:
		box->x += step->x;
		box->y += step->y;
		box_clamp(box, step);
		return;
	case GEOMETRY_STEP_HFLIP:
		box->x = step->width - box->x;
		box->degrees = -box->degrees;
		return;
	case GEOMETRY_STEP_VFLIP:
		box->y = step->height - box->y;
		box->degrees = 180 - box->degrees;
		return;
	case GEOMETRY_STEP_RESIZE:
		if (step->width != step->from_width || step->height != step->from_height)
			box_map(geometry, step, box);
		return;
	case GEOMETRY_STEP_WARP:
		box_map(geometry, step, box);
		return;
	case GEOMETRY_STEP_CLAMP:
		box_clamp(box, step);
		return;
	case GEOMETRY_STEP_SANITIZE:
		return;
	}
}

bool rotated_box_is_sane(const struct geometry_step *step, const struct rotated_box *box)
{
	const struct corners corners = corners_of(box);

	for (int i = 0; i < CORNERS; i++)
		if (!(corners.x[i] >= 0 && corners.x[i] <= step->width && corners.y[i] >= 0 &&
		      corners.y[i] <= step->height))
			return false;
	return box->width >= step->min_size && box->height >= step->min_size &&
	       box->width * box->height >= step->min_area;
}
