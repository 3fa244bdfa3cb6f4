#include "reader.h"

#include "error.h"
#include "set.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static bool is_zero(const void *bytes, size_t size)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < size; i++)
		if (b[i])
			return false;
	return true;
}

/* Identity of the header: what must hold before any other field means anything. */
static int header_identify(const struct pimg_header *header, const char *path,
			   struct packimg_error *error)
{
	if (memcmp(header->magic, PIMG_MAGIC, sizeof(header->magic)) != 0)
		return packimg_fail(error, -EBADMSG,
				    "%s: not a .pimg file (magic does not fit), or a conversion "
				    "that did not finish",
				    path);
	if (header->version > PIMG_VERSION)
		return packimg_fail(error, -ENOTSUP,
				    "%s: format version %" PRIu32
				    ", this program reads up to %d; use a newer loaderd",
				    path, header->version, PIMG_VERSION);
	if (header->version == 0)
		return packimg_fail(error, -EBADMSG, "%s: version is 0; the file is damaged", path);
	if (XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3)) != header->header_xxh3)
		return packimg_fail(error, -EBADMSG,
				    "%s: header_xxh3 does not fit; the header is damaged", path);
	if (header->header_size != sizeof(*header))
		return packimg_fail(error, -EBADMSG, "%s: header_size is %" PRIu32 ", expected %zu",
				    path, header->header_size, sizeof(*header));
	if (header->incompatible & ~PIMG_INCOMPATIBLE_KNOWN)
		return packimg_fail(error, -ENOTSUP,
				    "%s: needs features 0x%" PRIx64
				    " that this program does not know; use a newer loaderd",
				    path, header->incompatible & ~PIMG_INCOMPATIBLE_KNOWN);
	if (header->reserved_0 || !is_zero(header->reserved_1, sizeof(header->reserved_1)) ||
	    !is_zero(header->reserved_2, sizeof(header->reserved_2)))
		return packimg_fail(error, -EBADMSG,
				    "%s: reserved bytes of the header are not zero", path);
	return 0;
}

static int header_check_counts(const struct pimg_header *header, const char *path,
			       uint64_t file_size, struct packimg_error *error)
{
	if (header->file_size > file_size)
		return packimg_fail(error, -EBADMSG,
				    "%s: truncated, %" PRIu64 " of %" PRIu64
				    " bytes are there; copy or convert it again",
				    path, file_size, header->file_size);
	if (header->file_size < sizeof(*header))
		return packimg_fail(error, -EBADMSG,
				    "%s: file_size is %" PRIu64 ", less than a header", path,
				    header->file_size);
	if (header->sample_count > PIMG_SAMPLES_MAX ||
	    header->set_sample_count > PIMG_SAMPLES_MAX ||
	    header->sample_first > header->set_sample_count ||
	    header->sample_count > header->set_sample_count - header->sample_first)
		return packimg_fail(error, -EBADMSG,
				    "%s: sample_first %" PRIu64 " and sample_count %" PRIu64
				    " do not fit set_sample_count %" PRIu64,
				    path, header->sample_first, header->sample_count,
				    header->set_sample_count);
	if (header->shard_count == 0 || header->shard_count > PACKIMG_SHARDS_MAX ||
	    header->shard_index >= header->shard_count)
		return packimg_fail(error, -EBADMSG,
				    "%s: shard_index %" PRIu32 " of shard_count %" PRIu32, path,
				    header->shard_index, header->shard_count);
	if (header->class_count > PACKIMG_CLASSES_MAX)
		return packimg_fail(error, -EBADMSG,
				    "%s: class_count is %" PRIu32 ", at most %d are possible", path,
				    header->class_count, PACKIMG_CLASSES_MAX);
	if (header->field_count > PACKIMG_FIELDS_MAX)
		return packimg_fail(error, -EBADMSG,
				    "%s: field_count is %" PRIu32 ", at most %d are possible", path,
				    header->field_count, PACKIMG_FIELDS_MAX);
	if (header->content & ~(uint32_t)PIMG_CONTENT_STATISTICS)
		return packimg_fail(error, -EBADMSG,
				    "%s: content has reserved bits set (0x%" PRIx32 ")", path,
				    header->content);
	for (int i = 0; i < 3; i++) {
		bool recorded = header->content & PIMG_CONTENT_STATISTICS;
		if (!isfinite(header->mean[i]) || !isfinite(header->std[i]) ||
		    (!recorded && (header->mean[i] != 0 || header->std[i] != 0)))
			return packimg_fail(error, -EBADMSG,
					    "%s: mean or std is not a number, or not declared",
					    path);
	}
	return 0;
}

