#include "format/write/writer.h"

#include "format/base/text/text.h"
#include "format/codec/raster.h"
#include "format/codec/side_data.h"
#include "format/error.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

int writer_fail(struct packimg_writer *writer, int r, struct packimg_error *error)
{
	writer->failed = r;
	return packimg_fail(error, r, "%s: cannot write: %s", writer->path, strerror(-r));
}

int writer_check(const struct packimg_writer *writer, struct packimg_error *error)
{
	if (writer->failed)
		return packimg_fail(error, writer->failed, "%s: writing failed before: %s",
				    writer->path, strerror(-writer->failed));
	if (writer->finished)
		return packimg_fail(error, -EINVAL, "%s: already finished", writer->path);
	return 0;
}

int packimg_writer_new(const char *path, const struct packimg_writer_options *options,
		       struct packimg_writer **ret_writer, struct packimg_error *error)
{
	struct shard_name name;
	int r = -ENOMEM;

	struct packimg_writer *writer = calloc(1, sizeof(*writer));
	if (!writer)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", path);
	writer->output.fd = -1;
	writer->temp_files.lock_fd = -1;
	writer->label_max = PACKIMG_LABEL_NONE;
	writer->class_max = PACKIMG_LABEL_NONE;
	spool_init(&writer->spool, writer->temp_files.directory);
	writer->buffer = malloc(OUTPUT_BUFFER_SIZE);
	writer->columns = calloc(PACKIMG_FIELDS_MAX, sizeof(*writer->columns));
	writer->identity = XXH3_createState();
	if (!writer->buffer || !writer->columns || !writer->identity)
		goto fail;
	XXH3_128bits_reset(writer->identity);
	if (options) {
		writer->shard_size = options->shard_size;
		writer->alone = options->alone;
		writer->has_uuid = options->uuid;
		if (options->uuid)
			memcpy(writer->uuid, options->uuid, sizeof(writer->uuid));
	}
	r = temp_files_init(&writer->temp_files, path);
	if (r < 0)
		goto fail;
	if (!writer->alone)
		temp_files_remove_stale(&writer->temp_files);
	strcpy(writer->path, path);
	if (shard_name_parse(path, &name) == 0 &&
	    (name.shard_count > 1 || writer->shard_size > 0)) {
		packimg_say(error, "%s: a dataset must not be named like a shard of a set", path);
		packimg_writer_free(writer);
		return -EINVAL;
	}
	r = shard_begin(writer);
	if (r < 0)
		goto fail;
	*ret_writer = writer;
	return 0;
fail:
	packimg_writer_free(writer);
	return packimg_fail(error, r, "%s: cannot create: %s", path, strerror(-r));
}

int packimg_writer_field(struct packimg_writer *writer, const char *name,
			 enum packimg_field_type type, uint32_t *ret_field,
			 struct packimg_error *error)
{
	size_t size = strlen(name);

	if (size == 0 || size > PACKIMG_NAME_MAX || !text_is_utf8(name, size))
		return packimg_fail(error, -EINVAL,
				    "%s: a field's name must be UTF-8 of 1 to %d bytes",
				    writer->path, PACKIMG_NAME_MAX);
	if (type < PACKIMG_FIELD_INT64 || type > PACKIMG_FIELD_TEXT)
		return packimg_fail(error, -EINVAL, "%s: field %.100s: type %d is unknown",
				    writer->path, name, (int)type);
	for (uint32_t i = 0; i < writer->column_count; i++) {
		if (strcmp(writer->columns[i].name, name) != 0)
			continue;
		if (writer->columns[i].type != type)
			return packimg_fail(error, -EEXIST,
					    "%s: field %.100s exists with another type",
					    writer->path, name);
		*ret_field = i;
		return 0;
	}
	if (writer->column_count == PACKIMG_FIELDS_MAX)
		return packimg_fail(error, -E2BIG,
				    "%s: field %.100s: a dataset has at most %d fields",
				    writer->path, name, PACKIMG_FIELDS_MAX);
	if (column_init(&writer->columns[writer->column_count], name, type) < 0)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", writer->path);
	*ret_field = writer->column_count++;
	return 0;
}

static const char *raster_item_fault(const struct packimg_item *item, struct packimg_error *room)
{
	bool turned = item->orientation >= 5;
	struct raster_head head;

	if (item->channels < 1 || item->channels > PACKIMG_RASTER_CHANNELS_MAX)
		return "channels must be 1 to 32";
	return raster_head_read(item->data, item->data_size, turned ? item->height : item->width,
				turned ? item->width : item->height, item->channels, &head,
				room) < 0
		       ? room->text
		       : NULL;
}

