#include "format/base/system/io.h"
#include "format/base/uuid.h"
#include "format/error.h"
#include "format/write/hint_sections.h"
#include "format/write/publish.h"
#include "format/write/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* A section in memory, which has the same bytes in every shard. */
struct blob {
	void *data; /* NULL if absent */
	size_t size;
};

/* Section types, in the order of writing. */
static const uint32_t blob_types[] = {PIMG_SECTION_CLASSES, PIMG_SECTION_FIELDS,
				      PIMG_SECTION_METADATA, PIMG_SECTION_FIELD_STATS,
				      PIMG_SECTION_SCHEMA};
enum { BLOB_CLASSES, BLOB_FIELDS, BLOB_METADATA, BLOB_FIELD_STATS, BLOB_SCHEMA, BLOB_COUNT };

int shard_begin(struct packimg_writer *writer)
{
	return temp_files_create(&writer->temp_files, writer->buffer, &writer->output);
}

/* Writes the given streams as one section. */
static int section_from_streams(struct packimg_writer *writer, struct shard_done *shard,
				uint32_t type, const struct spool_stream *const streams[],
				size_t count)
{
	struct pimg_section *section = &shard->sections[shard->section_count];

	int r = spool_write(&writer->spool, streams, count, &writer->output, section);
	section->type = type;
	shard->section_count += r == 0;
	return r;
}

static int shard_write_sections(struct packimg_writer *writer, struct shard_done *shard)
{
	const struct spool_stream *const index[] = {&writer->index},
					 *const sources[] = {&writer->source_offsets,
							     &writer->sources};
	uint64_t end = writer->sources.size;

	int r = section_from_streams(writer, shard, PIMG_SECTION_INDEX, index, 1);
	if (r < 0)
		return r;
	if (writer->image_count > 0) {
		const struct spool_stream *const images[] = {&writer->images};
		r = section_from_streams(writer, shard, PIMG_SECTION_IMAGES, images, 1);
		if (r < 0)
			return r;
	}
	if (writer->has_sources) {
		r = spool_append(&writer->spool, &writer->source_offsets, &end, sizeof(end));
		if (r < 0)
			return r;
		r = section_from_streams(writer, shard, PIMG_SECTION_SOURCES, sources, 2);
		if (r < 0)
			return r;
	}
	for (uint32_t i = 0; i < writer->column_count; i++) {
		r = column_finish(&writer->columns[i], &writer->spool, writer->sample_count,
				  &writer->output, &shard->columns[i]);
		if (r < 0)
			return r;
	}
	return output_flush(&writer->output);
}

static int shards_reserve(struct packimg_writer *writer)
{
	/* The capacity is a power of two; grow when it is full. */
	if ((writer->shard_count & (writer->shard_count - 1)) != 0)
		return 0;
	size_t count = writer->shard_count ? (size_t)writer->shard_count * 2 : 1;
	struct shard_done *shards = realloc(writer->shards, count * sizeof(*shards));
	if (!shards)
		return -ENOMEM;
	writer->shards = shards;
	return 0;
}

