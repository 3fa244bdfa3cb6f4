/* The writer's part for datasets with a schema: declares fields, checks values and samples. */
#include "format/error.h"
#include "format/schema_field.h"
#include "format/write/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns the value that a field stores, or -1. */
static int value_of_field(const struct packimg_writer *writer, uint32_t field)
{
	return writer->schema ? schema_stored(writer->schema, SCHEMA_IN_COLUMN, field) : -1;
}

static int declare_fields(struct packimg_writer *writer, const struct schema *schema,
			  struct packimg_error *error)
{
	for (unsigned i = 0; i < schema->count; i++) {
		const struct schema_value *value = &schema->values[i];
		uint32_t field;

		if (value->store != SCHEMA_IN_COLUMN)
			continue;
		int r = packimg_writer_field(writer, value->name, schema_field_type(value), &field,
					     error);
		if (r < 0)
			return r;
	}
	return 0;
}

int packimg_writer_schema(struct packimg_writer *writer, const char *text,
			  struct packimg_error *error)
{
	struct schema_error fault;
	struct schema schema;

	if (writer->schema || writer->column_count || writer->sample_count || writer->shard_count)
		return packimg_fail(error, -EINVAL,
				    "%s: the schema must be set once, before fields and samples",
				    writer->path);
	int r = schema_parse(text, strlen(text), &schema, &fault);
	if (r < 0)
		return packimg_fail(error, -EINVAL, "%s: schema: %s", writer->path, fault.text);
	r = declare_fields(writer, &schema, error);
	if (r < 0)
		return r;
	writer->schema = malloc(sizeof(schema));
	if (!writer->schema)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", writer->path);
	*writer->schema = schema;
	writer->image_count = schema_image_count(&schema);
	return 0;
}

static int fail_value(const struct packimg_writer *writer, const struct schema_value *value,
		      const char *fault, struct packimg_error *error)
{
	return packimg_fail(error, -EINVAL, "%s: sample %" PRIu64 ": value '%s' %s", writer->path,
			    writer->sample_first + writer->sample_count - 1, value->name, fault);
}

int writer_schema_check_value(struct packimg_writer *writer, uint32_t field,
			      const struct packimg_value *stored, struct packimg_error *error)
{
	int index = value_of_field(writer, field);

	if (index < 0)
		return 0;
	const struct schema_value *value = &writer->schema->values[index];
	const char *fault = schema_field_fault(value, stored);
	if (fault)
		return fail_value(writer, value, fault, error);
	if (schema_field_rows(writer->schema, (unsigned)index, stored) == UINT64_MAX)
		return fail_value(writer, value,
				  "ends within an object: a row of not-a-numbers ends each "
				  "polygon, and one more each object",
				  error);
	if (value->role == SCHEMA_CLASS &&
	    schema_field_classes(value, stored).min < PACKIMG_LABEL_NONE)
		return fail_value(writer, value, "has a number below -1, which is no class", error);
	return 0;
}

void writer_schema_note_value(struct packimg_writer *writer, uint32_t field,
			      const struct packimg_value *stored)
{
	int index = value_of_field(writer, field);

	if (index < 0)
		return;
	const struct schema_value *value = &writer->schema->values[index];
	writer->rows[index] = schema_field_rows(writer->schema, (unsigned)index, stored);
	if (value->role == SCHEMA_CLASS) {
		int64_t class_max = schema_field_classes(value, stored).max;
		if (class_max > writer->class_max)
			writer->class_max = class_max;
	}
}

/*
 * Checks that the last sample has the value, and as many rows as the value to whose rows it
 * belongs.
 */
static int check_value_of_last(const struct packimg_writer *writer, unsigned index,
			       struct packimg_error *error)
{
	const struct schema *schema = writer->schema;
	const struct schema_value *value = &schema->values[index];
	int with = schema_rows(schema, index);