/* Size that a known section must have at least (exact: at most as well). */
static uint64_t section_size_min(const struct pimg_header *header, uint32_t type, bool *ret_exact)
{
	*ret_exact = false;
	switch (type) {
	case PIMG_SECTION_INDEX:
		*ret_exact = true;
		return header->sample_count * sizeof(struct pimg_record);
	case PIMG_SECTION_SOURCES:
		return (header->sample_count + 1) * sizeof(uint64_t);
	case PIMG_SECTION_CLASSES:
		return ((uint64_t)header->class_count + 1) * sizeof(uint64_t);
	case PIMG_SECTION_FIELDS:
		return (uint64_t)header->field_count * sizeof(struct pimg_field);
	case PIMG_SECTION_COLUMNS:
		*ret_exact = true;
		return (uint64_t)header->field_count * sizeof(struct pimg_column);
	default:
		return 1;
	}
}

static int section_check(const struct pimg_header *header, const char *path, uint32_t number,
			 const struct section_view *views, struct packimg_error *error)
{
	const struct pimg_section *section = &header->sections[number];
	bool exact;

	if (number >= header->section_count) {
		if (!is_zero(section, sizeof(*section)))
			return packimg_fail(error, -EBADMSG,
					    "%s: section %" PRIu32
					    " lies past section_count and is not zero",
					    path, number);
		return 0;
	}
	if (section->type == PIMG_SECTION_NONE || section->flags != 0)
		return packimg_fail(error, -EBADMSG,
				    "%s: section %" PRIu32 " has type %" PRIu32
				    " and flags 0x%" PRIx32,
				    path, number, section->type, section->flags);
	if (section->offset % PIMG_ALIGN != 0 || section->offset < sizeof(*header) ||
	    section->offset > header->file_size ||
	    section->size > header->file_size - section->offset)
		return packimg_fail(error, -EBADMSG,
				    "%s: section %" PRIu32 " (type %" PRIu32 ") at %" PRIu64
				    " with %" PRIu64 " bytes does not fit the file of %" PRIu64,
				    path, number, section->type, section->offset, section->size,
				    header->file_size);
	if (section->type > PIMG_SECTION_KNOWN_MAX)
		return 0;
	if (views[section->type].data)
		return packimg_fail(error, -EBADMSG, "%s: two sections of type %" PRIu32, path,
				    section->type);
	uint64_t size = section_size_min(header, section->type, &exact);
	if (section->size < size || (exact && section->size != size) ||
	    (section->type == PIMG_SECTION_METADATA && section->size > PIMG_METADATA_MAX))
		return packimg_fail(error, -EBADMSG,
				    "%s: section of type %" PRIu32 " has %" PRIu64
				    " bytes, which does not fit its entries",
				    path, section->type, section->size);
	return 0;
}

