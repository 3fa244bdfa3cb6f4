#include "format/header.h"

#include "format/base/schema.h"
#include "format/base/system/io.h"
#include "format/error.h"
#include "format/foreign_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
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

/* Reports a file whose first bytes are not those of a .pimg file. */
static int header_refuse(const void *bytes, size_t size, const char *path,
			 struct packimg_error *error)
{
	const struct foreign *foreign =
		foreign_format_of_head(bytes, size < FOREIGN_HEAD ? size : FOREIGN_HEAD);

	if (foreign)
		return packimg_damaged(error, "%s: not a .pimg file, but %s: %s", path,
				       foreign->what, foreign->remedy);
	if (size < sizeof(struct pimg_header))
		return packimg_damaged(error, "%s: shorter than a header; not a .pimg file", path);
	return packimg_damaged(error,
			       "%s: not a .pimg file (wrong magic), or a conversion that "
			       "did not finish",
			       path);
}

/*
 * Checks magic, version, checksum, size and features, without which no other field has a meaning.
 */
static int header_identify(const struct pimg_header *header, const char *path,
			   struct packimg_error *error)
{
	if (memcmp(header->magic, PIMG_MAGIC, sizeof(header->magic)) != 0)
		return header_refuse(header, sizeof(*header), path, error);
	if (header->version > PIMG_VERSION)
		return packimg_fail(
			error, -ENOTSUP,
			"%s: format version %u, this program reads up to %d; use a newer loaderd",
			path, header->version, PIMG_VERSION);
	if (header->version == 0)
		return packimg_damaged(error, "%s: version is 0; the file is damaged", path);
	if (XXH3_64bits(header, offsetof(struct pimg_header, header_xxh3)) != header->header_xxh3)
		return packimg_damaged(
			error, "%s: header_xxh3 does not match; the header is damaged", path);
	if (header->header_size != sizeof(*header))
		return packimg_damaged(error, "%s: header_size is %u, expected %zu", path,
				       header->header_size, sizeof(*header));
	if (header->incompatible & ~PIMG_INCOMPATIBLE_KNOWN)
		return packimg_fail(error, -ENOTSUP,
				    "%s: needs features 0x%" PRIx64
				    " that this program does not know; use a newer loaderd",
				    path, header->incompatible & ~PIMG_INCOMPATIBLE_KNOWN);
	if (header->reserved_0 || !is_zero(header->reserved_1, sizeof(header->reserved_1)) ||
	    !is_zero(header->reserved_2, sizeof(header->reserved_2)))
		return packimg_damaged(error, "%s: reserved bytes of the header are not zero",
				       path);
	return 0;
}

static int header_check_counts(const struct pimg_header *header, const char *path,
			       uint64_t file_size, struct packimg_error *error)
{
	if (header->file_size > file_size)
		return packimg_damaged(error,
				       "%s: truncated, %" PRIu64 " of %" PRIu64
				       " bytes are there; copy or convert it again",
				       path, file_size, header->file_size);
	if (header->file_size < sizeof(*header))
		return packimg_damaged(error, "%s: file_size is %" PRIu64 ", less than a header",
				       path, header->file_size);
	if (header->sample_count > PIMG_SAMPLES_MAX ||
	    header->set_sample_count > PIMG_SAMPLES_MAX ||
	    header->sample_first > header->set_sample_count ||
	    header->sample_count > header->set_sample_count - header->sample_first)
		return packimg_damaged(error,
				       "%s: sample_first %" PRIu64 " and sample_count %" PRIu64
				       " do not fit set_sample_count %" PRIu64,
				       path, header->sample_first, header->sample_count,
				       header->set_sample_count);
	if (header->shard_count == 0 || header->shard_count > PACKIMG_SHARDS_MAX ||
	    header->shard_index >= header->shard_count)
		return packimg_damaged(error, "%s: shard_index %u of shard_count %u", path,
				       header->shard_index, header->shard_count);
	if (header->class_count > PACKIMG_CLASSES_MAX)
		return packimg_damaged(error, "%s: class_count is %u, at most %d are possible",
				       path, header->class_count, PACKIMG_CLASSES_MAX);
	if (header->field_count > PACKIMG_FIELDS_MAX)
		return packimg_damaged(error, "%s: field_count is %u, at most %d are possible",
				       path, header->field_count, PACKIMG_FIELDS_MAX);
	if (header->content & ~(uint32_t)PIMG_CONTENT_STATISTICS)
		return packimg_damaged(error, "%s: content has reserved bits set (0x%x)", path,
				       header->content);
	for (int i = 0; i < 3; i++) {
		bool recorded = header->content & PIMG_CONTENT_STATISTICS;
		if (!isfinite(header->mean[i]) || !isfinite(header->std[i]) ||
		    (!recorded && (header->mean[i] != 0 || header->std[i] != 0)))
			return packimg_damaged(
				error, "%s: mean or std is not a number, or not declared", path);
	}
	return 0;
}

/*
 * Layout of a section: an entry of `bytes` bytes for each item of kind `each`, and `more` further
 * entries.
 */
