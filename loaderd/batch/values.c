#include "loaderd/batch/values.h"

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

void values_init(struct value_table *values)
{
	*values = (struct value_table){.count = RING_FIRST_FIELD,
				       .values = {
					       [RING_IMAGES] = {.source = VALUE_IMAGE},
					       [RING_LABELS] = {.source = VALUE_LABEL},
					       [RING_SAMPLES] = {.source = VALUE_SAMPLE},
					       [RING_FLAGS] = {.source = VALUE_FLAGS},
				       }};
}

int values_geometry(const struct value_table *values, uint32_t slots, uint32_t batch_size,
		    uint64_t image_bytes, struct ring_geometry *ret_geometry)
{
	struct ring_geometry geometry;
	ring_geometry_init(&geometry, slots, batch_size, image_bytes);
	for (uint32_t i = RING_FIRST_FIELD; i < values->count; i++) {
		int r = ring_geometry_field(&geometry, values->values[i].type,
					    values->values[i].capacity);
		if (r < 0)
			return r;
	}
	*ret_geometry = geometry;
	return 0;
}

static const char *value_name(const struct value *value, const struct dataset *dataset)
{
	struct packimg_field field;
	if (value->source != VALUE_FIELD)
		return value->source == VALUE_KEY ? "__key__" : "__deferred__";
	return packimg_field(dataset->image, value->field, &field) < 0 ? "" : field.name;
}

/*
 * Makes the bytes to deliver readable, plus the next byte, which shows whether text may be cut
 * before it.
 */
static int fetch_bytes(const struct value_origin *origin, const struct value *value,
		       struct packimg_value *stored)
{
	const struct dataset *dataset = origin->dataset;
	size_t size = stored->size;
	if (dataset->mapped || value->source == VALUE_DEFERRED || size == 0)
		return 0;
	if (size > value->capacity)
		size = value->capacity + (size_t)1;
	uint8_t *bytes = io_buffer_take(origin->bytes, size);
	if (!bytes)
		return -ENOMEM;
	int r = packimg_read(dataset->image, origin->index, stored->bytes, bytes, size);
	stored->bytes = bytes;
	return r;
}

/* Writes a record {uint32 size; data[]}, filled up with zeros. */
static int put_record(const struct value *value, const struct value_origin *origin, bool whole,
		      struct packimg_value *stored, uint8_t *cell, size_t stride, uint8_t *flags)
{
	uint32_t size = (uint32_t)stored->size;
	if (stored->size > value->capacity && whole)
		return -EINVAL;
	int r = fetch_bytes(origin, value, stored);
	if (r < 0)
		return r;
	if (stored->size > value->capacity) {
		size = value->capacity;
		if (value->type == PACKIMG_FIELD_TEXT)
			size = cut_text(stored->bytes, size);
		*flags |= RING_SAMPLE_FIELD_CUT;
	}
	memcpy(cell, &size, sizeof(size));
	memcpy(cell + sizeof(size), stored->bytes, size);
	memset(cell + sizeof(size) + size, 0, stride - sizeof(size) - size);
	return 0;
}

static int find_value(const struct value *value, const struct value_origin *origin,
		      struct packimg_value *ret_stored)
{
	const struct packimg *image = origin->dataset->image;
	const char *name;
	if (value->source == VALUE_DEFERRED) {
		uint32_t size;
		*ret_stored = (struct packimg_value){.present = true};
		ret_stored->bytes = (const void *)pipeline_deferred(origin->scratch, &size);
		ret_stored->size = size;
		return 0;
	}
	if (value->source == VALUE_FIELD)
		return packimg_value(image, origin->index, value->field, ret_stored);
	*ret_stored = (struct packimg_value){0};
	int r = packimg_source(image, origin->index, &name, &ret_stored->size);
	ret_stored->bytes = name;
	ret_stored->present = ret_stored->size > 0;
	return r;
}

static int put_field(const struct value *value, const struct value_origin *origin, bool whole,
		     uint8_t *cell, size_t stride, struct packimg_value *stored, uint8_t *flags)
{
	int r = find_value(value, origin, stored);
	if (r < 0)
		return r;
	if (!stored->present) {
		memset(cell, 0, stride);
		*flags |= RING_SAMPLE_FIELD_MISSING;
		return 0;
	}
	if (value->type == PACKIMG_FIELD_INT64)
		memcpy(cell, &stored->int64, sizeof(stored->int64));
	else if (value->type == PACKIMG_FIELD_FLOAT64)
		memcpy(cell, &stored->float64, sizeof(stored->float64));
	else
		r = put_record(value, origin, whole, stored, cell, stride, flags);
	return r;
}

/* Sets the message for an error of put_field(). */
static void explain(int r, const struct value_origin *origin, const struct value *value,
		    const struct packimg_value *stored, struct packimg_error *error)
{
	const unsigned long long index = origin->index;
	const char *name = value_name(value, origin->dataset);
	if (r == -EINVAL)
		snprintf(error->text, sizeof(error->text),
			 "sample %llu of %.200s: field \"%.100s\" has %zu bytes, and "
			 "field_bytes is %u; ask for more (at most %d), or for cut values",
			 index, origin->dataset->path, name, stored->size, value->capacity,
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

int values_put(const struct value_table *values, const struct value_origin *origin,
	       const struct ring_geometry *layout, struct ring_slot *slot, uint32_t i,
	       struct packimg_error *error)
{
	uint8_t flags = 0, *flags_cell = NULL;
	for (uint32_t v = 0; v < values->count; v++) {
		const struct value *value = &values->values[v];
		const size_t stride = layout->sections[v].stride;
		uint8_t *cell = (uint8_t *)slot + layout->sections[v].offset + i * stride;
		struct packimg_value stored = {0};
		int r = 0;
		switch (value->source) {
		case VALUE_IMAGE:
			break;
		case VALUE_LABEL:
			memcpy(cell, &origin->label, sizeof(origin->label));
			break;
		case VALUE_SAMPLE:
			memcpy(cell, &origin->index, sizeof(origin->index));
			break;
		case VALUE_FLAGS:
			flags_cell = cell;
			break;
		case VALUE_FIELD:
		case VALUE_KEY:
		case VALUE_DEFERRED:
			r = put_field(value, origin, values->whole, cell, stride, &stored, &flags);
		}
		if (r < 0) {
			explain(r, origin, value, &stored, error);
			return r;
		}
	}
	if (flags_cell)
		*flags_cell = flags;
	return 0;
}
