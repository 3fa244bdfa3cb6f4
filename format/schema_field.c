#include "format/schema_field.h"

#include "format/base/polygons.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* format/base includes nothing of libpackimg, so schema.h repeats what both state. */
#define SAME_ELEMENT(name) ((int)PACKIMG_ELEMENT_##name == (int)SCHEMA_##name)
static_assert(SAME_ELEMENT(U8) && SAME_ELEMENT(F32) && SAME_ELEMENT(U16) && SAME_ELEMENT(I16) &&
		      SAME_ELEMENT(I32),
	      "enum packimg_element has the numbers of enum schema_element");
static_assert((int)SCHEMA_SIDE_MAX == PACKIMG_SIDE_MAX, "one limit");
static_assert((int)SCHEMA_CHANNELS_MAX == PACKIMG_RASTER_CHANNELS_MAX, "one limit");
static_assert((int)SCHEMA_COLUMNS_MAX == PACKIMG_FIELDS_MAX, "one limit");
static_assert((int)SCHEMA_NAME_MAX <= PACKIMG_NAME_MAX, "a value's name is that of its field");

static bool is_float(enum schema_element element)
{
	return element == SCHEMA_F16 || element == SCHEMA_BF16 || element == SCHEMA_F32 ||
	       element == SCHEMA_F64;
}

static bool is_scalar(const struct schema_value *value)
{
	return value->element != SCHEMA_NO_ELEMENT && value->dims == 0;
}

enum packimg_field_type schema_field_type(const struct schema_value *value)
{
	if (value->role == SCHEMA_TEXT)
		return PACKIMG_FIELD_TEXT;
	if (value->role == SCHEMA_JSON)
		return PACKIMG_FIELD_JSON;
	if (!is_scalar(value))
		return PACKIMG_FIELD_BYTES;
	return is_float(value->element) ? PACKIMG_FIELD_FLOAT64 : PACKIMG_FIELD_INT64;
}

static bool integer_fits(enum schema_element element, int64_t number)
{
	switch (element) {
	case SCHEMA_U8:
		return number >= 0 && number <= UINT8_MAX;
	case SCHEMA_U16:
		return number >= 0 && number <= UINT16_MAX;
	case SCHEMA_I16:
		return number >= INT16_MIN && number <= INT16_MAX;
	case SCHEMA_I32:
		return number >= INT32_MIN && number <= INT32_MAX;
	default:
		return true; /* u64 is stored as the int64 of the same bits */
	}
}

/* Infinities and NaN fit; finite numbers must stay finite. */
static bool float_fits(enum schema_element element, double number)
{
	double max = element == SCHEMA_F16    ? 65504
		     : element == SCHEMA_BF16 ? 0x1.fep127
		     : element == SCHEMA_F32  ? FLT_MAX
					      : DBL_MAX;

	return !isfinite(number) || fabs(number) <= max;
}

const char *schema_field_fault(const struct schema_value *value, const struct packimg_value *stored)
{
	if (!stored->present)
		return value->flags & SCHEMA_SPARSE ? NULL : "is missing, but is not sparse";
	if (is_scalar(value)) {
		bool fits = is_float(value->element) ? float_fits(value->element, stored->float64)
						     : integer_fits(value->element, stored->int64);
		return fits ? NULL : "does not fit its element";
	}
	size_t row = schema_row_size(value);
	if (schema_has_rows(value) && stored->size % row != 0)
		return "has a size that is not a whole number of rows";
	if (value->dims > 0 && !schema_has_rows(value) && stored->size != row)
		return "has a size other than its shape's";
	return NULL;
}

uint64_t schema_field_rows(const struct schema *schema, unsigned value,
			   const struct packimg_value *stored)
{
	const struct schema_value *typed = &schema->values[value];

	if (!stored->present || !schema_has_rows(typed))
		return 0;
	size_t rows = stored->size / schema_row_size(typed);
	return schema_has_polygons_of_objects(schema, value) ? polygons_count(stored->bytes, rows)
							     : rows;
}

const char *schema_field_rows_name(const struct schema *schema, unsigned value)
{
	return schema_has_polygons_of_objects(schema, value) ? "objects" : "rows";
}

/* Reads integer number i of the bytes of a value. */
static int64_t integer_at(const struct schema_value *value, const void *bytes, size_t i)
{
	const uint8_t *at = (const uint8_t *)bytes + i * schema_element_size(value->element);
	union {
		uint8_t u8;
		uint16_t u16;
		int16_t i16;
		int32_t i32;
		int64_t i64;
	} number;

	memcpy(&number, at, schema_element_size(value->element));
	switch (value->element) {
	case SCHEMA_U8:
		return number.u8;
	case SCHEMA_U16:
		return number.u16;
	case SCHEMA_I16:
		return number.i16;
	case SCHEMA_I32:
		return number.i32;
	default:
		return number.i64;
	}
}

