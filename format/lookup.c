#include "format/reader.h"

#include "format/base/poison.h"
#include "format/base/system/io.h"
#include "format/codec/side_data.h"
#include "format/join_internal.h"
#include "format/schema_field.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

uint64_t packimg_count(const struct packimg *dataset)
{
	return dataset->sample_count;
}

uint32_t firsts_find(const uint64_t *firsts, uint32_t count, uint64_t index)
{
	uint32_t low = 0, high = count;

	/* Invariant: firsts[low] <= index < firsts[high]. Moving low on equality skips empty parts.
	 */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (firsts[middle] <= index)
			low = middle;
		else
			high = middle;
	}
	return low;
}

const struct shard *shard_of_sample(const struct packimg *dataset, uint64_t index,
				    uint32_t *ret_number)
{
	*ret_number = firsts_find(dataset->firsts, dataset->open_count, index);
	return &dataset->shards[*ret_number];
}

int shard_copy(const struct packimg *dataset, const struct shard *shard, const void *at,
	       void *bytes, size_t size)
{
	if (!dataset->unmapped) {
		copy_once(bytes, at, size);
		return 0;
	}
	uint64_t offset = (uint64_t)((const uint8_t *)at - shard->map);
	return io_read_at(shard->fd, bytes, size, offset) == (int64_t)size ? 0 : -EBADMSG;
}

bool packimg_is_mapped(const struct packimg *dataset)
{
	return !dataset->unmapped;
}

int packimg_read(const struct packimg *dataset, uint64_t index, const void *at, void *bytes,
		 size_t size)
{
	uint32_t number;

	if (index >= dataset->sample_end)
		return -ERANGE;
	if (dataset->join)
		return join_read(dataset, index, at, bytes, size);
	const struct shard *shard = shard_of_sample(dataset, index, &number);
	uintptr_t offset = (uintptr_t)at - (uintptr_t)shard->map;
	if (offset > shard->size || size > shard->size - offset)
		return -ERANGE;
	return shard_copy(dataset, shard, at, bytes, size);
}

static bool range_fits(const struct shard *shard, uint64_t offset, uint64_t size)
{
	return offset % PIMG_ALIGN == 0 && offset >= sizeof(struct pimg_header) &&
	       offset <= shard->size && size <= shard->size - offset &&
	       shard->size - offset - size >= PIMG_TAIL;
}

/*
 * True if a nonempty range inside the file overlaps a section. libpackimg's writers place all
 * samples before all sections, so for their files this takes one comparison.
 */
static bool range_overlaps_sections(const struct shard *shard, uint64_t offset, uint64_t size)
{
	uint64_t end = offset + size;

	if (end <= shard->sections_begin)
		return false;
	for (uint32_t i = 0; i < shard->extent_count; i++)
		if (offset < shard->extents[i].end && shard->extents[i].begin < end)
			return true;
	return false;
}

/* Returns the overlap fault of a record, or NULL. Its ranges must be inside the file. */
static const char *record_overlap(const struct shard *shard, const struct pimg_record *record)
{
	uint64_t data_end = record->data_offset + record->data_size;

	if (range_overlaps_sections(shard, record->data_offset, record->data_size))
		return "data_offset and data_size overlap a section";
	if (record->side_size == 0)
		return NULL;
	if (record->side_offset < data_end &&
	    record->data_offset < record->side_offset + record->side_size)
		return "data and side data overlap";
	if (range_overlaps_sections(shard, record->side_offset, record->side_size))
		return "side_offset and side_size overlap a section";
	return NULL;
}

/* Returns how an image contradicts its value in the schema, or NULL. */
static const char *typed_image_fault(const struct schema_value *value,
				     const struct pimg_record *record)
{
	if (record->width > value->width || record->height > value->height)
		return "width or height is larger than the schema says";
	return schema_image_fault(value, (enum packimg_codec)record->codec, record->channels,
				  record->width, record->height);
}

