#include "format/augment/apply/coordinates.h"
#include "format/augment/apply/iou_crop.h"
#include "format/augment/apply/rotated_box.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct point {
	float x, y;
};

struct box {
	struct point low, high; /* left and upper, right and lower edge */
};

size_t coordinates_row(const struct coordinates *coordinates)
{
	if (coordinates->role == SCHEMA_BOXES && coordinates->format == SCHEMA_CXCYWHR)
		return 5;
	if (coordinates->role == SCHEMA_BOXES)
		return coordinates->format >= SCHEMA_XYXY && coordinates->format <= SCHEMA_CXCYWH
			       ? 4
			       : 0;
	if (coordinates->role != SCHEMA_KEYPOINTS && coordinates->role != SCHEMA_POLYGONS)
		return 0;
	return coordinates->format == SCHEMA_XY ? 2 : coordinates->format == SCHEMA_XYV ? 3 : 0;
}

static struct point point_scale(struct point point, float x, float y)
{
	return (struct point){point.x * x, point.y * y};
}

static bool point_finite(struct point point)
{
	return isfinite(point.x) && isfinite(point.y);
}

static float clamp(float value, float high)
{
	return value < 0 ? 0 : value > high ? high : value;
}

static void box_clamp(struct box *box, uint32_t width, uint32_t height)
{
	float w = (float)width, h = (float)height;

	*box = (struct box){{clamp(box->low.x, w), clamp(box->low.y, h)},
			    {clamp(box->high.x, w), clamp(box->high.y, h)}};
}

/* Makes a box empty if it is not finite or is reversed. Returns true if so. */
static bool box_mend(struct box *box)
{
	bool finite = point_finite(box->low) && point_finite(box->high);
	bool reversed_x = box->high.x < box->low.x, reversed_y = box->high.y < box->low.y;

	if (!finite)
		*box = (struct box){0};
	else if (reversed_x)
		box->high.x = box->low.x;
	if (finite && reversed_y)
		box->high.y = box->low.y;
	return !finite || reversed_x || reversed_y;
}

/* convert_bounding_box_format() to XYXY, in torchvision's order. */
static struct box box_load(enum schema_format format, const float *row)
{
	float w = row[2], h = row[3];

	switch (format) {
	case SCHEMA_XYWH:
		return (struct box){{row[0], row[1]}, {w + row[0], h + row[1]}};
	case SCHEMA_CXCYWH: {
		float x = row[0] - w / 2, y = row[1] - h / 2;

		return (struct box){{x, y}, {w + x, h + y}};
	}
	default:
		return (struct box){{row[0], row[1]}, {w, h}};
	}
}

/*
 * convert_bounding_box_format() from XYXY, in torchvision's order. A box whose width, height or
 * centre overflows becomes empty.
 */
static void box_store(enum schema_format format, const struct box *box, float *row)
{
	float w = box->high.x - box->low.x, h = box->high.y - box->low.y;

	row[0] = box->low.x;
	row[1] = box->low.y;
	row[2] = format == SCHEMA_XYXY ? box->high.x : w;
	row[3] = format == SCHEMA_XYXY ? box->high.y : h;
	if (format == SCHEMA_CXCYWH) {
		row[0] = (box->low.x * 2 + w) / 2;
		row[1] = (box->low.y * 2 + h) / 2;
	}
	if (!isfinite(row[0]) || !isfinite(row[1]) || !isfinite(row[2]) || !isfinite(row[3]))
		memset(row, 0, 4 * sizeof(*row));
}

/* Returns the position of a point after the step's warp. */
static struct point point_warp(const struct geometry *geometry, const struct geometry_step *step,
			       struct point point)
{
	const float *m = geometry->effects.effects[step->effect].warp.forward;
	float half_x = (float)step->width * 0.5f, half_y = (float)step->height * 0.5f;
	float x = point.x - half_x, y = point.y - half_y;

	return (struct point){x * m[0] + y * m[1] + m[2] + half_x,
			      x * m[3] + y * m[4] + m[5] + half_y};
}

