/*
 * Connects the values of a schema (format/base/schema.h) with the fields that store them (SPEC.md,
 * "Schema"). Pure functions, any thread.
 */
#pragma once

#include "format/base/schema.h"
#include "format/packimg.h"

/* Returns the type of the field that stores a value. The value must be in a column. */
enum packimg_field_type schema_field_type(const struct schema_value *value);
/*
 * Compares a stored value with its element, shape and flags. Returns what is wrong, as the end of a
 * sentence, or NULL. Does not read value->bytes.
 */
const char *schema_field_fault(const struct schema_value *value,
			       const struct packimg_value *stored);
/*
 * Returns the number of rows of a stored value, or of objects if these have polygons; 0 if the
 * value has no rows or is absent; UINT64_MAX if the polygons end within an object. Reads
 * stored->bytes of polygons of objects.
 */
uint64_t schema_field_rows(const struct schema *schema, unsigned value,
			   const struct packimg_value *stored);
/* Returns what it counts, for messages: "rows" or "objects". */
const char *schema_field_rows_name(const struct schema *schema, unsigned value);
/* Smallest and largest number of a value of role class; both PACKIMG_LABEL_NONE if it has none. */
struct schema_classes {
	int64_t min, max;
};
/* Reads stored->bytes. */
struct schema_classes schema_field_classes(const struct schema_value *value,
					   const struct packimg_value *stored);

/*
 * Returns how the codec, the channels or the size of an image, a mask or a raster contradicts its
 * value in the schema, as the end of a sentence; NULL if they agree. Does not compare with the
 * largest sizes.
 */
const char *schema_image_fault(const struct schema_value *value, enum packimg_codec codec,
			       uint8_t channels, uint32_t width, uint32_t height);

/*
 * Makes the schema of a file without section 8: an image, the fields, label, sample and key. Leaves
 * out fields with names that are invalid in a schema or that one of these four values needs
 * (SPEC.md, "Schema"), and fields beyond 64 values.
 */
void schema_imply(const struct packimg_field *fields, uint32_t count, uint64_t source_longest,
		  struct schema *ret_schema);
