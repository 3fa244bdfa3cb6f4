#include "format/reader.h"

#include "format/base/shard_set.h"
#include "format/base/system/io.h"
#include "format/base/text/text.h"
#include "format/error.h"
#include "format/header.h"
#include "format/join_internal.h"
#include "format/schema_field.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void shard_deinit(struct shard *shard)
{
	if (shard->map)
		munmap((void *)shard->map, shard->size);
	io_close(shard->fd);
	free(shard->path);
}

/* Maps a file or, if unmapped, reserves address space of its size in which every access faults. */
static void *shard_map(int fd, uint64_t size, bool unmapped)
{
	if (unmapped)
		return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			    0);
	return mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
}

/* Maps a file whose header is validated. Takes ownership of path always, of fd only on success. */
static int shard_init(struct shard *shard, int fd, char *path, const struct pimg_header *header,
		      bool unmapped, struct packimg_error *error)
{
	*shard = (struct shard){.fd = -1, .path = path};
	void *map = shard_map(fd, header->file_size, unmapped);
	if (map == MAP_FAILED) {
		int r = -errno;
		return packimg_fail(error, r, "%s: cannot map %" PRIu64 " bytes: %s", path,
				    header->file_size, strerror(-r));
	}
	shard->fd = fd;
	shard->map = map;
	shard->size = header->file_size;
	shard->sample_first = header->sample_first;
	shard->sample_count = header->sample_count;
	shard->sections_begin = header->file_size;
	shard->has_images = header->incompatible & PIMG_INCOMPATIBLE_IMAGES;
	for (uint32_t i = 0; i < header->section_count; i++) {
		const struct pimg_section *section = &header->sections[i];
		if (section->size == 0)
			continue;
		shard->extents[shard->extent_count++] = (struct section_extent){
			.begin = section->offset,
			.end = section->offset + section->size,
			.xxh3 = section->xxh3,
			.type = section->type,
		};
		if (section->offset < shard->sections_begin)
			shard->sections_begin = section->offset;
	}
	for (uint32_t type = 1; type <= PIMG_SECTION_KNOWN_MAX; type++) {
		const struct pimg_section *section = header_section(header, type);
		if (section)
			shard->sections[type] = (struct section_view){
				.data = shard->map + section->offset,
				.size = section->size,
				.xxh3 = section->xxh3,
			};
	}
	return 0;
}

/* Makes a private copy of a section; view stays empty if the file has none. */
static int section_read(int fd, const char *name, const struct pimg_header *header, uint32_t type,
			struct section_view *view, struct packimg_error *error)
{
	const struct pimg_section *section = header_section(header, type);

	if (!section)
		return 0;
	uint8_t *bytes = malloc(section->size);
	if (!bytes)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", name);
	*view = (struct section_view){bytes, section->size, section->xxh3};
	return header_pread(fd, name, bytes, section->size, section->offset, error);
}

/*
 * Validates the private copy of the class names completely, so that packimg_class_name() succeeds
 * for every class. Requires contiguous offsets, which bounds the work by the size of the section.
 */
static int classes_check(const struct packimg *dataset, const char *name,
			 struct packimg_error *error)
{
	const struct section_view *classes = &dataset->classes;
	uint64_t end = (dataset->class_count + UINT64_C(1)) * sizeof(uint64_t), size;
	const char *text;

	for (uint32_t i = 0; i < dataset->class_count; i++) {
		if (strings_get(classes, dataset->class_count, i, &text, &size) < 0 ||
		    (const uint8_t *)text != classes->data + end)
			return packimg_damaged(error,
					       "%s: name of class %u does not fit the class "
					       "section; copy or convert the file again",
					       name, i);
		if (size == 0 || text[size - 1] != '\0' || !text_is_utf8(text, size - 1))
			return packimg_damaged(error,
					       "%s: name of class %u is not terminated UTF-8; "
					       "copy or convert the file again",
					       name, i);
		end += size;
	}
	if (classes->data && end != classes->size)
		return packimg_damaged(error, "%s: the class section is longer than its names",
				       name);
	return 0;
}

/*
 * Returns the first field whose name overlaps that of field `number`; `number` if there is none.
 * The name of that field must fit the section.
 */
static uint32_t name_overlaps(const struct pimg_field *fields, uint32_t number)
{
	const struct pimg_field *field = &fields[number];
	uint32_t k = 0;

	while (k < number && (fields[k].name_offset + fields[k].name_size <= field->name_offset ||
			      field->name_offset + field->name_size <= fields[k].name_offset))
		k++;
	return k;
}

