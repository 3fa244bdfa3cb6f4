#include "format/augment/frame.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int pipeline_value_fill(const struct pipeline_value *named, enum schema_element element,
			uint8_t ret_fill[4])
{
	static const double bounds[SCHEMA_ELEMENTS][2] = {
		[SCHEMA_U8] = {0, UINT8_MAX},
		[SCHEMA_U16] = {0, UINT16_MAX},
		[SCHEMA_I16] = {INT16_MIN, INT16_MAX},
		[SCHEMA_I32] = {INT32_MIN, INT32_MAX},
	};
	const double fill = named->fill;
	if (element == SCHEMA_F32) {
		float single = (float)fill;
		memcpy(ret_fill, &single, sizeof(single));
		return 0;
	}
	if (!(fill >= bounds[element][0] && fill <= bounds[element][1]) ||
	    (double)(int64_t)fill != fill)
		return -ERANGE;
	/* The low bytes of a little-endian two's complement are the narrower number. */
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

/* Checks that what the pipeline says of a value suits it. */
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
				   "\"%s\" cannot hold a fill of %.9g: its element is %s",
				   value->name, named->fill, schema_element_name(value->element));
	if (named->filter_position >= 0 && named->bilinear && value->role != SCHEMA_RASTER)
		return refuse_step(
			error, named->filter_position,
			"filter(bilinear) is for rasters, and \"%s\" has the role %s, of "
			"which nothing lies between two values",
			value->name, schema_role_name(value->role));
	if (named->filter_position >= 0 && !pixels)
		return refuse_step(error, named->filter_position,
				   "filter is for masks and rasters, and \"%s\" has the role %s",
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