static const struct section_rule {
	enum { OF_NOTHING, OF_SAMPLES, OF_CLASSES, OF_FIELDS } each;
	uint32_t bytes, more;
	bool exact; /* nothing may follow the entries */
} rules[] = {
	[PIMG_SECTION_INDEX] = {OF_SAMPLES, sizeof(struct pimg_record), 0, true},
	[PIMG_SECTION_SOURCES] = {OF_SAMPLES, sizeof(uint64_t), 1, false},
	[PIMG_SECTION_CLASSES] = {OF_CLASSES, sizeof(uint64_t), 1, false},
	[PIMG_SECTION_FIELDS] = {OF_FIELDS, sizeof(struct pimg_field), 0, false},
	[PIMG_SECTION_COLUMNS] = {OF_FIELDS, sizeof(struct pimg_column), 0, true},
	[PIMG_SECTION_METADATA] = {OF_NOTHING, 1, 1, false},
	[PIMG_SECTION_FIELD_STATS] = {OF_FIELDS, sizeof(struct pimg_field_stats), 1, true},
	[PIMG_SECTION_SCHEMA] = {OF_NOTHING, sizeof(struct schema_head), 1, false},
	/* reader.c compares the size with the schema */
	[PIMG_SECTION_IMAGES] = {OF_SAMPLES, sizeof(struct pimg_record), 0, false},
	[PIMG_SECTION_MEMBERS] = {OF_CLASSES, sizeof(uint64_t), 1, false},
	[PIMG_SECTION_SIZES] = {OF_SAMPLES, sizeof(struct pimg_size), 0, true},
};

/* Checks section `members`, which has its starts: a number of at most each sample follows. */
static int members_check(const struct pimg_header *header, const char *path, uint64_t size,
			 struct packimg_error *error)
{
	uint64_t numbers = size - (header->class_count + UINT64_C(1)) * sizeof(uint64_t);

	if (header->class_count == 0)
		return packimg_damaged(error, "%s: has a section `members`, but no classes", path);
	if (header->sample_count > PIMG_MEMBERS_SAMPLES_MAX)
		return packimg_damaged(error,
				       "%s: has a section `members` and %" PRIu64
				       " samples, at most %" PRIu64 " are possible",
				       path, header->sample_count, PIMG_MEMBERS_SAMPLES_MAX);
	if (numbers % sizeof(uint32_t) != 0 || numbers / sizeof(uint32_t) > header->sample_count)
		return packimg_damaged(error,
				       "%s: the section `members` has %" PRIu64
				       " bytes, which does not fit %u classes and %" PRIu64
				       " samples",
				       path, size, header->class_count, header->sample_count);
	return 0;
}

static int section_check(const struct pimg_header *header, const char *path, uint32_t number,
			 struct packimg_error *error)
{
	const struct pimg_section *section = &header->sections[number];

	if (number >= header->section_count) {
		if (!is_zero(section, sizeof(*section)))
			return packimg_damaged(error,
					       "%s: section %u is past section_count and not zero",
					       path, number);
		return 0;
	}
	if (section->type == PIMG_SECTION_NONE || section->flags != 0)
		return packimg_damaged(error, "%s: section %u has type %u and flags 0x%x", path,
				       number, section->type, section->flags);
	if (section->offset % PIMG_ALIGN != 0 || section->offset < sizeof(*header) ||
	    section->offset > header->file_size ||
	    section->size > header->file_size - section->offset)
		return packimg_damaged(error,
				       "%s: section %u (type %u) at %" PRIu64 " with %" PRIu64
				       " bytes does not fit the file of %" PRIu64,
				       path, number, section->type, section->offset, section->size,
				       header->file_size);
	if (section->type > PIMG_SECTION_KNOWN_MAX)
		return 0;
	if (header_section(header, section->type) != section)
		return packimg_damaged(error, "%s: two sections of type %u", path, section->type);
	const struct section_rule *rule = &rules[section->type];
	const uint64_t counts[] = {0, header->sample_count, header->class_count,
				   header->field_count};
	uint64_t size = (counts[rule->each] + rule->more) * rule->bytes;
	if (section->size < size || (rule->exact && section->size != size) ||
	    (section->type == PIMG_SECTION_METADATA && section->size > PIMG_METADATA_MAX) ||
	    (section->type == PIMG_SECTION_SCHEMA && section->size > PIMG_SCHEMA_SIZE_MAX))
		return packimg_damaged(error,
				       "%s: section of type %u has %" PRIu64
				       " bytes, which does not fit its entries",
				       path, section->type, section->size);
	if (section->type == PIMG_SECTION_CLASSES && section->size > PIMG_CLASSES_SIZE_MAX)
		return packimg_damaged(error,
				       "%s: the class names take %" PRIu64
				       " bytes, at most %d are possible; use shorter names",
				       path, section->size, PIMG_CLASSES_SIZE_MAX);
	return section->type == PIMG_SECTION_MEMBERS
		       ? members_check(header, path, section->size, error)
		       : 0;
}

