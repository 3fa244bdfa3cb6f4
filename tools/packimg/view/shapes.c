#include "tools/packimg/view/shapes.h"

#include "format/augment/frame.h"
#include "format/base/polygons.h"
#include "tools/packimg/common/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void shapes_deinit(struct shapes *shapes)
{
	free(shapes->list);
	free(shapes->points);
	buffer_deinit(&shapes->rows);
	buffer_deinit(&shapes->classes);
	buffer_deinit(&shapes->keep);
}

/* Copies the bytes of a value; no bytes if the sample lacks it. */
static int copy_value(const struct shapes_source *source, const struct schema_value *value,
		      struct buffer *bytes, struct packimg_error *error)
{
	struct packimg_value stored;
	int r = packimg_value(source->dataset, source->sample->index, value->number, &stored);

	bytes->size = 0;
	if (r == 0 && stored.size > 0)
		r = buffer_append(bytes, stored.bytes, stored.size);
	return r ? packimg_fail(error, r, "sample %" PRIu64 ": its value of field \"%s\" %s",
				source->sample->index, value->name,
				r == -ENOMEM ? "does not fit into memory" : "is damaged")
		 : 0;
}

/* Returns the class value that has a number for each row of the value; NULL if there is none. */
static const struct schema_value *class_list(const struct schema *schema, unsigned value)
{
	int rows = schema_rows(schema, value);

	for (unsigned i = 0; rows >= 0 && i < schema->count; i++) {
		const struct schema_value *other = &schema->values[i];

		if (other->role == SCHEMA_CLASS && other->store == SCHEMA_IN_COLUMN &&
		    other->dims == 1 && schema_rows(schema, i) == rows)
			return other;
	}
	return NULL;
}

/* Returns the class number of a row, -1 if there is none. */
static int64_t class_of_row(const struct schema_value *classes, const struct buffer *bytes,
			    size_t row)
{
	size_t size = classes ? schema_element_size(classes->element) : 1;
	uint64_t bits = 0;

	if (!classes || row >= bytes->size / size)
		return -1;
	memcpy(&bits, bytes->data + row * size, size);
	if (classes->element == SCHEMA_U8 || classes->element == SCHEMA_U16)
		return (int64_t)bits;
	unsigned unused = 64 - 8 * (unsigned)size;
	int64_t number = (int64_t)(bits << unused) >> unused;
	return number < 0 ? -1 : number;
}

static int add_point(struct shapes *shapes, double x, double y)
{
	if (array_reserve(&shapes->points, shapes->point_count, &shapes->point_capacity,
			  sizeof(*shapes->points)))
		return -ENOMEM;
	shapes->points[shapes->point_count][0] = x;
	shapes->points[shapes->point_count++][1] = y;
	return 0;
}

static int add_shape(struct shapes *shapes, enum shape_kind kind, int64_t class_number, size_t row)
{
	if (array_reserve(&shapes->list, shapes->count, &shapes->capacity, sizeof(*shapes->list)))
		return -ENOMEM;
	shapes->list[shapes->count++] =
		(struct shape){.kind = kind,
			       .colour = class_number < 0 ? (int64_t)row : class_number,
			       .class_number = class_number,
			       .first = shapes->point_count};
	return 0;
}

/* A value whose rows become shapes. scale: pixels of the picture per unit. */
struct coordinate_rows {
	const struct schema_value *value;
	const float *numbers;
	size_t count, row_size; /* rows, and floats of each */
	const struct schema_value *classes;
	double scale[2];
	bool moved; /* moved by a pipeline, which makes boxes outside its result empty */
};

/* In pixels. degrees: counterclockwise. */
static int add_corners(struct shapes *shapes, const double centre[2], const double half[2],
		       double degrees)
{
	static const double signs[4][2] = {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}};
	double angle = degrees * acos(-1) / 180, c = cos(angle), s = sin(angle);
	int r = 0;

	for (unsigned i = 0; !r && i < 4; i++) {
		double x = signs[i][0] * half[0], y = signs[i][1] * half[1];

		r = add_point(shapes, centre[0] + x * c + y * s, centre[1] - x * s + y * c);
	}
	return r;
}

static bool is_empty(const struct coordinate_rows *rows, const float *box)
{
	bool corners = rows->value->format == SCHEMA_XYXY;

	return !(box[2] > (corners ? box[0] : 0)) || !(box[3] > (corners ? box[1] : 0));
}