static const char *codec_fault(const struct shard *shard, const struct pimg_record *record)
{
	switch (record->codec) {
	case PACKIMG_CODEC_JPEG:
		if (record->channels != 1 && record->channels != 3 && record->channels != 4)
			return "channels is not 1, 3 or 4";
		return NULL;
	case PACKIMG_CODEC_RAW:
	case PACKIMG_CODEC_RAW_ZSTD:
		if (record->channels != 1 && record->channels != 3)
			return "channels is not 1 or 3";
		if (record->codec == PACKIMG_CODEC_RAW &&
		    record->data_size !=
			    (uint64_t)record->width * record->height * record->channels)
			return "data_size of a raw sample is not width x height x channels";
		return NULL;
	case PACKIMG_CODEC_RASTER:
		if (!shard->has_images)
			return "codec is raster, but the file lacks the feature `images`";
		if (record->channels < 1 || record->channels > PACKIMG_RASTER_CHANNELS_MAX)
			return "channels is not 1 to 32";
		return NULL;
	default:
		return "codec is unknown";
	}
}

/* Checks the fields that records of the index and of section `images` have in common. */
static const char *stored_fault(const struct shard *shard, const struct pimg_record *record)
{
	if (record->data_size == 0 || !range_fits(shard, record->data_offset, record->data_size))
		return "data_offset and data_size do not fit the file";
	if (record->side_size == 0 ? record->side_offset != 0 || record->side_xxh3 != 0
				   : !range_fits(shard, record->side_offset, record->side_size))
		return "side_offset and side_size do not fit the file";
	const char *overlap = record_overlap(shard, record);
	if (overlap)
		return overlap;
	if (record->width == 0 || record->width > PACKIMG_SIDE_MAX || record->height == 0 ||
	    record->height > PACKIMG_SIDE_MAX)
		return "width or height is out of range";
	if (record->orientation < 1 || record->orientation > 8)
		return "orientation is not 1 to 8";
	if (record->reserved_0 || record->reserved_1)
		return "reserved bytes are not zero";
	return codec_fault(shard, record);
}

/* Returns the value of the schema that the index record stores. */
static const struct schema_value *index_value(const struct packimg *dataset)
{
	return &dataset->schema.values[schema_stored(&dataset->schema, SCHEMA_IN_INDEX, 0)];
}

const char *record_fault(const struct packimg *dataset, const struct shard *shard,
			 const struct pimg_record *record)
{
	const char *fault = stored_fault(shard, record);

	if (fault)
		return fault;
	if (record->label < PACKIMG_LABEL_NONE ||
	    (dataset->class_count > 0 && record->label >= (int64_t)dataset->class_count))
		return "label is not a class";
	if (dataset->has_schema)
		return typed_image_fault(index_value(dataset), record);
	return record->codec == PACKIMG_CODEC_RASTER ? "codec is raster, but there is no schema"
						     : NULL;
}

bool record_is_absent(const struct pimg_record *record)
{
	static const struct pimg_record zero;

	return memcmp(record, &zero, sizeof(zero)) == 0;
}

/* Returns the record that holds a value's pixels. */
static const struct pimg_record *record_of_value(const struct schema_value *value,
						 const struct sample_records *records)
{
	return value->store == SCHEMA_IN_INDEX ? &records->index : &records->images[value->number];
}

const char *image_record_fault(const struct packimg *dataset, const struct shard *shard,
			       const struct sample_records *records, uint32_t image)
{
	const struct pimg_record *record = &records->images[image];
	const struct schema_value
		*values = dataset->schema.values,
		*value = &values[schema_stored(&dataset->schema, SCHEMA_IN_IMAGES, image)];

	if (record_is_absent(record))
		return value->flags & SCHEMA_SPARSE ? NULL : "is missing, but is not sparse";
	const char *fault = stored_fault(shard, record);
	fault = fault ?: typed_image_fault(value, record);
	if (fault)
		return fault;
	if (record->label)
		return "label is not zero";
	if (value->of == SCHEMA_OF_NONE)
		return NULL;
	const struct pimg_record *frame = record_of_value(&values[value->of], records);
	if (frame->width != record->width || frame->height != record->height)
		return "width or height is not that of the image to which it belongs";
	return NULL;
}

