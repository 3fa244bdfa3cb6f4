#include "format/base/poison.h"
#include "format/base/text/text.h"
#include "format/error.h"
#include "format/hints.h"
#include "format/join_internal.h"
#include "format/reader.h"
#include "format/schema_field.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

/* Maximum lengths found in the samples of a dataset. */
struct maxima_found {
	uint64_t source_longest;
	uint64_t longest[PACKIMG_FIELDS_MAX];
	struct {
		uint32_t width, height;
	} sizes[1 + SCHEMA_IMAGES_MAX]; /* of the index's images, then of section `images` */
	bool has_raster;
};

static const char *const section_names[] = {
	[PIMG_SECTION_INDEX] = "index",
	[PIMG_SECTION_SOURCES] = "sources",
	[PIMG_SECTION_CLASSES] = "classes",
	[PIMG_SECTION_FIELDS] = "fields",
	[PIMG_SECTION_COLUMNS] = "columns",
	[PIMG_SECTION_METADATA] = "metadata",
	[PIMG_SECTION_FIELD_STATS] = "field statistics",
	[PIMG_SECTION_SCHEMA] = "schema",
	[PIMG_SECTION_IMAGES] = "images",
	[PIMG_SECTION_MEMBERS] = "members",
	[PIMG_SECTION_SIZES] = "sizes",
};

static int check_section(const struct shard *shard, const struct section_view *section,
			 uint32_t type, struct packimg_error *error)
{
	if (section->data)
		poison_expect_none(section->data, section->size);
	if (section->data && XXH3_64bits(section->data, section->size) != section->xxh3)
		return packimg_damaged(
			error,
			"%s: checksum of the %s section does not match; the file is damaged, "
			"copy or convert it again",
			shard->path, section_names[type]);
	return 0;
}

/* Checks the sections of unknown types, of which only the checksums have a meaning. */
static int check_unknown_sections(const struct shard *shard, struct packimg_error *error)
{
	for (uint32_t i = 0; i < shard->extent_count; i++) {
		const struct section_extent *extent = &shard->extents[i];

		if (extent->type <= PIMG_SECTION_KNOWN_MAX)
			continue;
		poison_expect_none(shard->map + extent->begin, extent->end - extent->begin);
		if (XXH3_64bits(shard->map + extent->begin, extent->end - extent->begin) !=
		    extent->xxh3)
			return packimg_damaged(error,
					       "%s: checksum of the section of the unknown type %u "
					       "does not match; "
					       "the file is damaged, copy or convert it again",
					       shard->path, extent->type);
	}
	return 0;
}

static int check_sections(const struct shard *shard, struct packimg_error *error)
{
	int r = 0;

	for (uint32_t type = 1; r == 0 && type <= PIMG_SECTION_KNOWN_MAX; type++)
		r = check_section(shard, &shard->sections[type], type, error);
	return r == 0 ? check_unknown_sections(shard, error) : r;
}

/* number: 0 for a record of the index, else 1 + the image's number */
static void note_record(struct maxima_found *found, const struct pimg_record *record,
			uint32_t number)
{
	if (record->width > found->sizes[number].width)
		found->sizes[number].width = record->width;
	if (record->height > found->sizes[number].height)
		found->sizes[number].height = record->height;
	found->has_raster |= record->codec == PACKIMG_CODEC_RASTER;
}

/* Checks the records in section `images` of sample i of a shard, whose index record is sound. */
static int check_images(const struct packimg *dataset, const struct shard *shard, uint64_t i,
			struct sample_records *records, struct maxima_found *found,
			struct packimg_error *error)
{
	for (uint32_t k = 0; k < dataset->image_count; k++)
		copy_once(&records->images[k], image_record_at(dataset, shard, i, k),
			  sizeof(records->images[k]));
	for (uint32_t k = 0; k < dataset->image_count; k++) {
		const char *fault = image_record_fault(dataset, shard, records, k);

		if (fault)
			return packimg_damaged(error,
					       "%s: sample %" PRIu64
					       ": value '%s': %s; convert the file again",
					       shard->path, shard->sample_first + i,
					       dataset->schema
						       .values[schema_stored(&dataset->schema,
									     SCHEMA_IN_IMAGES, k)]
						       .name,
					       fault);
		note_record(found, &records->images[k], k + 1);
	}
	return 0;
}

static int check_records(const struct packimg *dataset, const struct shard *shard,
			 struct maxima_found *found, struct packimg_error *error)
{
	const uint8_t *records = shard->sections[PIMG_SECTION_INDEX].data;