static int add_box(struct shapes *shapes, const struct coordinate_rows *rows, const float *box)
{
	double centre[2] = {box[0], box[1]}, half[2] = {box[2] / 2, box[3] / 2};

	for (unsigned i = 0; i < 2; i++) {
		if (rows->value->format == SCHEMA_XYXY)
			half[i] = ((double)box[2 + i] - box[i]) / 2;
		if (rows->value->format == SCHEMA_XYXY || rows->value->format == SCHEMA_XYWH)
			centre[i] += half[i];
		centre[i] *= rows->scale[i];
		half[i] *= rows->scale[i];
	}
	return add_corners(shapes, centre, half,
			   rows->value->format == SCHEMA_CXCYWHR ? box[4] : 0);
}

/* Returns true if there is room for another shape; otherwise counts it as left out. */
static bool has_room(struct shapes *shapes, size_t points)
{
	if (shapes->count < SHAPES_MAX && points <= SHAPE_POINTS_MAX - shapes->point_count)
		return true;
	shapes->left_out++;
	return false;
}

static int add_points(struct shapes *shapes, const struct coordinate_rows *rows,
		      const float *numbers, size_t row, int64_t class_number)
{
	size_t size = rows->value->shape[rows->value->dims - 1];

	for (size_t i = 0; i < rows->row_size; i += size) {
		const float *point = numbers + i;

		if (rows->value->format == SCHEMA_XYV && point[2] == 0)
			continue; /* not visible */
		if (!has_room(shapes, 1))
			continue;
		if (add_shape(shapes, SHAPE_POINT, class_number, row) ||
		    add_point(shapes, point[0] * rows->scale[0], point[1] * rows->scale[1]))
			return -ENOMEM;
		shapes->list[shapes->count - 1].count = 1;
	}
	return 0;
}

static int add_polygon(struct shapes *shapes, const struct coordinate_rows *rows,
		       const float *numbers)
{
	int r = 0;

	for (size_t i = 0; !r && i < rows->row_size; i += 2) {
		/* Rows of fixed length are padded with NaN. */
		if (isfinite(numbers[i]) && isfinite(numbers[i + 1]))
			r = add_point(shapes, numbers[i] * rows->scale[0],
				      numbers[i + 1] * rows->scale[1]);
	}
	return r;
}

static int add_row(struct shapes *shapes, const struct coordinate_rows *rows, const float *numbers,
		   size_t row)
{
	int64_t class_number = class_of_row(rows->classes, &shapes->classes, row);
	bool box = rows->value->role == SCHEMA_BOXES;

	if (rows->value->role == SCHEMA_KEYPOINTS)
		return add_points(shapes, rows, numbers, row, class_number);
	if (box && rows->moved && is_empty(rows, numbers))
		return 0;
	if (!has_room(shapes, box ? 4 : rows->row_size / 2))
		return 0;
	if (add_shape(shapes, box ? SHAPE_BOX : SHAPE_POLYGON, class_number, row) ||
	    (box ? add_box(shapes, rows, numbers) : add_polygon(shapes, rows, numbers)))
		return -ENOMEM;
	struct shape *shape = &shapes->list[shapes->count - 1];
	shape->count = shapes->point_count - shape->first;
	return 0;
}

/*
 * Adds the polygons of a list of vertices: one for each number, or, of objects, any number for each
 * object that the pipeline does not drop.
 */
static int add_polygons(struct shapes *shapes, struct coordinate_rows *rows, bool objects)
{
	size_t count = rows->count, number = 0;
	int r = 0;

	for (size_t row = 0; !r && row < count;) {
		const float *first = rows->numbers + 2 * row;
		size_t vertices;

		row = polygons_next(rows->numbers, count, row, &vertices);
		rows->row_size = 2 * vertices;
		bool drawn = vertices > 0 &&
			     (!objects || number >= shapes->keep.size || shapes->keep.data[number]);
		if (drawn)
			r = add_row(shapes, rows, first, number);
		number += !objects || vertices == 0;
	}
	return r;
}

/*
 * Moves the rows through the pipeline. keep (may be NULL): one byte per row, set to 0 for boxes
 * that the pipeline drops.
 */