const uint8_t *image_record_at(const struct packimg *dataset, const struct shard *shard, uint64_t i,
			       uint32_t image)
{
	return shard->sections[PIMG_SECTION_IMAGES].data +
	       (i * dataset->image_count + image) * sizeof(struct pimg_record);
}

static int index_record_copy(const struct packimg *dataset, const struct shard *shard, uint64_t i,
			     struct pimg_record *record)
{
	return shard_copy(dataset, shard,
			  shard->sections[PIMG_SECTION_INDEX].data + i * sizeof(*record), record,
			  sizeof(*record));
}

static struct packimg_sample sample_of_record(const struct shard *shard, uint32_t number,
					      uint64_t index, const struct pimg_record *record)
{
	return (struct packimg_sample){
		.index = index,
		.data = shard->map + record->data_offset,
		.side = record->side_size ? shard->map + record->side_offset : NULL,
		.data_size = record->data_size,
		.side_size = record->side_size,
		.data_xxh3 = record->data_xxh3,
		.side_xxh3 = record->side_xxh3,
		.width = record->width,
		.height = record->height,
		.label = record->label,
		.codec = record->codec,
		.channels = record->channels,
		.orientation = record->orientation,
		.shard = number,
		.data_offset = record->data_offset,
	};
}

int packimg_sample(const struct packimg *dataset, uint64_t index, struct packimg_sample *ret_sample)
{
	struct pimg_record record;
	uint32_t number;

	if (index >= dataset->sample_end)
		return -ERANGE;
	if (dataset->join)
		return join_sample(dataset, index, ret_sample);
	const struct shard *shard = shard_of_sample(dataset, index, &number);
	int r = index_record_copy(dataset, shard, index - shard->sample_first, &record);
	if (r < 0 || record_fault(dataset, shard, &record))
		return -EBADMSG;
	*ret_sample = sample_of_record(shard, number, index, &record);
	return 0;
}

uint32_t packimg_image_count(const struct packimg *dataset)
{
	return dataset->image_count;
}

/* Copies the record of an image, and that of its frame. */
static int image_records_copy(const struct packimg *dataset, const struct shard *shard, uint64_t i,
			      uint32_t image, struct sample_records *records)
{
	const struct schema_value *values = dataset->schema.values;
	uint16_t of = values[schema_stored(&dataset->schema, SCHEMA_IN_IMAGES, image)].of;
	uint32_t wanted[2] = {image, image};

	if (of != SCHEMA_OF_NONE && values[of].store == SCHEMA_IN_IMAGES)
		wanted[1] = values[of].number;
	int r = index_record_copy(dataset, shard, i, &records->index);
	for (int k = 0; k < 2 && r == 0; k++)
		r = shard_copy(dataset, shard, image_record_at(dataset, shard, i, wanted[k]),
			       &records->images[wanted[k]], sizeof(*records->images));
	return r;
}

int packimg_image(const struct packimg *dataset, uint64_t index, uint32_t image,
		  struct packimg_sample *ret_image)
{
	struct sample_records records;
	uint32_t number;

	if (index >= dataset->sample_end || image >= dataset->image_count)
		return -ERANGE;
	if (dataset->join)
		return join_image(dataset, index, image, ret_image);
	const struct shard *shard = shard_of_sample(dataset, index, &number);
	int r = image_records_copy(dataset, shard, index - shard->sample_first, image, &records);
	if (r < 0 || record_fault(dataset, shard, &records.index) ||
	    image_record_fault(dataset, shard, &records, image))
		return -EBADMSG;
	if (record_is_absent(&records.images[image]))
		return -ENODATA;
	*ret_image = sample_of_record(shard, number, index, &records.images[image]);
	ret_image->label = PACKIMG_LABEL_NONE;
	return 0;
}

int packimg_sample_check(const struct packimg_sample *sample)
{
	poison_expect_none(sample->data, sample->data_size);
	if (XXH3_64bits(sample->data, sample->data_size) != sample->data_xxh3)
		return -EBADMSG;
	if (sample->side)
		poison_expect_none(sample->side, sample->side_size);
	if (sample->side && (XXH3_64bits(sample->side, sample->side_size) != sample->side_xxh3 ||
			     !side_data_is_valid(sample->side, sample->side_size)))
		return -EBADMSG;
	return 0;
}