/* Reads the next field. The section has `count` fields. */
static int field_read(struct packimg *dataset, int fd, const char *name,
		      const struct pimg_section *section, const struct pimg_field *fields,
		      uint32_t count, struct packimg_error *error)
{
	uint32_t number = dataset->field_count;
	const struct pimg_field *field = &fields[number];

	if (field->type < PACKIMG_FIELD_INT64 || field->type > PACKIMG_FIELD_JSON ||
	    field->reserved_0 || field->reserved_1 || field->name_size == 0 ||
	    field->name_size > PACKIMG_NAME_MAX || field->name_offset > section->size ||
	    field->name_size > section->size - field->name_offset)
		return packimg_damaged(error, "%s: field %u is damaged", name, number);
	uint32_t other = name_overlaps(fields, number);
	if (field->name_offset < count * sizeof(*fields) || other < number)
		return packimg_damaged(
			error, "%s: the name of field %u overlaps %s of field %u", name, number,
			other < number ? "the name" : "the entry",
			other < number ? other : (uint32_t)(field->name_offset / sizeof(*field)));
	char *text = calloc(1, field->name_size + 1);
	if (!text)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", name);
	dataset->fields[number] = (struct packimg_field){
		.name = text,
		.type = field->type,
		.longest = PACKIMG_LONGEST_UNKNOWN,
	};
	dataset->field_count = number + 1;
	int r = header_pread(fd, name, text, field->name_size, section->offset + field->name_offset,
			     error);
	if (r < 0)
		return r;
	if (!text_is_utf8(text, field->name_size))
		return packimg_damaged(error, "%s: name of field %u is not UTF-8", name, number);
	for (uint32_t k = 0; k < number; k++)
		if (strcmp(dataset->fields[k].name, text) == 0)
			return packimg_damaged(error, "%s: two fields are named %s", name, text);
	return 0;
}

static int fields_read(struct packimg *dataset, int fd, const char *name,
		       const struct pimg_header *header, struct packimg_error *error)
{
	const struct pimg_section *section = header_section(header, PIMG_SECTION_FIELDS);
	struct pimg_field fields[PACKIMG_FIELDS_MAX];

	if (!section)
		return 0;
	int r = header_pread(fd, name, fields, header->field_count * sizeof(*fields),
			     section->offset, error);
	dataset->fields = calloc(header->field_count, sizeof(*dataset->fields));
	if (!dataset->fields)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", name);
	for (uint32_t i = 0; r == 0 && i < header->field_count; i++)
		r = field_read(dataset, fd, name, section, fields, header->field_count, error);
	return r;
}

static int field_stats_read(struct packimg_field *field, const struct pimg_field_stats *stats)
{
	bool text = stats->kind == PIMG_VALUE_TEXT;

	if (stats->reserved_0 || (text && field->type != PACKIMG_FIELD_BYTES) ||
	    (stats->longest > 0 && field->type < PACKIMG_FIELD_BYTES))
		return -EBADMSG;
	field->longest = stats->longest;
	if (text)
		field->type = PACKIMG_FIELD_TEXT;
	return 0;
}

/*
 * Reads the statistics of the fields (SPEC.md, "Field statistics"), after the fields. A file of an
 * earlier version has none: all lengths are then unknown. They are untrusted: readers check every
 * value against them.
 */
static int field_stats_read_all(struct packimg *dataset, int fd, const char *name,
				const struct pimg_header *header, struct packimg_error *error)
{
	const struct pimg_section *section = header_section(header, PIMG_SECTION_FIELD_STATS);
	struct pimg_field_stats stats[PACKIMG_FIELDS_MAX + 1];
	uint32_t count = header->field_count;

	dataset->source_longest = PACKIMG_LONGEST_UNKNOWN;
	if (!section)
		return 0;
	int r = header_pread(fd, name, stats, (count + 1) * sizeof(*stats), section->offset, error);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count; i++)
		if (field_stats_read(&dataset->fields[i], &stats[i]) < 0)
			return packimg_damaged(error,
					       "%s: statistics of field %.100s do not fit its type",
					       name, dataset->fields[i].name);
	if (stats[count].reserved_0 || stats[count].longest > PACKIMG_SOURCE_MAX)
		return packimg_damaged(error, "%s: statistics of the sources are damaged", name);
	dataset->source_longest = stats[count].longest;
	return 0;
}