/* Fills the shard's sections from a header whose counts were checked. */
static int shard_sections(struct shard *shard, const struct pimg_header *header,
			  struct packimg_error *error)
{
	if (header->section_count > PIMG_SECTIONS_MAX)
		return packimg_fail(error, -EBADMSG,
				    "%s: section_count is %" PRIu32 ", at most %d are possible",
				    shard->path, header->section_count, PIMG_SECTIONS_MAX);
	for (uint32_t i = 0; i < PIMG_SECTIONS_MAX; i++) {
		const struct pimg_section *section = &header->sections[i];
		int r = section_check(header, shard->path, i, shard->sections, error);
		if (r < 0)
			return r;
		if (i < header->section_count && section->type <= PIMG_SECTION_KNOWN_MAX)
			shard->sections[section->type] = (struct section_view){
				.data = shard->map + section->offset,
				.size = section->size,
				.xxh3 = section->xxh3,
			};
	}
	if (!shard->sections[PIMG_SECTION_INDEX].data)
		return packimg_fail(error, -EBADMSG, "%s: the index section is missing",
				    shard->path);
	if (!!shard->sections[PIMG_SECTION_CLASSES].data != (header->class_count > 0))
		return packimg_fail(error, -EBADMSG,
				    "%s: class_count is %" PRIu32
				    " and the class section does not fit that",
				    shard->path, header->class_count);
	if (!!shard->sections[PIMG_SECTION_FIELDS].data != (header->field_count > 0) ||
	    !!shard->sections[PIMG_SECTION_COLUMNS].data != (header->field_count > 0))
		return packimg_fail(error, -EBADMSG,
				    "%s: field_count is %" PRIu32
				    " and the field sections do not fit that",
				    shard->path, header->field_count);
	const struct section_view *metadata = &shard->sections[PIMG_SECTION_METADATA];
	if (metadata->data && metadata->data[metadata->size - 1] != '\0')
		return packimg_fail(error, -EBADMSG, "%s: the metadata is not terminated",
				    shard->path);
	return 0;
}

static void shard_deinit(struct shard *shard)
{
	if (shard->map)
		munmap((void *)shard->map, shard->size);
	if (shard->fd >= 0)
		close(shard->fd);
	free(shard->path);
}

static int shard_open_file(struct shard *shard, uint64_t *ret_size, struct packimg_error *error)
{
	struct stat status;

	/* O_NONBLOCK: a FIFO must not hang us before fstat tells what it is */
	shard->fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (shard->fd < 0) {
		int r = -errno;
		return packimg_fail(error, r, "%s: cannot open: %s%s", shard->path, strerror(-r),
				    r == -EMFILE ? "; raise the limit of open files (ulimit -n)"
						 : "");
	}
	if (fstat(shard->fd, &status) < 0) {
		int r = -errno;
		return packimg_fail(error, r, "%s: cannot stat: %s", shard->path, strerror(-r));
	}
	if (!S_ISREG(status.st_mode))
		return packimg_fail(error, -EINVAL, "%s: not a regular file", shard->path);
	*ret_size = (uint64_t)status.st_size;
	return 0;
}

/* Opens one file and checks what can be checked without its siblings; path is copied. */
static int shard_init(struct shard *shard, const char *path, struct pimg_header *ret_header,
		      struct packimg_error *error)
{
	struct pimg_header header;
	uint64_t file_size = 0;

	*shard = (struct shard){.fd = -1, .path = strdup(path)};
	if (!shard->path)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", path);
	int r = shard_open_file(shard, &file_size, error);
	if (r < 0)
		goto fail;
	ssize_t n = pread(shard->fd, &header, sizeof(header), 0);
	if (n != (ssize_t)sizeof(header)) {
		r = n < 0 ? -errno : -EBADMSG;
		packimg_say(error, "%s: %s", path,
			    n < 0 ? strerror(-r) : "shorter than a header; not a .pimg file");
		goto fail;
	}
	r = header_identify(&header, path, error);
	if (r < 0)
		goto fail;
	r = header_check_counts(&header, path, file_size, error);
	if (r < 0)
		goto fail;
	void *map = mmap(NULL, header.file_size, PROT_READ, MAP_SHARED, shard->fd, 0);
	if (map == MAP_FAILED) {
		r = -errno;
		packimg_say(error, "%s: cannot map %" PRIu64 " bytes: %s", path, header.file_size,
			    strerror(-r));
		goto fail;
	}
	shard->map = map;
	shard->size = header.file_size;
	shard->sample_first = header.sample_first;
	shard->sample_count = header.sample_count;
	r = shard_sections(shard, &header, error);
	if (r < 0)
		goto fail;
	*ret_header = header;
	return 0;
fail:
	shard_deinit(shard);
	return r;
}

