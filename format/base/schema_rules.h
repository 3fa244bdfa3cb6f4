/* Tables and rules of schemas, for schema.c, schema_text.c and tests only. Any thread. */
#pragma once

#include "format/base/schema.h"

/* Which value may be in the brackets of a value. */
enum schema_of_rule {
	OF_NOTHING,
	OF_FRAME_OR_NOTHING, /* an image or a raster that has no brackets */
	OF_FRAME,
	OF_FRAME_OR_ROWS,   /* the same, or a value to whose rows this one's belong */
	OF_ROWS_OR_NOTHING, /* a value to whose rows this one's belong */
};

struct schema_role_row {
	const char *name;
	const char *type;    /* default element and shape; NULL if the text must have them */
	const char *example; /* an element and a shape, for error messages */
	uint32_t elements;   /* bit for each enum schema_element */
	uint8_t dims_min, dims_max;
	enum schema_of_rule of;
	uint32_t stores; /* bit for each enum schema_store */
};

/* Rows by enum schema_role; row 0 is empty. */
extern const struct schema_role_row schema_roles[SCHEMA_ROLES];

struct schema_format_row {
	const char *name;
	uint32_t roles; /* bit for each enum schema_role */
	enum schema_format format;
	uint32_t size; /* of the last dimension */
};

enum { SCHEMA_FORMAT_ROWS = 6 };
extern const struct schema_format_row schema_formats[SCHEMA_FORMAT_ROWS];

/* Returns the row of a value's format; NULL if the value has none or one that does not exist. */
const struct schema_format_row *schema_format_of(const struct schema_value *value);
/* Returns the row of the first format of a role whose last dimension has that size, or NULL. */
const struct schema_format_row *schema_format_by_size(enum schema_role role, uint32_t size);

/* Part of a line that breaks a rule. */
enum schema_part {
	SCHEMA_PART_NAME,
	SCHEMA_PART_ROLE,
	SCHEMA_PART_OF,
	SCHEMA_PART_TYPE,
	SCHEMA_PART_WORDS,
	SCHEMA_PARTS,
};

struct schema_fault {
	unsigned value;
	enum schema_part part;
	char text[SCHEMA_ERROR_MAX];
};

/* Returns true if the schema obeys all rules; else describes the first fault. */
bool schema_is_sound(const struct schema *schema, struct schema_fault *fault);
