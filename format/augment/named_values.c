#include "format/augment/apply/widen.h"
#include "format/augment/frame.h"
#include "format/augment/grammar/transforms.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Least and largest number of the elements of masks, and of rasters of whole numbers. */
static const double bounds[SCHEMA_ELEMENTS][2] = {
	[SCHEMA_U8] = {0, UINT8_MAX},
	[SCHEMA_U16] = {0, UINT16_MAX},
	[SCHEMA_I16] = {INT16_MIN, INT16_MAX},
	[SCHEMA_I32] = {INT32_MIN, INT32_MAX},
};

_Static_assert((int)PIPELINE_U8 == SCHEMA_U8 && (int)PIPELINE_F32 == SCHEMA_F32 &&
		       SCHEMA_F32 + 1 == SCHEMA_U16 && SCHEMA_I64 - SCHEMA_U16 == 3,
	       "the words of `to` are in the order of enum schema_element");

int pipeline_value_fill(const struct pipeline_value *named, enum schema_element element,
			uint8_t ret_fill[4])
{
	const double fill = named->fill;
	if (element == SCHEMA_F32) {
		float single = (float)fill;
		memcpy(ret_fill, &single, sizeof(single));
		return 0;
	}
	if (!(fill >= bounds[element][0] && fill <= bounds[element][1]) ||
	    (double)(int64_t)fill != fill)
		return -ERANGE;
	/* The low bytes of a little-endian two's complement integer are the narrower integer. */
	int32_t number = (int32_t)fill;
	memcpy(ret_fill, &number, sizeof(number));
	return 0;
}

__attribute__((format(printf, 3, 4))) static int refuse_step(struct pipeline_error *error,
							     int position, const char *format, ...)
{
	va_list arguments;
	if (!error)
		return -EINVAL;
	error->position = position;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return -EINVAL;
}

/* Checks that the schema's value supports the pipeline's settings for it. */
static int check_named(const struct pipeline_value *named, const struct schema_value *value,
		       struct pipeline_error *error)
{
	bool pixels = value->role == SCHEMA_MASK || value->role == SCHEMA_RASTER;
	uint8_t fill[4];
	if (named->fill_position >= 0 && !pixels)
		return refuse_step(error, named->fill_position,
				   "fill is for masks and rasters, and \"%s\" has the role %s",
				   value->name, schema_role_name(value->role));
	if (named->fill_position >= 0 && pipeline_value_fill(named, value->element, fill) < 0)
		return refuse_step(error, named->fill_position,
				   "\"%s\" cannot hold a fill of %.9g: its element is %s; give it "
				   "a whole number from %.0f to %.0f",
				   value->name, named->fill, schema_element_name(value->element),
				   bounds[value->element][0], bounds[value->element][1]);
	if (named->filter_position >= 0 && named->filter && value->role != SCHEMA_RASTER)
		return refuse_step(error, named->filter_position,
				   "filter(%s) is for rasters, and \"%s\" has the role %s, whose "
				   "numbers cannot be interpolated",
				   named->filter == PIPELINE_BICUBIC ? "bicubic" : "bilinear",
				   value->name, schema_role_name(value->role));
	if (named->filter_position >= 0 && !pixels)
		return refuse_step(error, named->filter_position,
				   "filter is for masks and rasters, and \"%s\" has the role %s",
				   value->name, schema_role_name(value->role));
	if (named->to_position >= 0 && !pixels)
		return refuse_step(
			error, named->to_position,
			"to with names is for masks and rasters, and \"%s\" has the role "
			"%s",
			value->name, schema_role_name(value->role));
	if (named->to_position >= 0 && !widen_can(value->element, named->element))
		return refuse_step(error, named->to_position,
				   "%s cannot hold every number of \"%s\", which is %s: choose a "
				   "wider type",
				   schema_element_name(named->element), value->name,
				   schema_element_name(value->element));
	if (named->pixels_position >= 0 && value->role != SCHEMA_IMAGE)
		return refuse_step(
			error, named->pixels_position,
			"the step changes the pixels of images, and \"%s\" has the role %s",
			value->name, schema_role_name(value->role));
	if (named->paste_position >= 0 && value->role != SCHEMA_MASK &&
	    value->role != SCHEMA_VALUE && value->role != SCHEMA_POLYGONS)
		return refuse_step(error, named->paste_position,
				   "copy_paste takes a mask and the numbers of boxes in it, or "
				   "polygons of boxes, and \"%s\" has the role %s",
				   value->name, schema_role_name(value->role));
	if (named->boxes_position >= 0 && value->role != SCHEMA_BOXES)
		return refuse_step(error, named->boxes_position,
				   "the step is for boxes, and \"%s\" has the role %s", value->name,
				   schema_role_name(value->role));
	return 0;
}

int pipeline_check_values(const struct pipeline *pipeline, const struct schema *schema,
			  struct pipeline_error *error)
{
	unsigned count;
	const struct pipeline_value *named = pipeline_values(pipeline, &count);
	for (unsigned i = 0; i < count; i++) {
		int found = schema_find(schema, named[i].name);
		const char *nearest = schema_nearest(schema, named[i].name);
		if (found < 0)
			return refuse_step(error, named[i].position,
					   "the dataset has no value \"%s\"%s%s%s", named[i].name,
					   nearest ? "; did you mean \"" : "",
					   nearest ? nearest : "", nearest ? "\"?" : "");
		int r = check_named(&named[i], &schema->values[found], error);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool is_boxes_of_image(const struct schema *schema, unsigned value)
{
	int frame = schema_frame(schema, value);

	return schema->values[value].role == SCHEMA_BOXES && frame >= 0 &&
	       frame == schema_stored(schema, SCHEMA_IN_INDEX, 0);
}

/* Returns the number of the only boxes in the frame of the first image, or -EINVAL. */
static int find_only_boxes(const struct schema *schema, int position, struct pipeline_error *error)
{
	unsigned found = schema->count;

	for (unsigned i = 0; i < schema->count; i++) {
		if (!is_boxes_of_image(schema, i))
			continue;
		if (found < schema->count)
			return refuse_step(
				error, position,
				"random_iou_crop chooses by one value of boxes, and the dataset "
				"has several: name one, as in '%s: random_iou_crop'",
				schema->values[found].name);
		found = i;
	}
	if (found == schema->count)
		return refuse_step(error, position,
				   "random_iou_crop chooses by boxes, and the dataset has none of "
				   "its image: pack a value of role boxes, or crop without "
				   "boxes, as random_resized_crop does");
	return (int)found;
}

int pipeline_find_boxes(const struct pipeline *pipeline, const struct schema *schema,
			int *ret_number, struct pipeline_error *error)
{
	const struct transform *crop = pipeline_iou_crop(pipeline);
	int number;

	if (!crop) {
		*ret_number = -1;
		return 0;
	}
	if (crop->values) {
		const char *name = pipeline->values[__builtin_ctz(crop->values)].name;

		number = schema_find(schema, name);
		if (number < 0 || !is_boxes_of_image(schema, (unsigned)number))
			return refuse_step(error, crop->position,
					   "random_iou_crop chooses by boxes of the first image, "
					   "and \"%s\" is none of these",
					   name);
	} else {
		number = find_only_boxes(schema, crop->position, error);
		if (number < 0)
			return number;
	}
	const struct schema_value *boxes = &schema->values[number];

	if (boxes->format == SCHEMA_CXCYWHR)
		return refuse_step(error, crop->position,
				   "random_iou_crop chooses by boxes xyxy, xywh or cxcywh, and "
				   "\"%s\" has another format",
				   boxes->name);
	*ret_number = number;
	return 0;
}
