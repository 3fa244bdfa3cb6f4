#include "format/base/io.h"
#include "format/base/uuid.h"
#include "format/error.h"
#include "format/write/replace.h"
#include "format/write/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* A section held in memory: the same bytes for every shard. */
struct blob {
	uint32_t type;
	void *data;
	size_t size;
	uint64_t xxh3;
};

enum { BLOBS_MAX = 4 };

struct blobs {
	struct blob entries[BLOBS_MAX];
	uint32_t count;
};

static void blobs_add(struct blobs *blobs, uint32_t type, void *data, size_t size)
{
	blobs->entries[blobs->count++] = (struct blob){type, data, size, XXH3_64bits(data, size)};
}

int shard_begin(struct packimg_writer *writer)
{
	static const uint8_t zeros[sizeof(struct pimg_header)];

	int fd = partial_create(&writer->partial);
	if (fd < 0)
		return fd;
	output_init(&writer->output, fd, writer->buffer);
	/* no magic until the end: an unfinished file does not open */
	return output_write(&writer->output, zeros, sizeof(zeros));
}

static void section_add(struct shard_done *shard, uint32_t type, uint64_t offset, uint64_t size,
			uint64_t xxh3)
{
	shard->sections[shard->section_count++] =
		(struct pimg_section){.type = type, .offset = offset, .size = size, .xxh3 = xxh3};
}

/* Writes one or two streams as a section. */
static int section_from_streams(struct packimg_writer *writer, struct shard_done *shard,
				uint32_t type, const struct spool_stream *first,
				const struct spool_stream *second)
{
	XXH3_state_t *state = XXH3_createState();
	if (!state)
		return -ENOMEM;
	XXH3_64bits_reset(state);
	int r = output_align(&writer->output, PIMG_ALIGN);
	uint64_t offset = writer->output.offset;
	if (r == 0)
		r = spool_copy(&writer->spool, first, &writer->output, state);
	if (r == 0 && second)
		r = spool_copy(&writer->spool, second, &writer->output, state);
	if (r == 0)
		section_add(shard, type, offset, writer->output.offset - offset,
			    XXH3_64bits_digest(state));
	XXH3_freeState(state);
	return r;
}

static int shard_write_sections(struct packimg_writer *writer, struct shard_done *shard)
{
	const char *directory = writer->partial.directory;
	uint64_t end = writer->sources.size;

	int r = section_from_streams(writer, shard, PIMG_SECTION_INDEX, &writer->index, NULL);
	if (r == 0 && writer->has_sources) {
		r = spool_append(&writer->spool, directory, &writer->source_offsets, &end,
				 sizeof(end));
		if (r == 0)
			r = section_from_streams(writer, shard, PIMG_SECTION_SOURCES,
						 &writer->source_offsets, &writer->sources);
	}
	for (uint32_t i = 0; i < writer->column_count && r == 0; i++)
		r = column_finish(&writer->columns[i], &writer->spool, directory,
				  writer->sample_count, &writer->output, &shard->columns[i]);
	return r == 0 ? output_flush(&writer->output) : r;
}

static int shards_reserve(struct packimg_writer *writer)
{
	/* doubles at powers of two */
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
	writer->output = (struct output){.fd = -1};
	spool_stream_reset(&writer->index);
	spool_stream_reset(&writer->source_offsets);
	spool_stream_reset(&writer->sources);
	spool_reset(&writer->spool);
	writer->has_sources = false;
	writer->sample_first += writer->sample_count;
	writer->sample_count = 0;
	return 0;
}