/* Moves a point through a step. Flips mirror 0 to size + far: far is 0 for edges, -1 for pixels. */
static struct point point_step(const struct geometry *geometry, const struct geometry_step *step,
			       float far, struct point point)
{
	switch (step->kind) {
	case GEOMETRY_STEP_CROP:
		return (struct point){point.x - (float)step->x, point.y - (float)step->y};
	case GEOMETRY_STEP_PAD:
		return (struct point){point.x + (float)step->x, point.y + (float)step->y};
	case GEOMETRY_STEP_RESIZE:
		return point_scale(point, (float)((double)step->width / step->from_width),
				   (float)((double)step->height / step->from_height));
	case GEOMETRY_STEP_HFLIP:
		point.x = (float)step->width + far - point.x;
		return point;
	case GEOMETRY_STEP_VFLIP:
		point.y = (float)step->height + far - point.y;
		return point;
	case GEOMETRY_STEP_WARP:
		return point_warp(geometry, step, point);
	case GEOMETRY_STEP_CLAMP:
	case GEOMETRY_STEP_SANITIZE:
		return point;
	}
	return point;
}

/* Returns the smallest box around the corners of a warped box. */
static struct box box_warp(const struct geometry *geometry, const struct geometry_step *step,
			   const struct box *box)
{
	const struct point corners[4] = {
		box->low, {box->high.x, box->low.y}, box->high, {box->low.x, box->high.y}};
	struct box around;

	for (int i = 0; i < 4; i++) {
		struct point at = point_warp(geometry, step, corners[i]);

		if (i == 0)
			around = (struct box){at, at};
		around.low.x = at.x < around.low.x ? at.x : around.low.x;
		around.low.y = at.y < around.low.y ? at.y : around.low.y;
		around.high.x = at.x > around.high.x ? at.x : around.high.x;
		around.high.y = at.y > around.high.y ? at.y : around.high.y;
	}
	return around;
}

static bool box_is_shown(const struct geometry_step *step, const struct box *box)
{
	const struct iou_window window = {step->x, step->y, step->width, step->height};
	const float corners[4] = {box->low.x, box->low.y, box->high.x, box->high.y};

	return iou_window_shows_centre(&window, corners);
}

static void box_step(const struct geometry *geometry, const struct geometry_step *step,
		     struct box *box)
{
	if (step->by_centre && !box_is_shown(step, box)) {
		*box = (struct box){0};
		return;
	}
	if (step->kind == GEOMETRY_STEP_WARP) {
		*box = box_warp(geometry, step, box);
	} else {
		struct point low = point_step(geometry, step, 0, box->low);
		struct point high = point_step(geometry, step, 0, box->high);

		*box = (struct box){low, high};
	}
	if (step->kind == GEOMETRY_STEP_HFLIP) {
		float left = box->high.x;

		box->high.x = box->low.x;
		box->low.x = left;
	} else if (step->kind == GEOMETRY_STEP_VFLIP) {
		float top = box->high.y;

		box->high.y = box->low.y;
		box->low.y = top;
	} else if (step->kind != GEOMETRY_STEP_RESIZE) {
		box_clamp(box, step->width, step->height);
	}
}

static float box_area(const struct box *box)
{
	return (box->high.x - box->low.x) * (box->high.y - box->low.y);
}

/* Returns false if a crop shows too little of a box. All comparisons are false for NaN. */
static bool area_stays(const struct geometry_step *step, float before, float after)
{
	return !step->by_area || (after > 0 && after >= step->min_visibility * before);
}

/* Size of the frame before and after all steps, to scale normalized coordinates; else all 1. */
struct frame {
	float width, height, out_width, out_height;
};

/* torchvision's sanitize_bounding_boxes(). All comparisons are false for NaN. */
static bool box_is_sane(const struct geometry_step *step, const struct box *box)
{
	float width = box->high.x - box->low.x, height = box->high.y - box->low.y;

	return width >= step->min_size && height >= step->min_size &&
	       width * height >= step->min_area && box->low.x >= 0 && box->low.y >= 0 &&
	       box->high.x <= (float)step->width && box->high.y <= (float)step->height;
}