static int fields_init(struct packimg *dataset, uint32_t field_count, struct packimg_error *error)
{
	const struct shard *shard = &dataset->shards[0];
	const struct section_view *section = &shard->sections[PIMG_SECTION_FIELDS];

	dataset->fields = calloc(field_count ? field_count : 1, sizeof(*dataset->fields));
	if (!dataset->fields)
		return packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
	for (uint32_t i = 0; i < field_count; i++) {
		struct pimg_field field = ((const struct pimg_field *)section->data)[i];
		if (field.type < PACKIMG_FIELD_INT64 || field.type > PACKIMG_FIELD_JSON ||
		    field.reserved_0 || field.reserved_1 || field.name_size == 0 ||
		    field.name_size > PIMG_NAME_MAX || field.name_offset > section->size ||
		    field.name_size > section->size - field.name_offset)
			return packimg_fail(error, -EBADMSG, "%s: field %" PRIu32 " is damaged",
					    shard->path, i);
		const char *name = (const char *)section->data + field.name_offset;
		if (!text_is_utf8(name, field.name_size))
			return packimg_fail(error, -EBADMSG,
					    "%s: name of field %" PRIu32 " is not UTF-8",
					    shard->path, i);
		char *copy = strndup(name, field.name_size);
		if (!copy)
			return packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
		dataset->fields[i] = (struct packimg_field){.name = copy, .type = field.type};
		dataset->field_count = i + 1;
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(dataset->fields[k].name, copy) == 0)
				return packimg_fail(error, -EBADMSG, "%s: two fields are named %s",
						    shard->path, copy);
	}
	return 0;
}

static bool section_same(const struct shard *a, const struct shard *b, uint32_t type)
{
	return a->sections[type].size == b->sections[type].size &&
	       a->sections[type].xxh3 == b->sections[type].xxh3;
}

/* Does header (of shard number) belong to the set whose shard 0 is `first`? */
static int shard_match(const struct packimg *dataset, const struct pimg_header *first,
		       const struct pimg_header *header, uint32_t number, uint64_t sample_first,
		       struct packimg_error *error)
{
	const struct shard *shard = &dataset->shards[number];

	if (memcmp(header->set_uuid, first->set_uuid, sizeof(header->set_uuid)) != 0 ||
	    header->shard_count != first->shard_count ||
	    header->set_sample_count != first->set_sample_count)
		return packimg_fail(error, -EBADMSG,
				    "%s: belongs to another set than %s; convert the set again",
				    shard->path, dataset->shards[0].path);
	if (header->shard_index != number)
		return packimg_fail(error, -EBADMSG,
				    "%s: is shard %" PRIu32 " of its set; it was renamed",
				    shard->path, header->shard_index);
	if (header->sample_first != sample_first)
		return packimg_fail(error, -EBADMSG,
				    "%s: sample_first is %" PRIu64 ", expected %" PRIu64,
				    shard->path, header->sample_first, sample_first);
	if (header->class_count != first->class_count ||
	    header->field_count != first->field_count || header->content != first->content ||
	    memcmp(header->mean, first->mean, sizeof(header->mean)) != 0 ||
	    memcmp(header->std, first->std, sizeof(header->std)) != 0 ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_CLASSES) ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_FIELDS) ||
	    !section_same(shard, &dataset->shards[0], PIMG_SECTION_METADATA))
		return packimg_fail(error, -EBADMSG,
				    "%s: classes, fields or metadata differ from those of %s",
				    shard->path, dataset->shards[0].path);
	return 0;
}

/* Opens the other shards of a set whose any member is `path`, with header `header`. */
static int open_set(struct packimg *dataset, const char *path, uint32_t shard_count,
		    struct packimg_error *error)
{
	struct pimg_header first = {0}, header;
	struct set_name name;
	char shard_path[SET_PATH_MAX];
	uint64_t sample_first = 0;