/* The fields section: entries, then names one after another. */
static int fields_build(const struct packimg_writer *writer, void **ret_data, size_t *ret_size)
{
	size_t size = writer->column_count * sizeof(struct pimg_field), offset = size;

	for (uint32_t i = 0; i < writer->column_count; i++)
		size += strlen(writer->columns[i].name);
	uint8_t *data = malloc(size);
	if (!data)
		return -ENOMEM;
	for (uint32_t i = 0; i < writer->column_count; i++) {
		struct pimg_field field = {
			.type = writer->columns[i].type == PACKIMG_FIELD_TEXT
					? PACKIMG_FIELD_BYTES
					: writer->columns[i].type,
			.name_size = (uint32_t)strlen(writer->columns[i].name),
			.name_offset = offset,
		};
		memcpy(data + i * sizeof(field), &field, sizeof(field));
		memcpy(data + offset, writer->columns[i].name, field.name_size);
		offset += field.name_size;
	}
	*ret_data = data;
	*ret_size = size;
	return 0;
}

/* The section's bytes, which the caller frees; NULL and 0 when there is nothing to say. */
static int build_traits(const struct packimg_writer *writer, void **ret_data, size_t *ret_size)
{
	size_t count = writer->column_count + 1u;

	if (writer->column_count == 0 && writer->source_longest == 0) {
		*ret_data = NULL;
		*ret_size = 0;
		return 0;
	}
	struct pimg_trait *traits = calloc(count, sizeof(*traits));
	if (!traits)
		return -ENOMEM;
	for (uint32_t i = 0; i < writer->column_count; i++) {
		const struct column *column = &writer->columns[i];
		traits[i].longest = column->longest;
		traits[i].kind =
			column->type == PACKIMG_FIELD_TEXT ? PIMG_VALUE_TEXT : PIMG_VALUE_PLAIN;
	}
	traits[writer->column_count].longest = writer->source_longest;
	*ret_data = traits;
	*ret_size = count * sizeof(*traits);
	return 0;
}

static int blobs_build(const struct packimg_writer *writer, struct blobs *ret_blobs)
{
	struct blobs blobs = {0};
	char *metadata = NULL;
	void *fields = NULL, *traits = NULL;
	size_t metadata_size, fields_size = 0, traits_size;

	int r = writer->column_count > 0 ? fields_build(writer, &fields, &fields_size) : 0;
	if (r == 0)
		r = facts_metadata_build(&writer->facts, &metadata, &metadata_size);
	if (r == 0)
		r = build_traits(writer, &traits, &traits_size);
	if (r < 0) {
		free(fields);
		free(metadata);
		return r;
	}
	if (writer->facts.class_count > 0)
		blobs_add(&blobs, PIMG_SECTION_CLASSES, writer->facts.classes,
			  writer->facts.classes_size);
	if (fields)
		blobs_add(&blobs, PIMG_SECTION_FIELDS, fields, fields_size);
	if (metadata)
		blobs_add(&blobs, PIMG_SECTION_METADATA, metadata, metadata_size);
	if (traits)
		blobs_add(&blobs, PIMG_SECTION_TRAITS, traits, traits_size);
	*ret_blobs = blobs;
	return 0;
}

static void blobs_free(struct blobs *blobs)
{
	for (uint32_t i = 0; i < blobs->count; i++)
		if (blobs->entries[i].type != PIMG_SECTION_CLASSES)
			free(blobs->entries[i].data); /* the classes belong to the facts */
}

static void put_section(struct output *output, struct shard_done *shard, uint32_t type,
			const void *data, size_t size, uint64_t xxh3, int *r)
{
	if (*r == 0)
		*r = output_align(output, PIMG_ALIGN);
	if (*r == 0) {
		section_add(shard, type, output->offset, size, xxh3);
		*r = output_write(output, data, size);
	}
}

/*
 * Appends the sections that every shard carries, and its columns' table. Leaves the file open in
 * output.
 */