/* Makes a box of pixels of a row and moves it. Returns false if a step drops it. */
static bool box_move(const struct geometry *geometry, const struct frame *frame,
		     const struct coordinates *coordinates, const float *row, struct box *ret_box,
		     bool *ret_changes)
{
	struct box box = box_load(coordinates->format, row);
	bool changes = box_mend(&box), stays = true;

	box.low = point_scale(box.low, frame->width, frame->height);
	box.high = point_scale(box.high, frame->width, frame->height);
	for (unsigned i = 0; i < geometry->step_count; i++) {
		const struct geometry_step *step = &geometry->steps[i];

		if (step->values && !(step->values & coordinates->value))
			continue;
		if (step->kind == GEOMETRY_STEP_SANITIZE) {
			stays = stays && box_is_sane(step, &box);
			continue;
		}
		float area = box_area(&box);

		box_step(geometry, step, &box);
		stays = stays && area_stays(step, area, box_area(&box));
		changes = true;
	}
	*ret_box = box;
	*ret_changes = changes;
	return stays;
}

/* Returns false if a step drops the box. */
static bool box_apply(const struct geometry *geometry, const struct frame *frame,
		      const struct coordinates *coordinates, float *row)
{
	struct box box;
	bool changes, stays = box_move(geometry, frame, coordinates, row, &box, &changes);

	/* A box that does not move keeps its bytes. */
	if (!changes)
		return stays;
	box.low = point_scale(box.low, 1 / frame->out_width, 1 / frame->out_height);
	box.high = point_scale(box.high, 1 / frame->out_width, 1 / frame->out_height);
	/* once more: a step may have overflowed */
	box_mend(&box);
	box_store(coordinates->format, &box, row);
	return stays;
}

/* Reads a row. Returns true if the box had to be made empty. */
static bool rotated_box_load(const struct frame *frame, const float *row,
			     struct rotated_box *ret_box)
{
	struct rotated_box box = {(double)row[0] * frame->width, (double)row[1] * frame->height,
				  (double)row[2] * frame->width, (double)row[3] * frame->height,
				  row[4]};
	bool negative = box.width < 0 || box.height < 0, finite = true;

	for (int i = 0; i < 5; i++)
		finite = finite && isfinite(row[i]);
	if (!finite)
		box = (struct rotated_box){0};
	box.width = box.width < 0 ? 0 : box.width;
	box.height = box.height < 0 ? 0 : box.height;
	*ret_box = box;
	return !finite || negative;
}

static void rotated_box_store(const struct frame *frame, const struct rotated_box *box, float *row)
{
	row[0] = (float)(box->x / frame->out_width);
	row[1] = (float)(box->y / frame->out_height);
	row[2] = (float)(box->width / frame->out_width);
	row[3] = (float)(box->height / frame->out_height);
	row[4] = (float)box->degrees;
	for (int i = 0; i < 5; i++)
		if (!isfinite(row[i])) {
			memset(row, 0, 5 * sizeof(*row));
			return;
		}
}

/* Returns false if a step drops the box. */
static bool rotated_box_apply(const struct geometry *geometry, const struct frame *frame,
			      const struct coordinates *coordinates, float *row)
{
	struct rotated_box box;
	bool changes = rotated_box_load(frame, row, &box), stays = true;

	for (unsigned i = 0; i < geometry->step_count; i++) {
		const struct geometry_step *step = &geometry->steps[i];

		if (step->values && !(step->values & coordinates->value))
			continue;
		if (step->kind == GEOMETRY_STEP_SANITIZE) {
			stays = stays && rotated_box_is_sane(step, &box);
			continue;
		}
		double area = box.width * box.height;

		rotated_box_step(geometry, step, &box);
		stays = stays && area_stays(step, (float)area, (float)(box.width * box.height));
		changes = true;
	}
	/* A box that does not move keeps its bytes. */
	if (changes)
		rotated_box_store(frame, &box, row);
	return stays;
}

static bool step_is_of_boxes(const struct geometry_step *step)
{
	return step->kind == GEOMETRY_STEP_CLAMP || step->kind == GEOMETRY_STEP_SANITIZE;
}

/* Returns the nearest finite number, any for NaN. */
static float make_finite(float number)
{
	return fminf(fmaxf(number, -FLT_MAX), FLT_MAX);
}

