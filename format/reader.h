/*
 * Inside of an open dataset, shared by reader.c (opening), lookup.c (answers about samples) and
 * verify.c. A file's owner may change it while it is open, so nothing is read twice: header,
 * section table, classes, field names and metadata were copied with pread() when opening and are
 * checked and used in that copy; index records, heads of columns and offsets of strings are copied
 * at each use, with copy_once() from the mapping, or with pread() where there is none. Everything
 * that bounds an access comes from such a copy: a file that changes underneath can give wrong
 * answers but no stray accesses. Immutable after packimg_open().
 */
#pragma once

#include "format/base/copy_once.h"
#include "format/layout.h"
#include "format/packimg.h"

/*
 * A section's place after it was checked against the file, or a private copy of it; size 0 and NULL
 * when absent.
 */
struct section_view {
	const uint8_t *data;
	uint64_t size;
	uint64_t xxh3;
};

/* Where a section lies that is not empty, of a known type or not. */
struct section_extent {
	uint64_t begin, end;
	uint32_t type;
};

struct shard {
	char *path; /* in texts: for a set of descriptors a name and a number */
	int fd;
	const uint8_t *map; /* of an unmapped dataset: reserved addresses without access */
	uint64_t size;      /* bytes mapped: the header's file_size */
	/* where the first section begins: what ends before it overlaps none */
	uint64_t sections_begin;
	uint64_t sample_first;
	uint64_t sample_count;
	struct section_view sections[PIMG_SECTION_KNOWN_MAX + 1]; /* by enum pimg_section_type */
	struct section_extent extents[PIMG_SECTIONS_MAX];
	uint32_t extent_count;
};

struct packimg {
	char *name; /* of all files when they came as descriptors; NULL: each shard has its path */
	struct shard *shards;
	/* sample_first of each shard, then the total: the search touches nothing else */
	uint64_t *firsts;
	uint32_t open_count; /* shards that are there: all, or none when only facts were opened */
	uint32_t shard_count;
	uint32_t class_count;
	uint64_t sample_count;
	uint64_t sample_end; /* samples that can be asked for: sample_count, or 0 */
	struct section_view classes, metadata; /* private copies */
	struct packimg_field *fields;
	uint32_t field_count;
	uint64_t source_longest; /* or PACKIMG_LONGEST_UNKNOWN */
	bool unmapped;           /* shards' bytes are read with pread(); sections and columns too */
	bool has_statistics;
	double mean[3], std[3];
	uint8_t uuid[16];
};

/*
 * Why a record cannot be used, as the end of a sentence; NULL when it can. Looks at the record and
 * at the places of the sections: that its ranges overlap no other record's is for ranges_check().
 */
const char *record_fault(const struct packimg *dataset, const struct shard *shard,
			 const struct pimg_record *record);

/* A string of a strings section with count entries; -EBADMSG when its offsets leave the section. */
int strings_get(const struct section_view *section, uint64_t count, uint64_t index,
		const char **ret_text, uint64_t *ret_size);

/*
 * The parts of one column of a shard, checked against the file; all NULL when the column is absent.
 */
struct column_view {
	const uint8_t *present; /* bitmap, where the column begins */
	const void *values;     /* 8 bytes each */
	const uint8_t *bytes;   /* of BYTES, TEXT and JSON */
	uint64_t bytes_size;
	uint64_t size, xxh3; /* of the whole column */
};

/* -EBADMSG when the column's place or size is wrong. field is in range. */
int column_view_get(const struct packimg *dataset, const struct shard *shard, uint32_t field,
		    struct column_view *ret_view);

/*
 * -EBADMSG when two ranges of the file overlap (SPEC.md, "Ranges"), with both in the sentence.
 * Ranges that do not fit the file are left to the other checks. -ENOMEM: samples do not lie in
 * their order, and the memory to sort them is missing.
 */
int ranges_check(const struct packimg *dataset, const struct shard *shard,
		 struct packimg_error *error);