static int move_rows(struct shapes *shapes, const struct shapes_source *source,
		     const struct schema_value *value, uint8_t *keep, struct packimg_error *error)
{
	const struct coordinates coordinates = {value->role, value->format,
						(value->flags & SCHEMA_NORMALIZED) != 0,
						pipeline_value_bit(source->pipeline, value->name)};
	size_t row = coordinates_row(&coordinates);

	return pipeline_apply_coordinates(source->pipeline, source->scratch, source->sample->index,
					  source->sample->width, source->sample->height,
					  &coordinates, source->seed, source->epoch,
					  (float *)(void *)shapes->rows.data,
					  shapes->rows.size / sizeof(float) / row, keep, error);
}

/* Finds the boxes to which the value's rows belong, and which of them the pipeline drops. */
static int read_dropped(struct shapes *shapes, const struct shapes_source *source, unsigned number,
			struct packimg_error *error)
{
	const struct schema *schema = packimg_schema(source->dataset);
	bool is_boxes = schema->values[number].role == SCHEMA_BOXES;
	int found = is_boxes ? (int)number : schema_rows(schema, number);

	shapes->keep.size = 0;
	if (!source->pipeline || found < 0 || schema->values[found].role != SCHEMA_BOXES)
		return 0;
	const struct schema_value *boxes = &schema->values[found];
	if (!pipeline_drops_boxes(source->pipeline,
				  pipeline_value_bit(source->pipeline, boxes->name)))
		return 0;
	int r = copy_value(source, boxes, &shapes->rows, error);
	size_t count = shapes->rows.size / sizeof(float) / boxes->shape[boxes->dims - 1];

	if (r || count == 0)
		return r;
	if (buffer_reserve(&shapes->keep, count))
		return packimg_fail(error, -ENOMEM, "out of memory");
	shapes->keep.size = count;
	return move_rows(shapes, source, boxes, shapes->keep.data, error);
}

/* Returns the number of floats of a row: of a vertex, or of the keypoints of one row. */
static size_t floats_of_row(const struct schema_value *value)
{
	if (value->role == SCHEMA_BOXES)
		return value->shape[value->dims - 1];
	if (value->dims == 3)
		return (size_t)value->shape[1] * value->shape[2];
	/* a vertex of a list of polygons, or keypoints with one point per row */
	return value->shape[value->dims - 1];
}

static int read_value(struct shapes *shapes, const struct shapes_source *source, unsigned number,
		      struct packimg_error *error)
{
	const struct schema *schema = packimg_schema(source->dataset);
	const struct schema_value *value = &schema->values[number];
	struct coordinate_rows rows = {.value = value,
				       .classes = class_list(schema, number),
				       .moved = source->pipeline != NULL};
	bool normalized = (value->flags & SCHEMA_NORMALIZED) != 0;
	int r = read_dropped(shapes, source, number, error);

	if (r == 0)
		r = copy_value(source, value, &shapes->rows, error);
	if (r || shapes->rows.size == 0)
		return r < 0 ? r : 0;
	if (rows.classes)
		r = copy_value(source, rows.classes, &shapes->classes, error);
	if (!r && source->pipeline)
		r = move_rows(shapes, source, value, NULL, error);
	if (r)
		return r < 0 ? r : 0;
	rows.scale[0] = normalized ? source->width : (double)source->width / source->frame_width;
	rows.scale[1] = normalized ? source->height : (double)source->height / source->frame_height;
	rows.numbers = (const float *)(const void *)shapes->rows.data;
	rows.row_size = floats_of_row(value);
	rows.count = shapes->rows.size / sizeof(float) / rows.row_size;
	bool is_list = value->role == SCHEMA_POLYGONS && value->dims == 2;
	for (size_t i = 0; !r && !is_list && i < rows.count; i++)
		if (i >= shapes->keep.size || shapes->keep.data[i])
			r = add_row(shapes, &rows, rows.numbers + i * rows.row_size, i);
	if (is_list)
		r = add_polygons(shapes, &rows, schema_has_polygons_of_objects(schema, number));
	return r ? packimg_fail(error, r, "out of memory") : 0;
}

int shapes_read(struct shapes *shapes, const struct shapes_source *source,
		struct packimg_error *error)
{
	const struct schema *schema = packimg_schema(source->dataset);
	int r = 0;

	shapes->count = shapes->point_count = 0;
	shapes->left_out = 0;
	for (unsigned i = 0; !r && i < schema->count; i++) {
		enum schema_role role = schema->values[i].role;

		if ((role == SCHEMA_BOXES || role == SCHEMA_KEYPOINTS || role == SCHEMA_POLYGONS) &&
		    schema_frame(schema, i) == (int)source->frame)
			r = read_value(shapes, source, i, error);
	}
	return r;
}