const char *writer_item_fault(const struct packimg_item *item, struct packimg_error *room)
{
	if (!item->data || item->data_size == 0 || item->data_size > UINT32_MAX)
		return "data_size must be 1 to 4294967295 bytes";
	if (item->side_size > UINT32_MAX || (item->side_size > 0 && !item->side))
		return "side_size must be at most 4294967295 bytes";
	if (!side_data_is_valid(item->side, item->side_size))
		return "side data does not consist of whole items (SPEC.md, Side data)";
	if (item->width == 0 || item->width > PACKIMG_SIDE_MAX || item->height == 0 ||
	    item->height > PACKIMG_SIDE_MAX)
		return "width and height must be 1 to 65535";
	if (item->label < PACKIMG_LABEL_NONE || item->label >= PACKIMG_CLASSES_MAX)
		return "label is out of range";
	if (item->orientation < 1 || item->orientation > 8)
		return "orientation must be 1 to 8";
	if (item->source_size > PACKIMG_SOURCE_MAX || (item->source_size > 0 && !item->source))
		return "source must be at most 65535 bytes";
	uint64_t pixels_size = (uint64_t)item->width * item->height * item->channels;
	switch (item->codec) {
	case PACKIMG_CODEC_JPEG:
		if (item->channels != 1 && item->channels != 3 && item->channels != 4)
			return "channels must be 1, 3 or 4";
		return NULL;
	case PACKIMG_CODEC_RAW:
		if (item->channels != 1 && item->channels != 3)
			return "channels must be 1 or 3";
		return item->data_size != pixels_size
			       ? "data_size of a raw sample must be width x height x channels"
			       : NULL;
	case PACKIMG_CODEC_RAW_ZSTD:
		if (item->channels != 1 && item->channels != 3)
			return "channels must be 1 or 3";
		return ZSTD_getFrameContentSize(item->data, item->data_size) != pixels_size
			       ? "the zstd frame must declare width x height x channels bytes"
			       : NULL;
	case PACKIMG_CODEC_RASTER:
		return raster_item_fault(item, room);
	default:
		return "codec is unknown";
	}
}

static int writer_put_source(struct packimg_writer *writer, const struct packimg_item *item)
{
	uint64_t offset = writer->sources.size;

	int r = spool_append(&writer->spool, &writer->source_offsets, &offset, sizeof(offset));
	if (r < 0 || item->source_size == 0)
		return r;
	writer->has_sources = true;
	if (item->source_size > writer->source_longest)
		writer->source_longest = item->source_size;
	return spool_append(&writer->spool, &writer->sources, item->source, item->source_size);
}

/*
 * Hashes the content of a sample for the UUID, but not its location or side data, which carries no
 * further information.
 */
static void writer_hash_item(struct packimg_writer *writer, const struct packimg_item *item,
			     const struct pimg_record *record)
{
	const uint64_t identity[] = {
		record->data_xxh3,   record->data_size,       record->width,
		record->height,      record->codec,           record->channels,
		record->orientation, (uint32_t)record->label, item->source_size,
	};

	XXH3_128bits_update(writer->identity, identity, sizeof(identity));
	if (item->source_size > 0)
		XXH3_128bits_update(writer->identity, item->source, item->source_size);
}

/*
 * Hashes each column separately, because the fields of a sample may be set in any order. The values
 * of one field are set in sample order.
 */
static void writer_hash_value(const struct packimg_writer *writer, struct column *column,
			      const struct packimg_value *value)
{
	const bool is_bytes = column->type >= PACKIMG_FIELD_BYTES;
	const void *number =
		column->type == PACKIMG_FIELD_INT64 ? (const void *)&value->int64 : &value->float64;
	uint64_t identity[] = {column->identity, writer->sample_first + writer->sample_count - 1,
			       is_bytes ? value->size : 0};

	column->identity = XXH3_64bits_withSeed(is_bytes ? value->bytes : number,
						is_bytes ? value->size : sizeof(uint64_t),
						XXH3_64bits(identity, sizeof(identity)));
}

int writer_put_stored(struct packimg_writer *writer, const struct packimg_item *item,
		      struct pimg_record *ret_record)
{
	struct pimg_record record = {
		.data_xxh3 = XXH3_64bits(item->data, item->data_size),
		.data_size = (uint32_t)item->data_size,
		.width = item->width,
		.height = item->height,
		.codec = (uint8_t)item->codec,
		.channels = item->channels,
		.orientation = item->orientation,
	};

	/* Place side data directly after its sample, so that one read fetches both. */
	int r = output_put(&writer->output, item->data, item->data_size, &record.data_offset);
	if (r < 0)
		return r;
	if (item->side_size > 0) {
		record.side_size = (uint32_t)item->side_size;
		record.side_xxh3 = XXH3_64bits(item->side, item->side_size);
		r = output_put(&writer->output, item->side, item->side_size, &record.side_offset);
		if (r < 0)
			return r;
	}
	writer->has_raster |= item->codec == PACKIMG_CODEC_RASTER;
	*ret_record = record;
	return 0;
}

static int writer_put_item(struct packimg_writer *writer, const struct packimg_item *item)
{
	struct pimg_record record;

	int r = writer_put_stored(writer, item, &record);
	if (r < 0)
		return r;
	record.label = item->label;
	writer_hash_item(writer, item, &record);
	writer_schema_note_item(writer, &record);
	r = spool_append(&writer->spool, &writer->index, &record, sizeof(record));
	return r < 0 ? r : writer_put_source(writer, item);
}

