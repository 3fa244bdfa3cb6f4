/*
 * Arbitrary bytes as the text of a schema and as section 8 of a file. Both parsers must refuse them
 * with an error text, or return a schema that obeys every rule, and that is the same after writing
 * and parsing its text or its bytes.
 */
#include "format/base/schema.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
	if (!holds)
		abort();
}

static void check_error(const struct schema_error *error, int position_max)
{
	check(error->position >= -1 && error->position <= position_max);
	check(memchr(error->text, 0, sizeof(error->text)) && error->text[0]);
}

static void check_values(const struct schema *schema)
{
	for (unsigned i = 0; i < schema->count; i++) {
		const struct schema_value *value = &schema->values[i];
		int frame = schema_frame(schema, i), rows = schema_rows(schema, i);

		check(schema_find(schema, value->name) == (int)i);
		check(schema_stored(schema, value->store, value->number) == (int)i);
		check(frame >= -1 && frame <= (int)i && rows >= -1 && rows <= (int)i);
		check((rows >= 0) == schema_has_rows(value));
		if (!schema_has_pixels(value))
			check(schema_row_size(value) - 1 < SCHEMA_ROW_SIZE_MAX);
	}
}

static void check_schema(const struct schema *schema)
{
	static char text[SCHEMA_TEXT_MAX];
	static uint8_t bytes[SCHEMA_SIZE_MAX];
	struct schema again;

	check_values(schema);
	size_t size = schema_print(schema, text, sizeof(text));
	check(size < sizeof(text) && size == strlen(text));
	/* the parser of text adds some values, which a section may lack */
	if (schema_parse(text, size, &again, NULL) == 0) {
		again.count = again.count < schema->count ? again.count : schema->count;
		check(schema_equal(schema, &again));
	} else {
		check(schema->count + 3 > SCHEMA_VALUES_MAX);
	}
	size = schema_pack(schema, bytes);
	check(size <= sizeof(bytes) && schema_unpack(bytes, size, &again, NULL) == 0);
	check(schema_equal(schema, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[SCHEMA_SIZE_MAX];
	struct schema_error error = {.position = -2};
	struct schema schema;

	if (schema_parse((const char *)data, size, &schema, &error) == 0)
		check_schema(&schema);
	else
		check_error(&error, (int)size);
	error.position = -2;
	if (schema_unpack(data, size, &schema, &error) == 0) {
		check_schema(&schema);
		check(schema_pack(&schema, bytes) == size && memcmp(bytes, data, size) == 0);
	} else {
		check_error(&error, -1);
	}
	return 0;
}