/* Checks that sections do not overlap. Each section must fit the file. */
static int sections_check_overlaps(const struct pimg_header *header, const char *path,
				   struct packimg_error *error)
{
	for (uint32_t i = 0; i < header->section_count; i++)
		for (uint32_t k = 0; k < i; k++) {
			const struct pimg_section *a = &header->sections[k],
						  *b = &header->sections[i];
			if (a->size > 0 && b->size > 0 && a->offset < b->offset + b->size &&
			    b->offset < a->offset + a->size)
				return packimg_damaged(
					error,
					"%s: sections of types %u (bytes %" PRIu64 " to %" PRIu64
					") and %u (bytes %" PRIu64 " to %" PRIu64
					") overlap; convert the images again",
					path, a->type, a->offset, a->offset + a->size - 1, b->type,
					b->offset, b->offset + b->size - 1);
		}
	return 0;
}

static int header_check_sections(const struct pimg_header *header, const char *path,
				 struct packimg_error *error)
{
	if (header->section_count > PIMG_SECTIONS_MAX)
		return packimg_damaged(error, "%s: section_count is %u, at most %d are possible",
				       path, header->section_count, PIMG_SECTIONS_MAX);
	for (uint32_t i = 0; i < PIMG_SECTIONS_MAX; i++) {
		int r = section_check(header, path, i, error);
		if (r < 0)
			return r;
	}
	int r = sections_check_overlaps(header, path, error);
	if (r < 0)
		return r;
	if (!header_section(header, PIMG_SECTION_INDEX))
		return packimg_damaged(error, "%s: the index section is missing", path);
	if (header_section(header, PIMG_SECTION_IMAGES) &&
	    !(header->incompatible & PIMG_INCOMPATIBLE_IMAGES))
		return packimg_damaged(error,
				       "%s: has a section `images`, but not the feature of that "
				       "name (bit 0 of incompatible)",
				       path);
	if (!!header_section(header, PIMG_SECTION_CLASSES) != (header->class_count > 0))
		return packimg_damaged(
			error, "%s: class_count is %u and the class section does not fit that",
			path, header->class_count);
	if (!!header_section(header, PIMG_SECTION_FIELDS) != (header->field_count > 0) ||
	    !!header_section(header, PIMG_SECTION_COLUMNS) != (header->field_count > 0))
		return packimg_damaged(
			error, "%s: field_count is %u and the field sections do not fit that", path,
			header->field_count);
	return 0;
}

const struct pimg_section *header_section(const struct pimg_header *header, uint32_t type)
{
	for (uint32_t i = 0; i < header->section_count; i++)
		if (header->sections[i].type == type)
			return &header->sections[i];
	return NULL;
}

/* Checks that the descriptor can be read and mapped, and returns the size of its file. */
static int file_check(int fd, const char *name, uint64_t *ret_size, struct packimg_error *error)
{
	struct statfs system = {0};
	struct stat status;

	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
		return packimg_fail(error, -EINVAL, "%s: the descriptor is not open for reading",
				    name);
	/*
	 * Make the system call directly: glibc's fstat() calls newfstatat, which also takes paths
	 * and is denied in a sandbox. On hugetlbfs st_blksize is the huge page size, so most files
	 * need no fstatfs().
	 */
	if (syscall(SYS_fstat, fd, &status) < 0 ||
	    (status.st_blksize > sysconf(_SC_PAGESIZE) && fstatfs(fd, &system) < 0)) {
		int r = -errno;
		return packimg_fail(error, r, "%s: cannot stat: %s", name, strerror(-r));
	}
	if (!S_ISREG(status.st_mode))
		return packimg_fail(error, -EINVAL, "%s: not a regular file", name);
	/*
	 * hugetlbfs pages cannot be freed one by one, and punching a hole kills the file's readers.
	 */
	if ((uint32_t)system.f_type == HUGETLBFS_MAGIC)
		return packimg_fail(
			error, -EINVAL,
			"%s: is on hugetlbfs; move it to an ordinary file system, or to a tmpfs",
			name);
	*ret_size = (uint64_t)status.st_size;
	return 0;
}

int header_pread(int fd, const char *name, void *bytes, uint64_t size, uint64_t offset,
		 struct packimg_error *error)
{
	int64_t n = io_read_at(fd, bytes, size, offset);

	if (n < 0)
		return packimg_fail(error, (int)n, "%s: cannot be read: %s", name,
				    strerror((int)-n));
	if ((uint64_t)n != size)
		return packimg_damaged(error, "%s: truncated while it was opened", name);
	return 0;
}

int header_read(int fd, const char *name, struct pimg_header *ret_header,
		struct packimg_error *error)
{
	struct pimg_header header;
	uint64_t size = 0;

	int r = file_check(fd, name, &size, error);
	if (r < 0)
		return r;
	int64_t n = io_read_at(fd, &header, sizeof(header), 0);
	if (n < 0)
		return packimg_fail(error, (int)n, "%s: cannot be read as a file: %s", name,
				    strerror((int)-n));
	if (n != sizeof(header))
		return header_refuse(&header, (size_t)n, name, error);
	r = header_identify(&header, name, error);
	r = r ?: header_check_counts(&header, name, size, error);
	r = r ?: header_check_sections(&header, name, error);
	if (r < 0)
		return r;
	*ret_header = header;
	return 0;
}