	if (value->store != SCHEMA_IN_COLUMN)
		return 0;
	if (!(value->flags & SCHEMA_SPARSE) &&
	    writer->columns[value->number].filled < writer->sample_count)
		return fail_value(writer, value,
				  "is missing; set it, or declare it sparse in the schema", error);
	if (with >= 0 && writer->rows[index] != writer->rows[with])
		return packimg_fail(error, -EINVAL,
				    "%s: sample %" PRIu64 ": value '%s' has %" PRIu64
				    " %s, but '%s', to whose rows they belong, has %" PRIu64,
				    writer->path, writer->sample_first + writer->sample_count - 1,
				    value->name, writer->rows[index],
				    schema_field_rows_name(schema, index),
				    schema->values[with].name, writer->rows[with]);
	return 0;
}

static const struct pimg_record *record_of_value(const struct packimg_writer *writer,
						 const struct schema_value *value)
{
	return value->store == SCHEMA_IN_INDEX ? &writer->last.index
					       : &writer->last.images[value->number];
}

/* Checks that the last sample has the image, with the size of the image to which it belongs. */
static int check_image_of_last(const struct packimg_writer *writer, unsigned index,
			       struct packimg_error *error)
{
	const struct schema_value *value = &writer->schema->values[index];

	if (!schema_has_pixels(value))
		return 0;
	const struct pimg_record *record = record_of_value(writer, value);
	if (record_is_absent(record))
		return value->flags & SCHEMA_SPARSE
			       ? 0
			       : fail_value(
					 writer, value,
					 "is missing; add it, or declare it sparse in the schema",
					 error);
	if (value->of == SCHEMA_OF_NONE)
		return 0;
	const struct schema_value *of = &writer->schema->values[value->of];
	const struct pimg_record *frame = record_of_value(writer, of);
	if (frame->width == record->width && frame->height == record->height)
		return 0;
	return packimg_fail(error, -EINVAL,
			    "%s: sample %" PRIu64 ": value '%s' is %u x %u, and '%s', to which it "
			    "belongs, is %u x %u, both upright; give them one size and the right "
			    "orientation",
			    writer->path, writer->sample_first + writer->sample_count - 1,
			    value->name, record->width, record->height, of->name, frame->width,
			    frame->height);
}

static void hash_images(const struct packimg_writer *writer)
{
	for (uint32_t i = 0; i < writer->image_count; i++) {
		const struct pimg_record *record = &writer->last.images[i];
		const uint64_t identity[] = {
			record->data_xxh3, record->data_size, record->width,       record->height,
			record->codec,     record->channels,  record->orientation,
		};

		XXH3_128bits_update(writer->identity, identity, sizeof(identity));
	}
}

int writer_schema_end_sample(struct packimg_writer *writer, struct packimg_error *error)
{
	int r = 0;

	if (!writer->sample_open)
		return 0;
	for (unsigned i = 0; i < writer->schema->count && r == 0; i++) {
		r = check_value_of_last(writer, i, error);
		r = r ?: check_image_of_last(writer, i, error);
	}
	if (r < 0)
		return r;
	hash_images(writer);
	r = spool_append(&writer->spool, &writer->images, writer->last.images,
			 writer->image_count * sizeof(*writer->last.images));
	if (r < 0)
		return writer_fail(writer, r, error);
	writer->sample_open = false;
	return 0;
}

/* Returns how an item contradicts its value in the schema, or NULL. */
static const char *typed_item_fault(const struct schema_value *value,
				    const struct packimg_item *item)
{
	const char *fault =
		schema_image_fault(value, item->codec, item->channels, item->width, item->height);

	if (fault)
		return fault;
	if (item->codec == PACKIMG_CODEC_RASTER && item->data[1] != value->element)
		return "the element of the raster is not that of the schema";
	return NULL;
}

const char *writer_schema_item_fault(const struct packimg_writer *writer,
				     const struct packimg_item *item)
{
	if (!writer->schema)
		return item->codec == PACKIMG_CODEC_RASTER
			       ? "codec raster needs a schema; set one first"
			       : NULL;
	return typed_item_fault(
		&writer->schema->values[schema_stored(writer->schema, SCHEMA_IN_INDEX, 0)], item);
}