bool packimg_sample_indexed(const struct packimg_sample *sample)
{
	const uint8_t *index;
	size_t size;

	return sample->codec == PACKIMG_CODEC_JPEG &&
	       side_data_find(sample->side, sample->side_size, PIMG_SIDE_JPEG_INDEX, &index,
			      &size) == 0;
}

bool packimg_sample_unindexed(const struct packimg_sample *sample)
{
	return sample->codec == PACKIMG_CODEC_JPEG && !packimg_sample_indexed(sample);
}

/* Returns the address and size of the string between two offsets of a section of strings. */
static int strings_locate(const struct section_view *section, uint64_t count,
			  const uint64_t range[2], const char **ret_text, uint64_t *ret_size)
{
	uint64_t table_size = (count + 1) * sizeof(uint64_t);
	if (range[0] > range[1] || range[1] > section->size - table_size)
		return -EBADMSG;
	*ret_text = (const char *)section->data + table_size + range[0];
	*ret_size = range[1] - range[0];
	return 0;
}

int strings_get(const struct section_view *section, uint64_t count, uint64_t index,
		const char **ret_text, uint64_t *ret_size)
{
	uint64_t range[2];

	copy_once(range, section->data + index * sizeof(*range), sizeof(range));
	return strings_locate(section, count, range, ret_text, ret_size);
}

int packimg_source(const struct packimg *dataset, uint64_t index, const char **ret_name,
		   size_t *ret_size)
{
	const char *text = "";
	uint64_t size = 0, range[2];
	uint32_t number;

	if (index >= dataset->sample_end)
		return -ERANGE;
	if (dataset->join)
		return join_source(dataset, index, ret_name, ret_size);
	const struct shard *shard = shard_of_sample(dataset, index, &number);
	const struct section_view *section = &shard->sections[PIMG_SECTION_SOURCES];
	if (section->data) {
		const uint8_t *offsets =
			section->data + (index - shard->sample_first) * sizeof(*range);
		int r = shard_copy(dataset, shard, offsets, range, sizeof(range));
		r = r ?: strings_locate(section, shard->sample_count, range, &text, &size);
		if (r < 0 || size > dataset->source_longest)
			return -EBADMSG;
	}
	*ret_name = text;
	*ret_size = size;
	return 0;
}

uint64_t packimg_source_longest(const struct packimg *dataset)
{
	return dataset->source_longest;
}

uint32_t packimg_class_count(const struct packimg *dataset)
{
	return dataset->class_count;
}

const char *packimg_class_name(const struct packimg *dataset, uint32_t class_number)
{
	const char *text = NULL;
	uint64_t size;

	/* The class names were validated when opening. */
	if (class_number < dataset->class_count)
		strings_get(&dataset->classes, dataset->class_count, class_number, &text, &size);
	return text;
}

uint32_t packimg_field_count(const struct packimg *dataset)
{
	return dataset->field_count;
}

int packimg_field(const struct packimg *dataset, uint32_t field, struct packimg_field *ret_field)
{
	if (field >= dataset->field_count)
		return -ERANGE;
	*ret_field = dataset->fields[field];
	return 0;
}

int column_view_get(const struct packimg *dataset, const struct shard *shard, uint32_t field,
		    struct column_view *ret_view)
{
	struct pimg_column column;
	bool is_bytes = dataset->fields[field].type >= PACKIMG_FIELD_BYTES;

	int r = shard_copy(dataset, shard,
			   shard->sections[PIMG_SECTION_COLUMNS].data + field * sizeof(column),
			   &column, sizeof(column));
	if (r < 0 || column.reserved_0)
		return -EBADMSG;
	if (column.offset == 0) {
		if (column.size || column.xxh3)
			return -EBADMSG;
		*ret_view = (struct column_view){0};
		return 0;
	}
	if (column.offset % PIMG_ALIGN != 0 || column.offset < sizeof(struct pimg_header) ||
	    column.offset > shard->size || column.size > shard->size - column.offset ||
	    (column.size > 0 && range_overlaps_sections(shard, column.offset, column.size)))
		return -EBADMSG;
	uint64_t present_size = (shard->sample_count + 63) / 64 * 8;
	uint64_t fixed_size = present_size + (shard->sample_count + is_bytes) * 8;
	if (column.size < fixed_size || (!is_bytes && column.size != fixed_size))
		return -EBADMSG;
	const uint8_t *start = shard->map + column.offset;
	*ret_view = (struct column_view){
		.present = start,
		.values = start + present_size,
		.bytes = start + fixed_size,
		.bytes_size = column.size - fixed_size,
		.size = column.size,
		.xxh3 = column.xxh3,
	};
	return 0;
}

