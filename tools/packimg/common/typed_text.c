#include "tools/packimg/common/typed_text.h"

#include "format/base/half.h"
#include "format/base/text/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct schema_value *typed_value(const struct packimg *dataset, uint32_t field)
{
	const struct schema *schema = packimg_schema(dataset);
	int index = schema_stored(schema, SCHEMA_IN_COLUMN, field);

	if (index < 0 || schema->values[index].dims == 0)
		return NULL;
	return &schema->values[index];
}

static void write_real(char text[NUMBER_SHORTEST], enum schema_element element, const uint8_t *at)
{
	uint16_t half = 0;
	float number = 0;
	double wide = 0;

	memcpy(&half, at, sizeof(half));
	if (element == SCHEMA_F64)
		memcpy(&wide, at, sizeof(wide));
	else if (element == SCHEMA_F32)
		memcpy(&number, at, sizeof(number));
	else
		number = element == SCHEMA_F16 ? half_to_float(half) : bfloat_to_float(half);
	if (!isfinite(element == SCHEMA_F64 ? wide : (double)number))
		snprintf(text, NUMBER_SHORTEST, "null");
	else if (element == SCHEMA_F64)
		number_shortest(wide, text);
	else
		number_shortest_float(number, text);
}

static void write_number(char text[NUMBER_SHORTEST], enum schema_element element, const uint8_t *at)
{
	bool is_signed = element == SCHEMA_I16 || element == SCHEMA_I32 || element == SCHEMA_I64;
	size_t size = schema_element_size(element);
	uint64_t bits = 0;

	if (element == SCHEMA_F16 || element == SCHEMA_BF16 || element == SCHEMA_F32 ||
	    element == SCHEMA_F64) {
		write_real(text, element, at);
		return;
	}
	memcpy(&bits, at, size);
	unsigned unused = 64 - 8 * (unsigned)size;
	if (is_signed)
		snprintf(text, NUMBER_SHORTEST, "%" PRId64, (int64_t)(bits << unused) >> unused);
	else
		snprintf(text, NUMBER_SHORTEST, "%" PRIu64, bits);
}

/* Appends dimension `dim` and the following ones. *at moves past the numbers. */
static int append_dim(const struct schema_value *value, uint64_t count, unsigned dim,
		      const uint8_t **at, struct buffer *text)
{
	char number[NUMBER_SHORTEST];
	int r = buffer_append(text, "[", 1);

	for (uint64_t i = 0; !r && i < count; i++) {
		if (i > 0)
			r = buffer_append(text, ",", 1);
		if (!r && dim + 1 < value->dims) {
			r = append_dim(value, value->shape[dim + 1], dim + 1, at, text);
			continue;
		}
		write_number(number, value->element, *at);
		*at += schema_element_size(value->element);
		r = r ? r : buffer_append(text, number, strlen(number));
	}
	return r ? r : buffer_append(text, "]", 1);
}

int typed_text_append(const struct schema_value *value, const struct packimg_value *stored,
		      struct buffer *text)
{
	const uint8_t *at = stored->bytes;
	uint64_t count =
		schema_has_rows(value) ? stored->size / schema_row_size(value) : value->shape[0];

	return append_dim(value, count, 0, &at, text);
}

/* Appends a name in quotes. */
static int append_quoted(const char *name, struct buffer *text)
{
	int r = buffer_append(text, "'", 1);

	for (; !r && *name; name++) {
		if (*name == '\'' || *name == '\\')
			r = buffer_append(text, "\\", 1);
		r = r ? r : buffer_append(text, name, 1);
	}
	return r ? r : buffer_append(text, "'", 1);
}

int typed_text_append_classes(const struct packimg *dataset, const struct schema_value *value,
			      const struct packimg_value *stored, struct buffer *text)
{
	const size_t size = schema_element_size(value->element);
	const char *between = "[";
	char number[NUMBER_SHORTEST];
	int r = 0;

	for (size_t at = 0; !r && at + size <= stored->size; at += size) {
		write_number(number, value->element, (const uint8_t *)stored->bytes + at);
		long long class = strtoll(number, NULL, 10);

		if (class < 0)
			continue;
		r = buffer_append(text, between, strlen(between));
		between = ", ";
		if (!r && class < packimg_class_count(dataset))
			r = append_quoted(packimg_class_name(dataset, (uint32_t) class), text);
		else if (!r)
			r = buffer_append(text, number, strlen(number));
	}
	if (!r && between[0] == '[')
		r = buffer_append(text, between, 1);
	return r ? r : buffer_append(text, "]", 1);
}