/*
 * Checks that a value and the field that stores it agree, and connects them. The statistics of the
 * field have been read, if there are any.
 */
static const char *schema_bind_field(struct packimg *dataset, const struct schema_value *value)
{
	if (value->number >= dataset->field_count)
		return "is in a field that does not exist";
	const struct packimg_field *field = &dataset->fields[value->number];
	enum packimg_field_type type = schema_field_type(value);

	if (strcmp(field->name, value->name) != 0)
		return "has another name than its field";
	if (field->type != type)
		return "has a field of a type that cannot store it";
	if (field->longest == PACKIMG_LONGEST_UNKNOWN)
		return "has a field without statistics";
	if (type >= PACKIMG_FIELD_BYTES && schema_has_rows(value) &&
	    (field->longest % schema_row_size(value) != 0 ||
	     field->longest / schema_row_size(value) != value->longest))
		return "has more or fewer rows than the statistics of its field say";
	if (value->element == SCHEMA_NO_ELEMENT && field->longest != value->longest)
		return "is longer or shorter than the statistics of its field say";
	dataset->field_values[value->number] = value;
	return NULL;
}

static const char *schema_bind(struct packimg *dataset, const struct schema_value *value)
{
	if (value->store == SCHEMA_IN_COLUMN)
		return schema_bind_field(dataset, value);
	if (value->store != SCHEMA_IN_SOURCE)
		return NULL;
	if (dataset->source_longest == PACKIMG_LONGEST_UNKNOWN)
		dataset->source_longest = value->longest;
	return value->longest != dataset->source_longest
		       ? "is longer or shorter than the statistics of the sources say"
		       : NULL;
}

static int schema_bind_all(struct packimg *dataset, const char *name, struct packimg_error *error)
{
	const struct schema *schema = &dataset->schema;

	for (unsigned i = 0; i < schema->count; i++) {
		const char *fault = schema_bind(dataset, &schema->values[i]);

		if (fault)
			return packimg_damaged(error,
					       "%s: value '%s' of the schema %s; convert the "
					       "images again",
					       name, schema->values[i].name, fault);
	}
	dataset->has_schema = true;
	dataset->image_count = schema_image_count(schema);
	return 0;
}

/*
 * Checks that the schema, which has been read, describes the images of a file, and that the section
 * `images` has the size that the schema gives it.
 */
static int images_check(const struct packimg *dataset, const char *name,
			const struct pimg_header *header, struct packimg_error *error)
{
	const struct pimg_section *section = header_section(header, PIMG_SECTION_IMAGES);
	uint64_t size = header->sample_count * dataset->image_count * sizeof(struct pimg_record);

	if (!dataset->has_schema && header_section(header, PIMG_SECTION_SCHEMA) &&
	    (header->incompatible & PIMG_INCOMPATIBLE_IMAGES))
		return packimg_fail(error, -ENOTSUP,
				    "%s: has images that a schema of a later version describes; "
				    "use a newer loaderd",
				    name);
	if (!section && dataset->image_count > 0)
		return packimg_damaged(error, "%s: the section `images` is missing", name);
	if (!section)
		return 0;
	if (dataset->image_count == 0 || section->size != size)
		return packimg_damaged(error,
				       "%s: the section `images` has %" PRIu64
				       " bytes, which does not fit the schema's %u images",
				       name, section->size, dataset->image_count);
	return 0;
}

/*
 * Reads the schema (SPEC.md, "Schema"), after fields and their statistics. A file without one, or
 * with one of a later version, has the implied schema.
 */
static int schema_read(struct packimg *dataset, int fd, const char *name,
		       const struct pimg_header *header, struct packimg_error *error)
{
	struct section_view section = {0};
	struct schema_error fault;

	dataset->field_values = calloc(dataset->field_count + 1, sizeof(*dataset->field_values));
	if (!dataset->field_values)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", name);
	schema_imply(dataset->fields, dataset->field_count, dataset->source_longest,
		     &dataset->schema);
	int r = section_read(fd, name, header, PIMG_SECTION_SCHEMA, &section, error);
	if (r == 0 && section.data) {
		r = schema_unpack(section.data, section.size, &dataset->schema, &fault);
		if (r == -EBADMSG)
			packimg_say(error, "%s: schema: %s; convert the images again", name,
				    fault.text);
		r = r == 0 ? schema_bind_all(dataset, name, error) : r == -ENOTSUP ? 0 : r;
	}
	r = r ?: images_check(dataset, name, header, error);
	free((void *)section.data);
	return r;
}

