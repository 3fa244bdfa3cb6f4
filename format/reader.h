/*
 * Internals of an open dataset, shared by reader.c (opening), lookup.c (sample queries), verify.c
 * and join.c. The file's owner may change it while it is open, so no byte is read twice. When
 * opening, pread() copies header, section table, classes, field names and metadata; only these
 * copies are validated and used. At each use, copy_once() copies index records, column headers and
 * string offsets from the mapping, or pread() if unmapped. Every bound of an access comes from such
 * a copy, so a changing file can cause wrong results but no out-of-bounds access. Immutable after
 * packimg_open().
 */
#pragma once

#include "format/base/copy_once.h"
#include "format/base/schema.h"
#include "format/layout.h"
#include "format/packimg.h"

/*
 * A section whose location is validated against the file, or a private copy of it. NULL and size 0
 * if the file lacks the section.
 */
struct section_view {
	const uint8_t *data;
	uint64_t size;
	uint64_t xxh3;
};

/* Location of a nonempty section, of a known or unknown type. */
struct section_extent {
	uint64_t begin, end;
	uint64_t xxh3;
	uint32_t type;
};

struct shard {
	char *path; /* for error messages; for a set opened from descriptors, name and number */
	int fd;
	const uint8_t *map; /* reserved inaccessible addresses if unmapped */
	uint64_t size;      /* bytes mapped: the header's file_size */
	/* offset of the first section; data that ends before it overlaps no section */
	uint64_t sections_begin;
	uint64_t sample_first;
	uint64_t sample_count;
	struct section_view sections[PIMG_SECTION_KNOWN_MAX + 1]; /* by enum pimg_section_type */
	struct section_extent extents[PIMG_SECTIONS_MAX];
	uint32_t extent_count;
	bool has_images; /* the feature `images`: PIMG_INCOMPATIBLE_IMAGES */
};

struct join; /* format/join_internal.h */

/*
 * A dataset: its shards, or those of its parts if packimg_join() made it. A joined dataset has no
 * shards, firsts, field_values and name.
 */
struct packimg {
	struct join *join; /* owned; NULL unless joined */
	/* name of all files of a dataset opened from descriptors; NULL if each shard has a path */
	char *name;
	struct shard *shards;
	/*
	 * sample_first of each shard, then the total. Kept in a separate array so that the search
	 * touches nothing else.
	 */
	uint64_t *firsts;
	uint32_t open_count; /* number of open shards: all, or 0 after packimg_open_info() */
	uint32_t shard_count;
	uint32_t class_count;
	uint64_t sample_count;
	uint64_t sample_end; /* accessible samples: sample_count, or 0 after packimg_open_info() */
	struct section_view classes, metadata; /* private copies */
	struct packimg_field *fields;
	uint32_t field_count;
	/*
	 * The schema of section 8, or the implied one. For each field, field_values has the value
	 * that it stores; NULL if the schema is implied or has no such value.
	 */
	struct schema schema;
	bool has_schema;
	uint32_t image_count; /* records of each sample in section `images` */
	const struct schema_value **field_values;
	uint64_t source_longest; /* bytes of the longest source name, or PACKIMG_LONGEST_UNKNOWN */
	bool unmapped;           /* read shard bytes, sections and columns with pread() */
	bool has_statistics;
	double mean[3], std[3];
	uint8_t uuid[16];
};

/*
 * Returns the last of `count` parts that begins at or before index, which must be less than the
 * total. firsts has the first index of each part, then the total. So the result is not an empty
 * part.
 */
uint32_t firsts_find(const uint64_t *firsts, uint32_t count, uint64_t index);

/*
 * Returns the reason why an index record is invalid, as the end of a sentence, or NULL if it is
 * valid. Checks the record and its ranges against the sections. Overlaps between records are left
 * to ranges_check().
 */
const char *record_fault(const struct packimg *dataset, const struct shard *shard,
			 const struct pimg_record *record);

/*
 * Copies bytes of a shard's file once; the caller validates and uses the copy. at is their address
 * in the mapping or, if unmapped, in the reserved address space. The range must be validated
 * against the file. -EBADMSG if an unmapped file has shrunk.
 */
int shard_copy(const struct packimg *dataset, const struct shard *shard, const void *at,
	       void *bytes, size_t size);
/* Returns the shard that holds the sample; index must be in range. */
const struct shard *shard_of_sample(const struct packimg *dataset, uint64_t index,
				    uint32_t *ret_number);

/*
 * The records of one sample: that of the index, and those of section `images`, of which a sample
 * may lack some (all zero).
 */
struct sample_records {
	struct pimg_record index;
	struct pimg_record images[SCHEMA_IMAGES_MAX]; /* the first image_count are valid */
};

/*
 * Returns how record `image` of section `images` is invalid, as record_fault() does, also against
 * the record of its frame. The index record must be valid.
 */
const char *image_record_fault(const struct packimg *dataset, const struct shard *shard,
			       const struct sample_records *records, uint32_t image);
bool record_is_absent(const struct pimg_record *record);
/* Returns record `image` of the shard's sample i in the mapping. */
const uint8_t *image_record_at(const struct packimg *dataset, const struct shard *shard, uint64_t i,
			       uint32_t image);

/*
 * Returns one string of a section of strings with count entries; -EBADMSG if its offsets exceed the
 * section.
 */
int strings_get(const struct section_view *section, uint64_t count, uint64_t index,
		const char **ret_text, uint64_t *ret_size);

/*
 * One column of a shard, validated against the file. All members are NULL if the shard lacks the
 * column.
 */
struct column_view {
	const uint8_t *present; /* bitmap at the start of the column */
	const void *values;     /* 8 bytes each */
	const uint8_t *bytes;   /* bytes of the values; only for BYTES, TEXT and JSON */
	uint64_t bytes_size;
	uint64_t size, xxh3; /* size and checksum of the whole column */
};

/* -EBADMSG if the location or size of the column is wrong. field must be in range. */
int column_view_get(const struct packimg *dataset, const struct shard *shard, uint32_t field,
		    struct column_view *ret_view);

/*
 * Checks that no two ranges of the file overlap (SPEC.md, "Ranges"). -EBADMSG if two do; the
 * message names both. Ignores ranges outside the file, which other checks report. -ENOMEM if the
 * samples are not in file order and there is no memory to sort them.
 */
int ranges_check(const struct packimg *dataset, const struct shard *shard,
		 struct packimg_error *error);
/*
 * Checks that a rewrite of the file keeps what sections of unknown types may lead to: if there are
 * any, every byte outside all ranges must be zero. -ENOTSUP if one is not; the message has its
 * offset. -ENOMEM. Needs a file that ranges_check() has accepted.
 */
int ranges_check_gaps(const struct packimg *dataset, const struct shard *shard,
		      struct packimg_error *error);