struct schema_classes schema_field_classes(const struct schema_value *value,
					   const struct packimg_value *stored)
{
	struct schema_classes classes = {PACKIMG_LABEL_NONE, PACKIMG_LABEL_NONE};
	size_t count = is_scalar(value) ? 1 : stored->size / schema_element_size(value->element);

	if (!stored->present || count == 0)
		return classes;
	classes = (struct schema_classes){INT64_MAX, INT64_MIN};
	for (size_t i = 0; i < count; i++) {
		int64_t number =
			is_scalar(value) ? stored->int64 : integer_at(value, stored->bytes, i);

		classes.min = number < classes.min ? number : classes.min;
		classes.max = number > classes.max ? number : classes.max;
	}
	return classes;
}

const char *schema_image_fault(const struct schema_value *value, enum packimg_codec codec,
			       uint8_t channels, uint32_t width, uint32_t height)
{
	if ((value->shape[0] && height != value->shape[0]) ||
	    (value->shape[1] && width != value->shape[1]))
		return "width or height is not that of the schema";
	if (schema_is_rgb(value))
		return codec == PACKIMG_CODEC_RASTER
			       ? "an image u8[h,w,3] must be a JPEG, raw or raw+zstd"
			       : NULL;
	if (codec == PACKIMG_CODEC_JPEG)
		return "only an image u8[h,w,3] can be a JPEG";
	if (codec != PACKIMG_CODEC_RASTER && value->element != SCHEMA_U8)
		return "only elements u8 can be raw or raw+zstd; use codec raster";
	if (channels != (value->dims == 3 ? value->shape[2] : 1))
		return "channels is not the last dimension of the schema";
	return NULL;
}

static bool field_is_named(const struct packimg_field *fields, uint32_t count, const char *name)
{
	for (uint32_t i = 0; i < count; i++)
		if (strcmp(fields[i].name, name) == 0)
			return true;
	return false;
}

static bool name_is_possible(const char *name)
{
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return false;
	return strlen(name) <= SCHEMA_NAME_MAX;
}

/*
 * True if an implied value needs the field's name: it is the longest of the value's possible names,
 * and other fields have all shorter ones.
 */
static bool name_is_needed(const struct packimg_field *fields, uint32_t count, const char *name)
{
	static const char *const words[] = {"image", "label", "sample", "key"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		char longest[SCHEMA_NAME_MAX + 1];
		const char *shorter = schema_longest_name(words[i], longest);

		if (strcmp(name, longest) != 0)
			continue;
		while (shorter > longest && field_is_named(fields, count, shorter))
			shorter--;
		return shorter == longest;
	}
	return false;
}

static void imply_field(struct schema *schema, const struct packimg_field *field, uint32_t number)
{
	static const struct {
		enum schema_role role;
		enum schema_element element;
	} kinds[] = {
		[PACKIMG_FIELD_INT64] = {SCHEMA_VALUE, SCHEMA_I64},
		[PACKIMG_FIELD_FLOAT64] = {SCHEMA_VALUE, SCHEMA_F64},
		[PACKIMG_FIELD_BYTES] = {SCHEMA_BYTES, SCHEMA_NO_ELEMENT},
		[PACKIMG_FIELD_JSON] = {SCHEMA_JSON, SCHEMA_NO_ELEMENT},
		[PACKIMG_FIELD_TEXT] = {SCHEMA_TEXT, SCHEMA_NO_ELEMENT},
	};
	struct schema_value value = {
		.role = kinds[field->type].role,
		.element = kinds[field->type].element,
		.store = SCHEMA_IN_COLUMN,
		.flags = SCHEMA_SPARSE,
		.number = (uint16_t)number,
		.of = SCHEMA_OF_NONE,
		.longest = field->type >= PACKIMG_FIELD_BYTES ? field->longest : 0,
	};

	strcpy(value.name, field->name);
	schema_add(schema, &value);
}

void schema_imply(const struct packimg_field *fields, uint32_t count, uint64_t source_longest,
		  struct schema *ret_schema)
{
	enum { OTHERS = 3 }; /* label, sample and key */
	struct schema_value image = {
		.role = SCHEMA_IMAGE,
		.element = SCHEMA_U8,
		.store = SCHEMA_IN_INDEX,
		.dims = 3,
		.shape = {0, 0, 3},
		.of = SCHEMA_OF_NONE,
	};
	char longest[SCHEMA_NAME_MAX + 1];
	const char *name = schema_longest_name("image", longest);

	while (name > longest && field_is_named(fields, count, name))
		name--;
	memcpy(image.name, name, (size_t)(longest + sizeof(longest) - name));
	ret_schema->count = 0;
	schema_add(ret_schema, &image);
	for (uint32_t i = 0; i < count && ret_schema->count + OTHERS < SCHEMA_VALUES_MAX; i++)
		if (name_is_possible(fields[i].name) &&
		    !name_is_needed(fields, count, fields[i].name))
			imply_field(ret_schema, &fields[i], i);
	schema_add_implied(ret_schema, true);
	int key = schema_stored(ret_schema, SCHEMA_IN_SOURCE, 0);
	ret_schema->values[key].longest = source_longest;
}