/* Checks an item before the writer changes anything. Sets whether it begins another shard. */
static int writer_check_item(const struct packimg_writer *writer, const struct packimg_item *item,
			     bool *ret_next_shard, struct packimg_error *error)
{
	struct packimg_error room;
	const char *fault = writer_item_fault(item, &room);

	fault = fault ?: writer_schema_item_fault(writer, item);
	if (fault)
		return packimg_fail(
			error, -EINVAL, "%s: sample %" PRIu64 " (%.*s): %s", writer->path,
			writer->sample_first + writer->sample_count,
			item->source ? (int)(item->source_size < 200 ? item->source_size : 200) : 0,
			item->source ? item->source : "", fault);
	bool next_shard =
		writer->shard_size > 0 && writer->sample_count > 0 &&
		writer->output.offset + item->data_size + item->side_size > writer->shard_size;
	if (next_shard && writer->shard_count + 1 == PACKIMG_SHARDS_MAX)
		return packimg_fail(error, -E2BIG,
				    "%s: more than %d shards; choose a larger shard size",
				    writer->path, PACKIMG_SHARDS_MAX);
	*ret_next_shard = next_shard;
	return 0;
}

int packimg_writer_add(struct packimg_writer *writer, const struct packimg_item *item,
		       struct packimg_error *error)
{
	bool next_shard = false;
	int r = writer_check(writer, error);

	r = r ?: writer_check_item(writer, item, &next_shard, error);
	r = r ?: writer_schema_end_sample(writer, error);
	if (r < 0)
		return r;
	if (next_shard) {
		r = shard_end(writer);
		r = r ?: shard_begin(writer);
	}
	r = r ?: writer_put_item(writer, item);
	if (r < 0)
		return writer_fail(writer, r, error);
	writer->sample_count++;
	if (item->label > writer->label_max)
		writer->label_max = item->label;
	return 0;
}

int packimg_writer_value(struct packimg_writer *writer, uint32_t field,
			 const struct packimg_value *value, struct packimg_error *error)
{
	int r = writer_check(writer, error);
	if (r < 0)
		return r;
	if (field >= writer->column_count || writer->sample_count == 0)
		return packimg_fail(
			error, -EINVAL, "%s: value of field %" PRIu32 ": there is no such %s",
			writer->path, field, field >= writer->column_count ? "field" : "sample");
	if (!value->present)
		return 0;
	struct column *column = &writer->columns[field];
	if (column->type >= PACKIMG_FIELD_JSON && !text_is_utf8(value->bytes, value->size))
		return packimg_fail(error, -EINVAL,
				    "%s: sample %" PRIu64 ": field %.100s is not UTF-8",
				    writer->path, writer->sample_first + writer->sample_count - 1,
				    column->name);
	r = writer_schema_check_value(writer, field, value, error);
	if (r < 0)
		return r;
	r = column_set(column, &writer->spool, writer->sample_count - 1, value);
	if (r == -EEXIST)
		return packimg_fail(error, r, "%s: sample %" PRIu64 ": field %.100s is set twice",
				    writer->path, writer->sample_first + writer->sample_count - 1,
				    column->name);
	if (r < 0)
		return writer_fail(writer, r, error);
	writer_hash_value(writer, column, value);
	writer_schema_note_value(writer, field, value);
	return 0;
}

int packimg_writer_classes(struct packimg_writer *writer, const char *const *names,
			   uint32_t class_count, struct packimg_error *error)
{
	int r = writer_check(writer, error);
	return r < 0 ? r : dataset_info_classes(&writer->info, names, class_count, error);
}

int packimg_writer_metadata(struct packimg_writer *writer, const char *key, const char *value,
			    struct packimg_error *error)
{
	int r = writer_check(writer, error);
	return r < 0 ? r : dataset_info_metadata(&writer->info, key, value, error);
}

int packimg_writer_statistics(struct packimg_writer *writer, const double mean[3],
			      const double std[3])
{
	for (int i = 0; i < 3; i++)
		if (!isfinite(mean[i]) || !isfinite(std[i]))
			return -EINVAL;
	writer->info.has_statistics = true;
	memcpy(writer->info.mean, mean, sizeof(writer->info.mean));
	memcpy(writer->info.std, std, sizeof(writer->info.std));
	return 0;
}

uint64_t packimg_writer_bytes(const struct packimg_writer *writer)
{
	return writer->shards_size + writer->output.offset;
}

void packimg_writer_free(struct packimg_writer *writer)
{
	if (!writer)
		return;
	output_deinit(&writer->output);
	temp_files_deinit(&writer->temp_files);
	spool_deinit(&writer->spool);
	spool_stream_deinit(&writer->index);
	spool_stream_deinit(&writer->images);
	spool_stream_deinit(&writer->source_offsets);
	spool_stream_deinit(&writer->sources);
	for (uint32_t i = 0; i < writer->column_count; i++)
		column_deinit(&writer->columns[i]);
	for (uint32_t i = 0; i < writer->shard_count; i++)
		free(writer->shards[i].columns);
	free(writer->shards);
	free(writer->columns);
	free(writer->schema);
	XXH3_freeState(writer->identity);
	free(writer->buffer);
	dataset_info_deinit(&writer->info);
	free(writer);
}