static int shard_append_facts(struct packimg_writer *writer, uint32_t number,
			      const struct blobs *blobs, struct output *output)
{
	struct shard_done *shard = &writer->shards[number];
	struct pimg_column columns[PACKIMG_FIELDS_MAX] = {0};
	char path[SET_PATH_MAX];

	int r = partial_path(&writer->partial, number, path);
	if (r < 0)
		return r;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	output_init(output, fd, writer->buffer);
	output->offset = output->started = shard->size;
	if (writer->column_count > 0) {
		size_t size = writer->column_count * sizeof(*columns);
		memcpy(columns, shard->columns, shard->column_count * sizeof(*columns));
		put_section(output, shard, PIMG_SECTION_COLUMNS, columns, size,
			    XXH3_64bits(columns, size), &r);
	}
	for (uint32_t i = 0; i < blobs->count; i++)
		put_section(output, shard, blobs->entries[i].type, blobs->entries[i].data,
			    blobs->entries[i].size, blobs->entries[i].xxh3, &r);
	if (r == 0)
		r = output_flush(output);
	shard->size = output->offset;
	return r;
}

static void hash_column(XXH3_state_t *state, const struct column *column)
{
	const uint32_t type =
		column->type == PACKIMG_FIELD_TEXT ? PACKIMG_FIELD_BYTES : column->type;

	XXH3_128bits_update(state, column->name, strlen(column->name) + 1);
	XXH3_128bits_update(state, &type, sizeof(type));
	XXH3_128bits_update(state, &column->identity, sizeof(column->identity));
}

/*
 * Derives the set's UUID from what the samples are, in their order, and not from where they lie:
 * the same samples are one dataset in any number of shards, with an index or without, whatever
 * metadata and traits tell of them.
 */
static void uuid_derive(struct packimg_writer *writer)
{
	const struct facts *facts = &writer->facts;
	XXH3_state_t *state = writer->identity;

	if (writer->has_uuid)
		return;
	XXH3_128bits_update(state, &writer->sample_first, sizeof(writer->sample_first));
	XXH3_128bits_update(state, &facts->class_count, sizeof(facts->class_count));
	if (facts->class_count > 0)
		XXH3_128bits_update(state, facts->classes, facts->classes_size);
	for (uint32_t i = 0; i < writer->column_count; i++)
		hash_column(state, &writer->columns[i]);
	if (facts->has_statistics) {
		XXH3_128bits_update(state, facts->mean, sizeof(facts->mean));
		XXH3_128bits_update(state, facts->std, sizeof(facts->std));
	}
	uuid_from_hash(XXH3_128bits_digest(state), writer->uuid);
}

static void shard_header(const struct packimg_writer *writer, uint32_t number,
			 struct pimg_header *ret_header)
{
	const struct shard_done *shard = &writer->shards[number];
	const struct facts *facts = &writer->facts;
	struct pimg_header header = {
		.magic = PIMG_MAGIC,
		.version = PIMG_VERSION,
		.header_size = sizeof(header),
		.file_size = shard->size,
		.sample_count = shard->sample_count,
		.sample_first = shard->sample_first,
		.set_sample_count = writer->sample_first,
		.shard_index = number,
		.shard_count = writer->shard_count,
		.class_count = facts->class_count,
		.field_count = writer->column_count,
		.section_count = shard->section_count,
		.content = facts->has_statistics ? PIMG_CONTENT_STATISTICS : 0,
	};

	memcpy(header.set_uuid, writer->uuid, sizeof(header.set_uuid));
	if (facts->has_statistics) {
		memcpy(header.mean, facts->mean, sizeof(header.mean));
		memcpy(header.std, facts->std, sizeof(header.std));
	}
	memcpy(header.sections, shard->sections, shard->section_count * sizeof(*shard->sections));
	/* all the rest of the header, in whose section table every byte of the file shows */
	uuid_from_hash(XXH3_128bits(&header, offsetof(struct pimg_header, header_xxh3)),
		       header.shard_uuid);
	header.header_xxh3 = XXH3_64bits(&header, offsetof(struct pimg_header, header_xxh3));
	*ret_header = header;
}

/*
 * Makes a file of what was a heap of sections, and waits until all of it is on the disk: renaming
 * comes after.
 */