/*
 * Copies the data that all shards of a set share, so that the file's owner can no longer change it.
 */
static int dataset_info_read(struct packimg *dataset, int fd, const char *name,
			     const struct pimg_header *header, struct packimg_error *error)
{
	dataset->shard_count = header->shard_count;
	dataset->sample_count = header->set_sample_count;
	dataset->class_count = header->class_count;
	dataset->has_statistics = header->content & PIMG_CONTENT_STATISTICS;
	memcpy(dataset->mean, header->mean, sizeof(dataset->mean));
	memcpy(dataset->std, header->std, sizeof(dataset->std));
	memcpy(dataset->uuid, header->set_uuid, sizeof(dataset->uuid));
	int r = section_read(fd, name, header, PIMG_SECTION_CLASSES, &dataset->classes, error);
	r = r ?: section_read(fd, name, header, PIMG_SECTION_METADATA, &dataset->metadata, error);
	if (r < 0)
		return r;
	const struct section_view *metadata = &dataset->metadata;
	if (metadata->data && metadata->data[metadata->size - 1] != '\0')
		return packimg_damaged(error, "%s: the metadata is not terminated", name);
	r = classes_check(dataset, name, error);
	r = r ?: fields_read(dataset, fd, name, header, error);
	r = r ?: field_stats_read_all(dataset, fd, name, header, error);
	return r < 0 ? r : schema_read(dataset, fd, name, header, error);
}

static bool section_same(const struct shard *a, const struct shard *b, uint32_t type)
{
	return a->sections[type].size == b->sections[type].size &&
	       a->sections[type].xxh3 == b->sections[type].xxh3;
}

/*
 * Checks that shard `number`, with this header, belongs to the same set as shard 0, with header
 * `first`.
 */
static int shard_match(const struct packimg *dataset, const struct pimg_header *first,
		       const struct pimg_header *header, uint32_t number, uint64_t sample_first,
		       struct packimg_error *error)
{
	const struct shard *shard = &dataset->shards[number];

	if (memcmp(header->set_uuid, first->set_uuid, sizeof(header->set_uuid)) != 0 ||
	    header->shard_count != first->shard_count ||
	    header->incompatible != first->incompatible ||
	    header->set_sample_count != first->set_sample_count)
		return packimg_damaged(error,
				       "%s: belongs to another set than %s; convert the set again",
				       shard->path, dataset->shards[0].path);
	if (header->shard_index != number)
		return packimg_damaged(error, "%s: is shard %u of its set; it was renamed",
				       shard->path, header->shard_index);
	if (header->sample_first != sample_first)
		return packimg_damaged(error, "%s: sample_first is %" PRIu64 ", expected %" PRIu64,
				       shard->path, header->sample_first, sample_first);
	if (header->class_count != first->class_count ||
	    header->field_count != first->field_count || header->content != first->content ||
	    memcmp(header->mean, first->mean, sizeof(header->mean)) != 0 ||
	    memcmp(header->std, first->std, sizeof(header->std)) != 0 ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_CLASSES) ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_FIELDS) ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_METADATA) ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_FIELD_STATS) ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_SCHEMA))
		return packimg_damaged(error,
				       "%s: classes, fields, schema or metadata differ from those "
				       "of %s",
				       shard->path, dataset->shards[0].path);
	return 0;
}

/* How to name the files of a dataset in error messages. */
struct naming {
	const char *name;
	const struct shard_name *set; /* NULL if there are no paths, only a name */
};

/* Returns the name of shard i for error messages, which the caller frees. NULL if out of memory. */
static char *shard_path(const struct naming *naming, uint32_t i, uint32_t count)
{
	char path[SHARD_SET_PATH_MAX], *text;

	if (count == 1)
		return strdup(naming->name);
	if (naming->set)
		return shard_name_path(naming->set->base, i, count, path) < 0 ? NULL : strdup(path);
	return asprintf(&text, "%s, shard %u", naming->name, i) < 0 ? NULL : text;
}