int shard_end(struct packimg_writer *writer)
{
	int r = shards_reserve(writer);
	if (r < 0)
		return r;
	struct shard_done *shard = &writer->shards[writer->shard_count];
	*shard = (struct shard_done){
		.sample_first = writer->sample_first,
		.sample_count = writer->sample_count,
		.columns = calloc(writer->column_count + 1, sizeof(*shard->columns)),
		.column_count = writer->column_count,
	};
	if (!shard->columns)
		return -ENOMEM;
	writer->shard_count++;
	r = shard_write_sections(writer, shard);
	if (r < 0)
		return r;
	shard->size = writer->output.offset;
	writer->shards_size += shard->size;
	sync_file_range(writer->output.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	output_deinit(&writer->output);
	writer->output.offset = 0;
	spool_stream_reset(&writer->index);
	spool_stream_reset(&writer->images);
	spool_stream_reset(&writer->source_offsets);
	spool_stream_reset(&writer->sources);
	writer->spool.end = 0;
	writer->has_sources = false;
	writer->sample_first += writer->sample_count;
	writer->sample_count = 0;
	return 0;
}

/* Returns the type to store: text is stored as bytes whose statistics have its kind. */
static uint32_t stored_type(const struct column *column)
{
	return column->type == PACKIMG_FIELD_TEXT ? PACKIMG_FIELD_BYTES : column->type;
}

/* Builds the fields section: the entries, then all names. */
static int writer_build_fields(const struct packimg_writer *writer, struct blob *blob)
{
	size_t size = writer->column_count * sizeof(struct pimg_field), offset = size;

	if (writer->column_count == 0)
		return 0;
	for (uint32_t i = 0; i < writer->column_count; i++)
		size += strlen(writer->columns[i].name);
	uint8_t *data = malloc(size);
	if (!data)
		return -ENOMEM;
	for (uint32_t i = 0; i < writer->column_count; i++) {
		struct pimg_field field = {
			.type = stored_type(&writer->columns[i]),
			.name_size = (uint32_t)strlen(writer->columns[i].name),
			.name_offset = offset,
		};
		memcpy(data + i * sizeof(field), &field, sizeof(field));
		memcpy(data + offset, writer->columns[i].name, field.name_size);
		offset += field.name_size;
	}
	*blob = (struct blob){data, size};
	return 0;
}

static int writer_build_field_stats(const struct packimg_writer *writer, struct blob *blob)
{
	size_t count = writer->column_count + 1u;

	if (writer->column_count == 0 && writer->source_longest == 0)
		return 0;
	struct pimg_field_stats *stats = calloc(count, sizeof(*stats));
	if (!stats)
		return -ENOMEM;
	for (uint32_t i = 0; i < writer->column_count; i++) {
		const struct column *column = &writer->columns[i];
		stats[i].longest = column->longest;
		stats[i].kind =
			column->type == PACKIMG_FIELD_TEXT ? PIMG_VALUE_TEXT : PIMG_VALUE_PLAIN;
	}
	stats[writer->column_count].longest = writer->source_longest;
	*blob = (struct blob){stats, count * sizeof(*stats)};
	return 0;
}

/*
 * Builds the sections that all shards share. The classes blob points into the dataset info; the
 * caller frees the other blobs, also after a failure.
 */
static int writer_build_blobs(struct packimg_writer *writer, struct blob blobs[BLOB_COUNT])
{
	const struct dataset_info *info = &writer->info;

	if (info->class_count > 0)
		blobs[BLOB_CLASSES] = (struct blob){info->classes, info->classes_size};
	int r = writer_build_fields(writer, &blobs[BLOB_FIELDS]);
	if (r < 0)
		return r;
	r = dataset_info_build_metadata(info, &blobs[BLOB_METADATA].data,
					&blobs[BLOB_METADATA].size);
	r = r ?: writer_build_field_stats(writer, &blobs[BLOB_FIELD_STATS]);
	if (r < 0)
		return r;
	return writer_schema_pack(writer, &blobs[BLOB_SCHEMA].data, &blobs[BLOB_SCHEMA].size);
}

static int writer_put_section(struct output *output, struct shard_done *shard, uint32_t type,
			      const void *data, size_t size)
{
	if (size == 0)
		return 0;
	return output_put_section(output, type, data, size,
				  &shard->sections[shard->section_count++]);
}

/* Appends the sections that follow from the index, which is in the file and the first section. */
static int shard_append_hints(const struct packimg_writer *writer, struct shard_done *shard,
			      struct output *output)
{
	const struct hint_source source = {
		.directory = writer->temp_files.directory,
		.index_offset = shard->sections[0].offset,
		.sample_count = shard->sample_count,
		.class_count = writer->info.class_count,
	};

	return hint_sections_write(&source, output, shard->sections, &shard->section_count);
}

/*
 * Appends the sections that all shards share, the table of the shard's columns, and what follows
 * from the index.
 */
static int shard_append_dataset_info(const struct packimg_writer *writer, struct shard_done *shard,
				     const struct blob blobs[BLOB_COUNT], struct output *output)
{
	struct pimg_column columns[PACKIMG_FIELDS_MAX] = {0};

	memcpy(columns, shard->columns, shard->column_count * sizeof(*columns));
	int r = writer_put_section(output, shard, PIMG_SECTION_COLUMNS, columns,
				   writer->column_count * sizeof(*columns));
	for (int i = 0; i < BLOB_COUNT && r == 0; i++)
		r = writer_put_section(output, shard, blob_types[i], blobs[i].data, blobs[i].size);
	r = r ?: shard_append_hints(writer, shard, output);
	shard->size = output->offset;
	return r == 0 ? output_flush(output) : r;
}

static void hash_column(XXH3_state_t *state, const struct column *column)
{
	const uint32_t type = stored_type(column);

	XXH3_128bits_update(state, column->name, strlen(column->name) + 1);
	XXH3_128bits_update(state, &type, sizeof(type));
	XXH3_128bits_update(state, &column->identity, sizeof(column->identity));
}

/*
 * Derives the set's UUID from the samples and their order. It does not depend on their location:
 * the same samples give the same UUID in any number of shards, with or without an index, and with
 * any metadata and field statistics. A schema is part of the content.
 */
static int uuid_derive(struct packimg_writer *writer)
{
	const struct dataset_info *info = &writer->info;
	XXH3_state_t *state = writer->identity;

	if (writer->has_uuid)
		return 0;
	XXH3_128bits_update(state, &writer->sample_first, sizeof(writer->sample_first));
	XXH3_128bits_update(state, &info->class_count, sizeof(info->class_count));
	if (info->class_count > 0)
		XXH3_128bits_update(state, info->classes, info->classes_size);
	for (uint32_t i = 0; i < writer->column_count; i++)
		hash_column(state, &writer->columns[i]);
	if (info->has_statistics) {
		XXH3_128bits_update(state, info->mean, sizeof(info->mean));
		XXH3_128bits_update(state, info->std, sizeof(info->std));
	}
	int r = writer_schema_hash(writer, state);
	uuid_from_hash(XXH3_128bits_digest(state), writer->uuid);
	return r;
}

static void shard_header(const struct packimg_writer *writer, uint32_t number,
			 struct pimg_header *ret_header)
{
	const struct shard_done *shard = &writer->shards[number];
	const struct dataset_info *info = &writer->info;
	bool uses_images = writer->image_count > 0 || writer->has_raster;
	struct pimg_header header = {
		.magic = PIMG_MAGIC,
		.version = PIMG_VERSION,
		.header_size = sizeof(header),
		.incompatible = uses_images ? PIMG_INCOMPATIBLE_IMAGES : 0,
		.file_size = shard->size,
		.sample_count = shard->sample_count,
		.sample_first = shard->sample_first,
		.set_sample_count = writer->sample_first,
		.shard_index = number,
		.shard_count = writer->shard_count,
		.class_count = info->class_count,
		.field_count = writer->column_count,
		.section_count = shard->section_count,
		.content = info->has_statistics ? PIMG_CONTENT_STATISTICS : 0,
	};

	memcpy(header.set_uuid, writer->uuid, sizeof(header.set_uuid));
	if (info->has_statistics) {
		memcpy(header.mean, info->mean, sizeof(header.mean));
		memcpy(header.std, info->std, sizeof(header.std));
	}
	memcpy(header.sections, shard->sections, shard->section_count * sizeof(*shard->sections));
	/*
	 * Hash all header fields before header_xxh3. The section table in it has checksums of the
	 * other bytes.
	 */
	uuid_from_hash(XXH3_128bits(&header, offsetof(struct pimg_header, header_xxh3)),
		       header.shard_uuid);
	header.header_xxh3 = XXH3_64bits(&header, offsetof(struct pimg_header, header_xxh3));
	*ret_header = header;
}

/*
 * Completes a shard's file with the shared sections and the header, and syncs it. The rename
 * follows later.
 */
static int shard_seal(struct packimg_writer *writer, uint32_t number,
		      const struct blob blobs[BLOB_COUNT])
{
	struct shard_done *shard = &writer->shards[number];
	struct pimg_header header;
	struct output output;
	char path[SHARD_SET_PATH_MAX];

	int r = temp_files_path(&writer->temp_files, number, path);
	if (r < 0)
		return r;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	output_init(&output, fd, writer->buffer);
	output.offset = output.started = shard->size;
	r = shard_append_dataset_info(writer, shard, blobs, &output);
	shard_header(writer, number, &header);
	return io_finish(fd, r == 0 ? io_write_at(fd, &header, sizeof(header), 0) : r);
}

static int writer_finish(struct packimg_writer *writer)
{
	struct blob blobs[BLOB_COUNT] = {{0}};

	int r = shard_end(writer);
	if (r == 0)
		r = writer_build_blobs(writer, blobs);
	if (r == 0)
		r = uuid_derive(writer);
	for (uint32_t i = 0; i < writer->shard_count && r == 0; i++)
		r = shard_seal(writer, i, blobs);
	for (int i = BLOB_FIELDS; i < BLOB_COUNT; i++)
		free(blobs[i].data);
	const struct publication publication = {
		.path = writer->path,
		.set = writer->shard_size > 0,
		.shard_count = writer->shard_count,
		.alone = writer->alone,
	};

	return r == 0 ? publish(&publication, &writer->temp_files, &writer->renamed) : r;
}

int packimg_writer_finish(struct packimg_writer *writer, struct packimg_error *error)
{
	if (writer->failed || writer->finished)
		return packimg_fail(error, writer->failed ? writer->failed : -EINVAL, "%s: %s",
				    writer->path,
				    writer->failed ? "writing failed before" : "already finished");
	if (writer->info.class_count > 0 && writer->label_max >= (int64_t)writer->info.class_count)
		return packimg_fail(error, -EINVAL,
				    "%s: a sample has label %" PRId32
				    ", but there are only %" PRIu32 " classes",
				    writer->path, writer->label_max, writer->info.class_count);
	if (writer->info.class_count > 0 && writer->class_max >= (int64_t)writer->info.class_count)
		return packimg_fail(error, -EINVAL,
				    "%s: a value of role class has number %" PRId64
				    ", but there are only %" PRIu32 " classes",
				    writer->path, writer->class_max, writer->info.class_count);
	int r = writer_schema_end_sample(writer, error);
	if (r < 0)
		return r;
	r = writer_finish(writer);
	writer->failed = r;
	if (r < 0 && writer->renamed)
		return packimg_fail(error, r,
				    "%s: complete, but its folder cannot be synced: %s; a crash of "
				    "the machine may remove it",
				    writer->path, strerror(-r));
	if (r < 0)
		return packimg_fail(error, r, "%s: cannot finish: %s", writer->path, strerror(-r));
	writer->finished = true;
	return 0;
}