static void point_apply(const struct geometry *geometry, const struct frame *frame,
			const struct coordinates *coordinates, float *row)
{
	struct point point = {row[0], row[1]};
	const bool polygons = coordinates->role == SCHEMA_POLYGONS;
	bool finite = point_finite(point), moves = false;

	point = point_scale(point, frame->width, frame->height);
	for (unsigned i = 0; i < geometry->step_count; i++) {
		if (step_is_of_boxes(&geometry->steps[i]))
			continue;
		point = point_step(geometry, &geometry->steps[i], polygons ? 0 : -1, point);
		moves = true;
	}
	/* A point that does not move keeps its bytes. */
	if (!moves && finite)
		return;
	point = point_scale(point, 1 / frame->out_width, 1 / frame->out_height);
	if (polygons && finite)
		point = (struct point){make_finite(point.x), make_finite(point.y)};
	else if (!point_finite(point))
		point = (struct point){NAN, NAN};
	row[0] = point.x;
	row[1] = point.y;
}

/* Returns the factors of coordinates for a sample of width x height pixels. */
static struct frame frame_of(const struct geometry *geometry, uint32_t width, uint32_t height,
			     const struct coordinates *coordinates)
{
	const struct geometry_step *last =
		geometry->step_count ? &geometry->steps[geometry->step_count - 1] : NULL;

	if (!coordinates->normalized)
		return (struct frame){1, 1, 1, 1};
	return (struct frame){(float)width, (float)height, (float)(last ? last->width : width),
			      (float)(last ? last->height : height)};
}

size_t coordinates_corners(const struct geometry *geometry, uint32_t width, uint32_t height,
			   const struct frame_boxes *boxes)
{
	struct frame frame = frame_of(geometry, width, height, &boxes->form);
	size_t row = coordinates_row(&boxes->form), kept = 0;

	for (size_t i = 0; i < boxes->count; i++) {
		struct box box;
		bool changes;

		if (!box_move(geometry, &frame, &boxes->form, boxes->rows + i * row, &box,
			      &changes))
			continue;
		/* once more: a step may have overflowed */
		box_mend(&box);
		float *corners = boxes->corners + 4 * kept++;

		corners[0] = box.low.x;
		corners[1] = box.low.y;
		corners[2] = box.high.x;
		corners[3] = box.high.y;
	}
	return kept;
}

void coordinates_apply(const struct geometry *geometry, uint32_t width, uint32_t height,
		       const struct coordinates *coordinates, float *rows, size_t count,
		       uint8_t *keep)
{
	struct frame frame = frame_of(geometry, width, height, coordinates);
	size_t row = coordinates_row(coordinates);

	for (size_t i = 0; i < count; i++, rows += row) {
		bool stays = true;

		if (coordinates->role == SCHEMA_BOXES && coordinates->format == SCHEMA_CXCYWHR)
			stays = rotated_box_apply(geometry, &frame, coordinates, rows);
		else if (coordinates->role == SCHEMA_BOXES)
			stays = box_apply(geometry, &frame, coordinates, rows);
		else
			point_apply(geometry, &frame, coordinates, rows);
		if (keep)
			keep[i] = stays;
	}
}

void coordinates_limit_box(const struct coordinates *coordinates, float width, float height,
			   const float limits[4], float *row)
{
	struct box box = box_load(coordinates->format, row);

	box_mend(&box);
	if (coordinates->normalized) {
		box.low = point_scale(box.low, width, height);
		box.high = point_scale(box.high, width, height);
	}
	box.low.x = box.low.x < limits[0] ? limits[0] : box.low.x;
	box.low.y = box.low.y < limits[1] ? limits[1] : box.low.y;
	box.high.x = box.high.x > limits[2] ? limits[2] : box.high.x;
	box.high.y = box.high.y > limits[3] ? limits[3] : box.high.y;
	if (coordinates->normalized) {
		box.low = point_scale(box.low, 1 / width, 1 / height);
		box.high = point_scale(box.high, 1 / width, 1 / height);
	}
	box_mend(&box);
	box_store(coordinates->format, &box, row);
}

size_t rows_keep(void *rows, size_t row_size, const uint8_t *keep, size_t count)
{
	uint8_t *bytes = rows;
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (keep[i]) {
			if (kept < i)
				memcpy(bytes + kept * row_size, bytes + i * row_size, row_size);
			kept++;
		}
	return kept;
}