/* Reads the header of each shard once, except that of shard 0, which the caller has read. */
static int shards_init(struct packimg *dataset, const struct naming *naming, const int *fds,
		       const struct pimg_header *first, struct packimg_error *error)
{
	struct pimg_header header = *first;
	uint64_t sample_first = 0;

	dataset->shards = calloc(first->shard_count, sizeof(*dataset->shards));
	dataset->firsts = calloc((size_t)first->shard_count + 1, sizeof(*dataset->firsts));
	if (!dataset->shards || !dataset->firsts)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", naming->name);
	for (uint32_t i = 0; i < first->shard_count; i++) {
		char *path = shard_path(naming, i, first->shard_count);
		if (!path)
			return packimg_fail(error, -ENOMEM, "%s: out of memory", naming->name);
		int r = i == 0 ? 0 : header_read(fds[i], path, &header, error);
		if (r < 0) {
			free(path);
			return r;
		}
		dataset->open_count = i + 1;
		r = shard_init(&dataset->shards[i], fds[i], path, &header, dataset->unmapped,
			       error);
		r = r ?: shard_match(dataset, first, &header, i, sample_first, error);
		r = r ?: images_check(dataset, path, &header, error);
		if (r < 0)
			return r;
		dataset->firsts[i] = sample_first;
		sample_first += header.sample_count;
	}
	if (sample_first != first->set_sample_count)
		return packimg_damaged(error,
				       "%s: the shards hold %" PRIu64
				       " samples, set_sample_count is %" PRIu64,
				       naming->name, sample_first, first->set_sample_count);
	dataset->firsts[first->shard_count] = sample_first;
	dataset->sample_end = sample_first;
	return 0;
}

static int dataset_fill(struct packimg *dataset, const struct naming *naming, const int *fds,
			uint32_t count, struct packimg_error *error)
{
	struct pimg_header first;
	char *path = shard_path(naming, 0, count);

	if (!path)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", naming->name);
	int r = header_read(fds[0], path, &first, error);
	if (r == 0 && first.shard_count != count)
		r = packimg_damaged(
			error,
			"%s: belongs to a set of %u shards, and %u were given; open all of them",
			path, first.shard_count, count);
	r = r ?: dataset_info_read(dataset, fds[0], path, &first, error);
	free(path);
	return r < 0 ? r : shards_init(dataset, naming, fds, &first, error);
}

/* Opens a dataset. Takes ownership of the descriptors on success. */
static int dataset_open(const struct naming *naming, const int *fds, uint32_t count, bool unmapped,
			struct packimg **ret_dataset, struct packimg_error *error)
{
	struct packimg *dataset = calloc(1, sizeof(*dataset));

	if (!dataset)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", naming->name);
	dataset->unmapped = unmapped;
	int r = dataset_fill(dataset, naming, fds, count, error);
	if (r < 0) {
		for (uint32_t i = 0; i < dataset->open_count; i++)
			dataset->shards[i].fd = -1;
		packimg_close(dataset);
		return r;
	}
	*ret_dataset = dataset;
	return 0;
}

int packimg_identify(int fd, const char *name, struct packimg_identity *ret_identity,
		     struct packimg_error *error)
{
	struct pimg_header header;

	int r = header_read(fd, name, &header, error);
	if (r < 0)
		return r;
	struct packimg_identity identity = {
		.shard = header.shard_index,
		.shard_count = header.shard_count,
		.sample_count = header.set_sample_count,
		.file_size = header.file_size,
	};
	memcpy(identity.set_uuid, header.set_uuid, sizeof(identity.set_uuid));
	*ret_identity = identity;
	return 0;
}

static int open_fds(const char *name, const int *fds, uint32_t count, bool unmapped,
		    struct packimg **ret_dataset, struct packimg_error *error)
{
	struct packimg *dataset;

	if (count == 0 || count > PACKIMG_SHARDS_MAX)
		return packimg_fail(error, -EINVAL,
				    "%s: %u descriptors; a dataset has 1 to %d files", name, count,
				    PACKIMG_SHARDS_MAX);
	char *copy = strdup(name);
	if (!copy)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", name);
	int r = dataset_open(&(struct naming){.name = name}, fds, count, unmapped, &dataset, error);
	if (r < 0) {
		free(copy);
		return r;
	}
	dataset->name = copy;
	*ret_dataset = dataset;
	return 0;
}

int packimg_open_fds(const char *name, const int *fds, uint32_t count, struct packimg **ret_dataset,
		     struct packimg_error *error)
{
	return open_fds(name, fds, count, false, ret_dataset, error);
}