	for (uint64_t i = 0; i < shard->sample_count; i++) {
		struct sample_records sample;
		copy_once(&sample.index, records + i * sizeof(sample.index), sizeof(sample.index));
		const char *fault = record_fault(dataset, shard, &sample.index);
		if (fault)
			return packimg_damaged(error,
					       "%s: sample %" PRIu64 ": %s; convert the file again",
					       shard->path, shard->sample_first + i, fault);
		note_record(found, &sample.index, 0);
		int r = check_images(dataset, shard, i, &sample, found, error);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Checks the strings of a section: each is inside the section, the first begins right after the
 * offsets, there are no gaps, and the last ends the section. Raises *ret_longest to the size in
 * bytes of the longest string.
 */
static int check_strings(const struct shard *shard, const struct section_view *section,
			 uint32_t type, uint64_t count, uint64_t *ret_longest,
			 struct packimg_error *error)
{
	uint64_t expected = (count + 1) * sizeof(uint64_t), size = 0;
	const char *text;

	if (!section->data)
		return 0;
	for (uint64_t i = 0; i < count; i++) {
		if (strings_get(section, count, i, &text, &size) < 0 ||
		    (uint64_t)((const uint8_t *)text - section->data) != expected)
			return packimg_damaged(
				error, "%s: %s section: offset of entry %" PRIu64 " is damaged",
				shard->path, section_names[type], i);
		expected += size;
		if (size > *ret_longest)
			*ret_longest = size;
		if (type == PIMG_SECTION_CLASSES &&
		    (size == 0 || text[size - 1] != '\0' || !text_is_utf8(text, size - 1)))
			return packimg_damaged(
				error, "%s: name of class %" PRIu64 " is not terminated UTF-8",
				shard->path, i);
	}
	if (expected != section->size)
		return packimg_damaged(error, "%s: %s section is longer than its entries",
				       shard->path, section_names[type]);
	return 0;
}

/* Checks a value, whose location is sound, against the schema. */
static int check_typed(const struct packimg *dataset, const struct shard *shard, uint32_t field,
		       const struct packimg_value *value, uint64_t i, struct packimg_error *error)
{
	const struct schema_value *typed = dataset->field_values[field];

	if (!typed)
		return 0;
	const char *fault = schema_field_fault(typed, value);
	if (!fault && typed->role == SCHEMA_CLASS) {
		struct schema_classes classes = schema_field_classes(typed, value);
		if (classes.min < PACKIMG_LABEL_NONE ||
		    (dataset->class_count > 0 && classes.max >= (int64_t)dataset->class_count))
			fault = "has a number that is not a class";
	}
	if (!fault)
		return 0;
	return packimg_damaged(error,
			       "%s: sample %" PRIu64 ": value '%s' %s; convert the file again",
			       shard->path, shard->sample_first + i, typed->name, fault);
}

/*
 * Checks the value of sample i of a shard. *end is the end of the previous value's bytes, and is
 * updated to the end of this value's.
 */
static int check_value(const struct packimg *dataset, const struct shard *shard, uint32_t number,
		       const struct column_view *view, uint64_t i, uint64_t *end,
		       uint64_t *ret_longest, struct packimg_error *error)
{
	const struct packimg_field *field = &dataset->fields[number];
	struct packimg_value value = {0};
	bool present = view->present[i / 8] >> (i % 8) & 1,
	     is_bytes = field->type >= PACKIMG_FIELD_BYTES;
	uint64_t range[2] = {0};

	copy_once(range, (const uint64_t *)view->values + i, is_bytes ? 16 : 8);
	bool empty = is_bytes ? range[0] == range[1] : range[0] == 0;
	if ((!present && !empty) ||
	    (is_bytes && (range[0] != *end || range[1] < range[0] || range[1] > view->bytes_size)))
		return packimg_damaged(error,
				       "%s: sample %" PRIu64 ": value of field %.100s is damaged",
				       shard->path, shard->sample_first + i, field->name);
	value.present = present;
	memcpy(&value.int64, &range[0], sizeof(value.int64));
	memcpy(&value.float64, &range[0], sizeof(value.float64));
	if (!is_bytes)
		return check_typed(dataset, shard, number, &value, i, error);
	uint64_t size = range[1] - range[0];
	if (size > field->longest)
		return packimg_damaged(error,
				       "%s: sample %" PRIu64 ": value of field %.100s has %" PRIu64
				       " bytes, and the longest is recorded as %" PRIu64
				       "; convert the file again",
				       shard->path, shard->sample_first + i, field->name, size,
				       field->longest);
	if (field->type == PACKIMG_FIELD_TEXT &&
	    !text_is_utf8((const char *)view->bytes + range[0], size))
		return packimg_damaged(error,
				       "%s: sample %" PRIu64 ": value of field %.100s is not UTF-8",
				       shard->path, shard->sample_first + i, field->name);
	if (size > *ret_longest)
		*ret_longest = size;
	*end = range[1];
	value.bytes = view->bytes + range[0];
	value.size = size;
	return check_typed(dataset, shard, number, &value, i, error);
}

static int check_column(const struct packimg *dataset, const struct shard *shard, uint32_t field,
			uint64_t *ret_longest, struct packimg_error *error)
{
	const char *name = dataset->fields[field].name;
	struct column_view view;
	uint64_t end = 0;

	if (column_view_get(dataset, shard, field, &view) < 0)
		return packimg_damaged(error, "%s: column of field %.100s does not fit the file",
				       shard->path, name);
	const struct packimg_value absent = {0};
	if (!view.present)
		return shard->sample_count ? check_typed(dataset, shard, field, &absent, 0, error)
					   : 0;
	poison_expect_none(view.present, view.size);
	if (XXH3_64bits(view.present, view.size) != view.xxh3)
		return packimg_damaged(
			error, "%s: checksum of field %.100s does not match; the file is damaged",
			shard->path, name);
	uint64_t bits = (shard->sample_count + 63) / 64 * 64;
	for (uint64_t i = shard->sample_count; i < bits; i++)
		if (view.present[i / 8] >> (i % 8) & 1)
			return packimg_damaged(
				error, "%s: field %.100s: presence bits past the last sample",
				shard->path, name);
	for (uint64_t i = 0; i < shard->sample_count; i++) {
		int r = check_value(dataset, shard, field, &view, i, &end, ret_longest, error);
		if (r < 0)
			return r;
	}
	if (end != view.bytes_size)
		return packimg_damaged(error, "%s: field %.100s is longer than its values",
				       shard->path, name);
	return 0;
}

/* Returns schema_field_rows() of a value of a sample, whose column is sound. */
static uint64_t rows_of(const struct packimg *dataset, uint64_t index, unsigned value)
{
	const struct schema_value *typed = &dataset->schema.values[value];
	struct packimg_value stored;

	if (packimg_value(dataset, index, typed->number, &stored) < 0)
		return 0;
	return schema_field_rows(&dataset->schema, value, &stored);
}

/* Checks that values that share their rows have equally many. */
static int check_rows(const struct packimg *dataset, const struct shard *shard,
		      struct packimg_error *error)
{
	const struct schema *schema = &dataset->schema;

	for (unsigned k = 0; dataset->has_schema && k < schema->count; k++) {
		int with = schema_rows(schema, k);

		if (with < 0 || with == (int)k)
			continue;
		for (uint64_t i = 0; i < shard->sample_count; i++) {
			uint64_t index = shard->sample_first + i;
			uint64_t rows = rows_of(dataset, index, k),
				 expected = rows_of(dataset, index, (unsigned)with);

			if (rows == UINT64_MAX)
				return packimg_damaged(error,
						       "%s: sample %" PRIu64
						       ": the polygons of value '%s' end within an "
						       "object; convert the file again",
						       shard->path, index, schema->values[k].name);
			if (rows != expected)
				return packimg_damaged(
					error,
					"%s: sample %" PRIu64 ": value '%s' has %" PRIu64
					" %s, but '%s', to whose rows they belong, has %" PRIu64
					"; convert the file again",
					shard->path, index, schema->values[k].name, rows,
					schema_field_rows_name(schema, k),
					schema->values[with].name, expected);
		}
	}
	return 0;
}

static int check_metadata(const struct shard *shard, const struct section_view *metadata,
			  struct packimg_error *error)
{
	const char *text = (const char *)metadata->data, *previous = NULL;
	size_t previous_size = 0;

	if (!metadata->data)
		return 0;
	if (!text_is_utf8(text, metadata->size - 1))
		return packimg_damaged(error, "%s: metadata is not UTF-8", shard->path);
	for (const char *line = text; *line;) {
		const char *end = strchr(line, '\n'), *equal = strchr(line, '=');
		if (!end || !equal || equal > end ||
		    !text_is_key(line, (size_t)(equal - line), PACKIMG_NAME_MAX))
			return packimg_damaged(error,
					       "%s: metadata has a line that is not key=value",
					       shard->path);
		size_t size = (size_t)(equal - line);
		if (previous) {
			int order =
				memcmp(previous, line, previous_size < size ? previous_size : size);
			if (order > 0 || (order == 0 && previous_size >= size))
				return packimg_damaged(
					error, "%s: metadata is not sorted by key at \"%.*s\"",
					shard->path, (int)size, line);
		}
		previous = line;
		previous_size = size;
		line = end + 1;
	}
	return 0;
}

/*
 * Checks the copies, from shard 0, of the data that all shards share. Section checksums cover the
 * other shards.
 */
static int check_dataset_info(const struct packimg *dataset, struct packimg_error *error)
{
	const struct shard *shard = &dataset->shards[0];
	uint64_t longest = 0;

	int r = check_section(shard, &dataset->classes, PIMG_SECTION_CLASSES, error);
	if (r < 0)
		return r;
	r = check_section(shard, &dataset->metadata, PIMG_SECTION_METADATA, error);
	if (r < 0)
		return r;
	r = check_strings(shard, &dataset->classes, PIMG_SECTION_CLASSES, dataset->class_count,
			  &longest, error);
	return r < 0 ? r : check_metadata(shard, &dataset->metadata, error);
}

static int check_shard(const struct packimg *dataset, const struct shard *shard,
		       struct maxima_found *found, struct packimg_error *error)
{
	int r = check_sections(shard, error);
	r = r ?: ranges_check(dataset, shard, error);
	r = r ?: check_records(dataset, shard, found, error);
	r = r ?: hints_check(dataset, shard, error);
	if (r == 0)
		r = check_strings(shard, &shard->sections[PIMG_SECTION_SOURCES],
				  PIMG_SECTION_SOURCES, shard->sample_count, &found->source_longest,
				  error);
	for (uint32_t field = 0; r == 0 && field < dataset->field_count; field++)
		r = check_column(dataset, shard, field, &found->longest[field], error);
	return r == 0 ? check_rows(dataset, shard, error) : r;
}

static int check_longest(const struct packimg *dataset, const char *what, const char *name,
			 uint64_t found, uint64_t recorded, struct packimg_error *error)
{
	if (recorded == PACKIMG_LONGEST_UNKNOWN || found == recorded)
		return 0;
	return packimg_damaged(error,
			       "%s: %s%.100s: the longest is recorded as %" PRIu64
			       " bytes, and has %" PRIu64 "; convert the file again",
			       dataset->shards[0].path, what, name, recorded, found);
}

/* Checks that each recorded maximum length equals the longest value found. */
static int maxima_check(const struct packimg *dataset, const struct maxima_found *found,
			struct packimg_error *error)
{
	int r = check_longest(dataset, "source names", "", found->source_longest,
			      dataset->source_longest, error);

	for (uint32_t i = 0; r == 0 && i < dataset->field_count; i++)
		if (dataset->fields[i].type >= PACKIMG_FIELD_BYTES)
			r = check_longest(dataset, "values of field ", dataset->fields[i].name,
					  found->longest[i], dataset->fields[i].longest, error);
	return r;
}

/* Checks that the largest sizes recorded for an image are those of its largest samples. */
static int check_largest(const struct packimg *dataset, const struct schema_value *image,
			 const struct maxima_found *found, struct packimg_error *error)
{
	uint32_t number = image->store == SCHEMA_IN_INDEX ? 0 : image->number + 1u;
	uint32_t width = found->sizes[number].width, height = found->sizes[number].height;

	if (image->width == width && image->height == height)
		return 0;
	return packimg_damaged(error,
			       "%s: value '%s': the largest is recorded as %u x %u, and has %u x "
			       "%u; convert the file again",
			       dataset->shards[0].path, image->name, image->width, image->height,
			       width, height);
}

static int check_schema(const struct packimg *dataset, const struct maxima_found *found,
			struct packimg_error *error)
{
	bool uses_images = dataset->image_count > 0 || found->has_raster;
	int r = 0;

	if (dataset->shards[0].has_images && !uses_images)
		return packimg_damaged(
			error,
			"%s: has the feature `images` (bit 0 of incompatible), but "
			"neither a section `images` nor a raster; convert the images "
			"again",
			dataset->shards[0].path);
	for (unsigned i = 0; i < dataset->schema.count && dataset->has_schema && r == 0; i++)
		if (schema_has_pixels(&dataset->schema.values[i]))
			r = check_largest(dataset, &dataset->schema.values[i], found, error);
	return r;
}

int packimg_check(const struct packimg *dataset, struct packimg_error *error)
{
	struct maxima_found found = {0};
	int r = 0;

	if (dataset->open_count == 0)
		return packimg_fail(
			error, -ERANGE,
			"the dataset was opened by packimg_open_info(), without samples");
	if (dataset->join)
		return join_check(dataset, error);
	if (dataset->unmapped)
		return packimg_fail(error, -ENOTSUP,
				    "%s: cannot be checked as it is not mapped; open it by "
				    "packimg_open() or packimg_open_fds()",
				    dataset->shards[0].path);
	for (uint32_t i = 0; r == 0 && i < dataset->open_count; i++)
		r = check_shard(dataset, &dataset->shards[i], &found, error);
	r = r ?: check_dataset_info(dataset, error);
	r = r ?: maxima_check(dataset, &found, error);
	return r == 0 ? check_schema(dataset, &found, error) : r;
}