	if (set_name_parse(path, &name) < 0 || name.shard_count != shard_count)
		return packimg_fail(error, -EBADMSG,
				    "%s: is one of %" PRIu32
				    " shards but not named like that (NAME-00000-of-%05" PRIu32
				    ".pimg); give it its name back",
				    path, shard_count, shard_count);
	for (uint32_t i = 0; i < shard_count; i++) {
		int r = set_name_path(name.base, i, shard_count, shard_path);
		if (r < 0)
			return packimg_fail(error, r, "%s: the path is too long", path);
		r = shard_init(&dataset->shards[i], shard_path, &header, error);
		if (r < 0)
			return r == -ENOENT ? packimg_fail(error, -EBADMSG,
							   "%s: this shard of the set is missing",
							   shard_path)
					    : r;
		dataset->shard_count = i + 1;
		if (i == 0)
			first = header;
		r = shard_match(dataset, &first, &header, i, sample_first, error);
		if (r < 0)
			return r;
		dataset->firsts[i] = sample_first;
		sample_first += header.sample_count;
	}
	if (sample_first != first.set_sample_count)
		return packimg_fail(error, -EBADMSG,
				    "%s: the shards hold %" PRIu64
				    " samples, set_sample_count is %" PRIu64,
				    path, sample_first, first.set_sample_count);
	return 0;
}

/* Takes an opened shard over, and its siblings with it. */
static int dataset_fill(struct packimg *dataset, struct shard *shard,
			const struct pimg_header *header, struct packimg_error *error)
{
	int r;

	dataset->shards = calloc(header->shard_count, sizeof(*dataset->shards));
	dataset->firsts = calloc((size_t)header->shard_count + 1, sizeof(*dataset->firsts));
	if (!dataset->shards || !dataset->firsts) {
		r = packimg_fail(error, -ENOMEM, "%s: out of memory", shard->path);
		shard_deinit(shard);
		return r;
	}
	if (header->shard_count == 1) {
		dataset->shards[0] = *shard;
		dataset->shard_count = 1;
		if (header->sample_first != 0 || header->set_sample_count != header->sample_count)
			return packimg_fail(
				error, -EBADMSG,
				"%s: a single file that claims more samples than it has",
				shard->path);
	} else {
		char path[SET_PATH_MAX];
		strcpy(path, shard->path);
		shard_deinit(shard);
		r = open_set(dataset, path, header->shard_count, error);
		if (r < 0)
			return r;
	}
	dataset->sample_count = header->set_sample_count;
	dataset->firsts[header->shard_count] = header->set_sample_count;
	dataset->class_count = header->class_count;
	dataset->has_statistics = header->content & PIMG_CONTENT_STATISTICS;
	memcpy(dataset->mean, header->mean, sizeof(dataset->mean));
	memcpy(dataset->std, header->std, sizeof(dataset->std));
	memcpy(dataset->uuid, header->set_uuid, sizeof(dataset->uuid));
	return fields_init(dataset, header->field_count, error);
}

int packimg_open(const char *path, struct packimg **ret_dataset, struct packimg_error *error)
{
	char file_path[SET_PATH_MAX];
	struct pimg_header header;
	struct shard shard;

	int r = set_resolve(path, file_path, error);
	if (r < 0)
		return r;
	r = shard_init(&shard, file_path, &header, error);
	if (r < 0)
		return r;
	struct packimg *dataset = calloc(1, sizeof(*dataset));
	if (!dataset) {
		shard_deinit(&shard);
		return packimg_fail(error, -ENOMEM, "%s: out of memory", path);
	}
	r = dataset_fill(dataset, &shard, &header, error);
	if (r < 0) {
		packimg_close(dataset);
		return r;
	}
	*ret_dataset = dataset;
	return 0;
}

void packimg_close(struct packimg *dataset)
{
	if (!dataset)
		return;
	for (uint32_t i = 0; i < dataset->shard_count; i++)
		shard_deinit(&dataset->shards[i]);
	for (uint32_t i = 0; i < dataset->field_count; i++)
		free((char *)dataset->fields[i].name);
	free(dataset->fields);
	free(dataset->shards);
	free(dataset->firsts);
	free(dataset);
}