/* Reads the value of a sample that has one, and validates its size and location. */
static int value_get(const struct packimg *dataset, const struct shard *shard,
		     const struct packimg_field *field, const struct column_view *view, uint64_t i,
		     struct packimg_value *value)
{
	const uint8_t *at = (const uint8_t *)view->values + i * 8;
	uint64_t range[2];

	if (field->type == PACKIMG_FIELD_INT64)
		return shard_copy(dataset, shard, at, &value->int64, sizeof(value->int64));
	if (field->type == PACKIMG_FIELD_FLOAT64)
		return shard_copy(dataset, shard, at, &value->float64, sizeof(value->float64));
	int r = shard_copy(dataset, shard, at, range, sizeof(range));
	if (r < 0)
		return r;
	if (range[0] > range[1] || range[1] > view->bytes_size ||
	    range[1] - range[0] > field->longest)
		return -EBADMSG;
	value->bytes = view->bytes + range[0];
	value->size = range[1] - range[0];
	return 0;
}

int packimg_value(const struct packimg *dataset, uint64_t index, uint32_t field,
		  struct packimg_value *ret_value)
{
	struct packimg_value value = {0};
	struct column_view view;
	uint32_t number;
	uint8_t bits = 0;

	if (index >= dataset->sample_end || field >= dataset->field_count)
		return -ERANGE;
	if (dataset->join)
		return join_value(dataset, index, field, ret_value);
	const struct shard *shard = shard_of_sample(dataset, index, &number);
	uint64_t i = index - shard->sample_first;
	int r = column_view_get(dataset, shard, field, &view);
	if (r == 0 && view.present)
		r = shard_copy(dataset, shard, view.present + i / 8, &bits, sizeof(bits));
	value.present = bits >> (i % 8) & 1;
	if (r == 0 && value.present)
		r = value_get(dataset, shard, &dataset->fields[field], &view, i, &value);
	if (r < 0)
		return r;
	const struct schema_value *typed = dataset->field_values[field];
	if (typed && schema_field_fault(typed, &value))
		return -EBADMSG;
	*ret_value = value;
	return 0;
}

const struct schema *packimg_schema(const struct packimg *dataset)
{
	return &dataset->schema;
}

bool packimg_has_schema(const struct packimg *dataset)
{
	return dataset->has_schema;
}

const char *packimg_metadata(const struct packimg *dataset)
{
	return dataset->metadata.data ? (const char *)dataset->metadata.data : "";
}

int packimg_statistics(const struct packimg *dataset, double ret_mean[3], double ret_std[3])
{
	if (!dataset->has_statistics)
		return -ENODATA;
	memcpy(ret_mean, dataset->mean, sizeof(dataset->mean));
	memcpy(ret_std, dataset->std, sizeof(dataset->std));
	return 0;
}

uint32_t packimg_shard_count(const struct packimg *dataset)
{
	return dataset->shard_count;
}

int packimg_shard(const struct packimg *dataset, uint32_t shard, struct packimg_shard *ret_shard)
{
	if (shard >= dataset->open_count)
		return -ERANGE;
	if (dataset->join)
		return join_shard(dataset, shard, ret_shard);
	const struct shard *s = &dataset->shards[shard];
	*ret_shard = (struct packimg_shard){
		.path = dataset->name ? dataset->name : s->path,
		.fd = s->fd,
		.map = s->map,
		.size = s->size,
		.sample_first = s->sample_first,
		.sample_count = s->sample_count,
	};
	return 0;
}

const uint8_t *packimg_uuid(const struct packimg *dataset)
{
	return dataset->uuid;
}