static int shard_seal(struct packimg_writer *writer, uint32_t number)
{
	struct pimg_header header;
	char path[SET_PATH_MAX];

	int r = partial_path(&writer->partial, number, path);
	if (r < 0)
		return r;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	shard_header(writer, number, &header);
	return io_finish(fd, io_write_at(fd, &header, sizeof(header), 0));
}

/* The path without its extension. */
static void writer_base(const struct packimg_writer *writer, char ret_base[SET_PATH_MAX])
{
	size_t size = strlen(writer->path);

	strcpy(ret_base, writer->path);
	if (size > 5 && strcmp(ret_base + size - 5, ".pimg") == 0)
		ret_base[size - 5] = '\0';
}

/* Final name of a shard: the path itself, or NAME-00000-of-0000N.pimg. */
static int shard_path(const struct packimg_writer *writer, uint32_t number,
		      char ret_path[SET_PATH_MAX])
{
	char base[SET_PATH_MAX];

	if (writer->shard_size == 0) {
		strcpy(ret_path, writer->path);
		return 0;
	}
	writer_base(writer, base);
	return set_name_path(base, number, writer->shard_count, ret_path);
}

/* Renames every shard; when one fails, takes the ones before it back. */
static int publish_first(struct packimg_writer *writer)
{
	char path[SET_PATH_MAX];
	int r = 0;
	uint32_t done;

	for (done = 0; done < writer->shard_count && r == 0; done++) {
		r = shard_path(writer, done, path);
		if (r == 0)
			r = partial_publish(&writer->partial, done, path);
	}
	if (r == 0)
		return partial_sync_directory(&writer->partial);
	for (uint32_t i = 0; i + 1 < done; i++)
		if (shard_path(writer, i, path) == 0)
			unlink(path);
	return r;
}

/* One file over one file is a rename; anything else that is there makes it a longer way. */
static int publish(struct packimg_writer *writer)
{
	bool set = writer->shard_size > 0;
	char base[SET_PATH_MAX];
	struct set_name name;

	/* what can have neither shards nor a notice */
	if (!set && (set_name_parse(writer->path, &name) == 0 || set_base(writer->path, base) < 0))
		return publish_first(writer);
	writer_base(writer, base);
	int r = replace_is_needed(base, set);
	if (r < 0)
		return r;
	return r > 0 ? replace_publish(&writer->partial, base, set) : publish_first(writer);
}

static int finish(struct packimg_writer *writer)
{
	struct blobs blobs;

	int r = shard_end(writer);
	if (r < 0)
		return r;
	r = blobs_build(writer, &blobs);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < writer->shard_count && r == 0; i++) {
		struct output output = {.fd = -1};
		r = shard_append_facts(writer, i, &blobs, &output);
		output_deinit(&output);
	}
	blobs_free(&blobs);
	uuid_derive(writer);
	for (uint32_t i = 0; i < writer->shard_count && r == 0; i++)
		r = shard_seal(writer, i);
	return r == 0 ? publish(writer) : r;
}

int packimg_writer_finish(struct packimg_writer *writer, struct packimg_error *error)
{
	if (writer->failed || writer->finished)
		return packimg_fail(error, writer->failed ? writer->failed : -EINVAL, "%s: %s",
				    writer->path,
				    writer->failed ? "writing failed before" : "already finished");
	if (writer->facts.class_count > 0 &&
	    writer->label_max >= (int64_t)writer->facts.class_count)
		return packimg_fail(error, -EINVAL,
				    "%s: a sample has label %" PRId32
				    ", but there are only %" PRIu32 " classes",
				    writer->path, writer->label_max, writer->facts.class_count);
	int r = finish(writer);
	if (r < 0) {
		writer->failed = r;
		return packimg_fail(error, r, "%s: cannot finish: %s", writer->path, strerror(-r));
	}
	writer->finished = true;
	return 0;
}
