#include "loaderd/batch/field_values.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Returns how many of the first `capacity` bytes form whole UTF-8 characters. If the bytes change
 * meanwhile, the result differs but never exceeds `capacity`.
 */
static uint32_t cut_text(const uint8_t *bytes, uint32_t capacity)
{
	uint32_t size = capacity;
	for (unsigned i = 0; i < 3 && size > 0 && (bytes[size] & 0xc0) == 0x80; i++)
		size--;
	return size;
}

static const char *values_name_of(const struct field_column *column, const struct dataset *dataset)
{
	struct packimg_field field;
	if (column->number >= VALUE_KEY)
		return column->number == VALUE_KEY ? "__key__" : "__deferred__";
	return packimg_field(dataset->image, column->number, &field) < 0 ? "" : field.name;
}

/*
 * Makes the bytes to deliver readable, plus the next byte, which shows whether text may be cut
 * before it.
 */
static int fetch_bytes(const struct value_source *source, const struct field_column *column,
		       struct packimg_value *value)
{
	const struct dataset *dataset = source->dataset;
	size_t size = value->size;
	if (dataset->mapped || column->number == VALUE_DEFERRED || size == 0)
		return 0;
	if (size > column->capacity)
		size = column->capacity + (size_t)1;
	uint8_t *bytes = io_buffer_take(source->bytes, size);
	if (!bytes)
		return -ENOMEM;
	int r = packimg_read(dataset->image, source->index, value->bytes, bytes, size);
	value->bytes = bytes;
	return r;
}

static int put_bytes(const struct field_columns *columns, const struct field_column *column,
		     const struct value_source *source, struct packimg_value *value, uint8_t *cell,
		     size_t stride, uint8_t *flags)
{
	uint32_t size = (uint32_t)value->size;
	if (value->size > column->capacity && columns->whole)
		return -EINVAL;
	int r = fetch_bytes(source, column, value);
	if (r < 0)
		return r;
	if (value->size > column->capacity) {
		size = column->capacity;
		if (column->type == PACKIMG_FIELD_TEXT)
			size = cut_text(value->bytes, size);
		*flags |= RING_SAMPLE_FIELD_CUT;
	}
	memcpy(cell, &size, sizeof(size));
	memcpy(cell + sizeof(size), value->bytes, size);
	memset(cell + sizeof(size) + size, 0, stride - sizeof(size) - size);
	return 0;
}

static int find_value(const struct field_column *column, const struct value_source *source,
		      struct packimg_value *ret_value)
{
	const struct packimg *image = source->dataset->image;
	const char *name;
	if (column->number == VALUE_DEFERRED) {
		uint32_t size;
		*ret_value = (struct packimg_value){.present = true};
		ret_value->bytes = (const void *)pipeline_deferred(source->scratch, &size);
		ret_value->size = size;
		return 0;
	}
	if (column->number != VALUE_KEY)
		return packimg_value(image, source->index, column->number, ret_value);
	*ret_value = (struct packimg_value){0};
	int r = packimg_source(image, source->index, &name, &ret_value->size);
	ret_value->bytes = name;
	ret_value->present = ret_value->size > 0;
	return r;
}

static int put_value(const struct field_columns *columns, const struct field_column *column,
		     const struct value_source *source, uint8_t *cell, size_t stride,
		     struct packimg_value *value, uint8_t *flags)
{
	int r = find_value(column, source, value);
	if (r < 0)
		return r;
	if (!value->present) {
		memset(cell, 0, stride);
		*flags |= RING_SAMPLE_FIELD_MISSING;
		return 0;
	}
	if (column->type == PACKIMG_FIELD_INT64)
		memcpy(cell, &value->int64, sizeof(value->int64));
	else if (column->type == PACKIMG_FIELD_FLOAT64)
		memcpy(cell, &value->float64, sizeof(value->float64));
	else
		r = put_bytes(columns, column, source, value, cell, stride, flags);
	return r;
}

/* Sets the message for an error of put_value(). */
static void explain(int r, const struct value_source *source, const struct field_column *column,
		    const struct packimg_value *value, struct packimg_error *error)
{
	const unsigned long long index = source->index;
	const char *name = values_name_of(column, source->dataset);
	if (r == -EINVAL)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu of %.200s: field \"%.100s\" has %zu bytes, and "
			 "field_bytes is %u; ask for more (at most %d), or for cut values",
			 index, source->dataset->path, name, value->size, column->capacity,
			 RING_FIELD_BYTES_MAX);
	else if (r == -ENOMEM)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: no memory for its value of field \"%.100s\"", index, name);
	else
		snprintf(error->text, sizeof(error->text),
			 "sample %llu: its value of field \"%.100s\" is damaged, or longer "
			 "than the file records",
			 index, name);
}

int field_values_put(const struct field_columns *columns, const struct value_source *source,
		     const struct ring_header *layout, struct ring_slot *slot, uint32_t i,
		     uint8_t *flags, struct packimg_error *error)
{
	for (uint32_t f = 0; f < columns->count; f++) {
		const struct field_column *column = &columns->columns[f];
		size_t stride = layout->fields[f].stride;
		uint8_t *cell = (uint8_t *)slot + layout->fields[f].offset + i * stride;
		struct packimg_value value = {0};
		int r = put_value(columns, column, source, cell, stride, &value, flags);
		if (r < 0) {
			explain(r, source, column, &value, error);
			return r;
		}
	}
	return 0;
}