int packimg_open_unmapped(const char *name, const int *fds, uint32_t count,
			  struct packimg **ret_dataset, struct packimg_error *error)
{
	return open_fds(name, fds, count, true, ret_dataset, error);
}

int packimg_open_info(int fd, const char *name, struct packimg **ret_dataset,
		      struct packimg_error *error)
{
	struct pimg_header header;

	int r = header_read(fd, name, &header, error);
	if (r < 0)
		return r;
	struct packimg *dataset = calloc(1, sizeof(*dataset));
	if (!dataset)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", name);
	r = dataset_info_read(dataset, fd, name, &header, error);
	if (r < 0) {
		packimg_close(dataset);
		return r;
	}
	/* The file is no longer needed: everything was copied. */
	close(fd);
	*ret_dataset = dataset;
	return 0;
}

/* Returns a descriptor or a negative errno. */
static int file_open(const char *path, struct packimg_error *error)
{
	/* O_NONBLOCK: opening a FIFO must not block before fstat() reveals it */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0)
		return fd;
	int r = -errno;
	return packimg_fail(error, r, "%s: cannot open: %s%s", path, strerror(-r),
			    r == -EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
}

/* Opens the files of a set. On failure, entries of fds that were not opened are -1. */
static int set_open_files(const struct shard_name *set, int *fds, struct packimg_error *error)
{
	char path[SHARD_SET_PATH_MAX];

	for (uint32_t i = 0; i < set->shard_count; i++) {
		if (fds[i] >= 0)
			continue;
		int r = shard_name_path(set->base, i, set->shard_count, path);
		if (r < 0)
			return packimg_fail(error, r, "%s: the path is too long", set->base);
		fds[i] = file_open(path, error);
		if (fds[i] == -ENOENT)
			return packimg_damaged(error, "%s: this shard of the set is missing", path);
		if (fds[i] < 0)
			return fds[i];
	}
	return 0;
}

/*
 * Opens the set to which the file at path belongs. fd is that file, according to whose name the set
 * has `count` shards. Always takes ownership of fd.
 */
static int set_open(const char *path, int fd, uint32_t count, struct packimg **ret_dataset,
		    struct packimg_error *error)
{
	struct shard_name set;

	if (shard_name_parse(path, &set) < 0 || set.shard_count != count) {
		close(fd);
		return packimg_damaged(error,
				       "%s: is one of %u shards but not named as one "
				       "(NAME-00000-of-%05u.pimg); give it its name back",
				       path, count, count);
	}
	int *fds = malloc(count * sizeof(*fds));
	if (!fds) {
		close(fd);
		return packimg_fail(error, -ENOMEM, "%s: out of memory", path);
	}
	for (uint32_t i = 0; i < count; i++)
		fds[i] = -1;
	fds[set.shard] = fd;
	int r = set_open_files(&set, fds, error);
	r = r ?: dataset_open(&(struct naming){path, &set}, fds, count, false, ret_dataset, error);
	for (uint32_t i = 0; r < 0 && i < count; i++)
		io_close(fds[i]);
	free(fds);
	return r;
}

int packimg_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error)
{
	char file_path[SHARD_SET_PATH_MAX];
	struct packimg_identity identity;

	int r = shard_set_resolve(path, file_path, error ? error->text : NULL);
	if (r < 0)
		return r;
	int fd = file_open(file_path, error);
	if (fd < 0)
		return fd;
	/* Determine the number of files to open. dataset_open() reads the header again. */
	r = packimg_identify(fd, file_path, &identity, error);
	if (r == 0 && identity.shard_count > 1)
		return set_open(file_path, fd, identity.shard_count, ret_dataset, error);
	r = r
		    ?: dataset_open(&(struct naming){.name = file_path}, &fd, 1, false, ret_dataset,
				    error);
	if (r < 0)
		close(fd);
	return r;
}

void packimg_close(struct packimg *dataset)
{
	if (!dataset)
		return;
	for (uint32_t i = 0; dataset->shards && i < dataset->open_count; i++)
		shard_deinit(&dataset->shards[i]);
	if (dataset->join)
		join_free(dataset->join);
	for (uint32_t i = 0; i < dataset->field_count; i++)
		free((char *)dataset->fields[i].name);
	free(dataset->fields);
	free(dataset->field_values);
	free(dataset->shards);
	free(dataset->firsts);
	free((void *)dataset->classes.data);
	free((void *)dataset->metadata.data);
	free(dataset->name);
	free(dataset);
}