static void raise_size(struct packimg_writer *writer, enum schema_store store, unsigned number,
		       const struct pimg_record *record)
{
	struct schema_value *value =
		&writer->schema->values[schema_stored(writer->schema, store, number)];

	value->width = record->width > value->width ? record->width : value->width;
	value->height = record->height > value->height ? record->height : value->height;
}

void writer_schema_note_item(struct packimg_writer *writer, const struct pimg_record *record)
{
	if (!writer->schema)
		return;
	raise_size(writer, SCHEMA_IN_INDEX, 0, record);
	memset(writer->rows, 0, sizeof(writer->rows));
	writer->last = (struct sample_records){.index = *record};
	writer->sample_open = true;
}

/* Checks that the item can be image `image` of the last sample. */
static int check_image(const struct packimg_writer *writer, uint32_t image,
		       const struct packimg_item *item, struct packimg_error *error)
{
	if (!writer->sample_open || image >= writer->image_count)
		return packimg_fail(
			error, -EINVAL, "%s: image %" PRIu32 ": there is no such %s", writer->path,
			image, image >= writer->image_count ? "image in the schema" : "sample");
	const struct schema_value *value =
		&writer->schema->values[schema_stored(writer->schema, SCHEMA_IN_IMAGES, image)];
	struct packimg_error room;
	const char *fault = writer_item_fault(item, &room);
	fault = fault ?: typed_item_fault(value, item);
	if (fault)
		return packimg_fail(error, -EINVAL, "%s: sample %" PRIu64 ": value '%s': %s",
				    writer->path, writer->sample_first + writer->sample_count - 1,
				    value->name, fault);
	if (!record_is_absent(&writer->last.images[image]))
		return packimg_fail(
			error, -EEXIST, "%s: sample %" PRIu64 ": value '%s' is added twice",
			writer->path, writer->sample_first + writer->sample_count - 1, value->name);
	return 0;
}

int packimg_writer_image(struct packimg_writer *writer, uint32_t image,
			 const struct packimg_item *item, struct packimg_error *error)
{
	struct packimg_item stored = *item;

	stored.label = PACKIMG_LABEL_NONE;
	stored.source = NULL;
	stored.source_size = 0;
	int r = writer_check(writer, error);
	r = r ?: check_image(writer, image, &stored, error);
	if (r < 0)
		return r;
	r = writer_put_stored(writer, &stored, &writer->last.images[image]);
	if (r < 0)
		return writer_fail(writer, r, error);
	raise_size(writer, SCHEMA_IN_IMAGES, image, &writer->last.images[image]);
	return 0;
}

int writer_schema_pack(struct packimg_writer *writer, void **ret_bytes, size_t *ret_size)
{
	if (!writer->schema)
		return 0;
	struct schema *schema = writer->schema;
	uint8_t *bytes = malloc(SCHEMA_SIZE_MAX);

	if (!bytes)
		return -ENOMEM;
	for (unsigned i = 0; i < schema->count; i++) {
		struct schema_value *value = &schema->values[i];

		if (value->store == SCHEMA_IN_SOURCE)
			value->longest = writer->source_longest;
		else if (value->store == SCHEMA_IN_COLUMN &&
			 (schema_has_rows(value) || value->element == SCHEMA_NO_ELEMENT))
			value->longest =
				writer->columns[value->number].longest / schema_row_size(value);
	}
	*ret_bytes = bytes;
	*ret_size = schema_pack(schema, bytes);
	return 0;
}

int writer_schema_hash(const struct packimg_writer *writer, XXH3_state_t *state)
{
	if (!writer->schema)
		return 0;
	char *text = malloc(SCHEMA_TEXT_MAX);
	if (!text)
		return -ENOMEM;
	XXH3_128bits_update(state, text, schema_print(writer->schema, text, SCHEMA_TEXT_MAX));
	free(text);
	return 0;
}
