/*
 * On-disk layout of a .pimg file: little-endian, naturally aligned, all padding named. A file is
 * one header, then samples and sections in any order, each at a multiple of PIMG_ALIGN. The
 * structures overlay the mapping directly: check bounds before reading them (reader.c). SPEC.md has
 * the same layout in tables, from "Header" on; change both together, and the golden file with them.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libpackimg maps little-endian structures and needs a little-endian machine"
#endif

/*
 * 0x89 detects 7-bit transfers, CR LF and LF detect line end conversion, 0x1a stops a text display.
 */
#define PIMG_MAGIC "\x89PIMG\r\n\x1a"

enum {
	PIMG_VERSION = 1,
	PIMG_ALIGN = 64,             /* alignment of samples, side data and sections */
	PIMG_SECTIONS_MAX = 23,      /* entries of the section table */
	PIMG_TAIL = 64,              /* bytes of the file that must follow sample and side data */
	PIMG_METADATA_MAX = 1 << 24, /* bytes, terminator included */
	/*
	 * Maximum size in bytes of the class section, of which a reader keeps a copy.
	 * PACKIMG_CLASSES_MAX names of seven letters fill it.
	 */
	PIMG_CLASSES_SIZE_MAX = 1 << 28,
	/* Bytes of the schema section of any version, of which a reader keeps a copy. */
	PIMG_SCHEMA_SIZE_MAX = 1 << 16,
};

#define PIMG_SAMPLES_MAX ((uint64_t)1 << 48)
/* Samples of a file with a section `members`, whose sample numbers have 32 bits. */
#define PIMG_MEMBERS_SAMPLES_MAX ((uint64_t)1 << 32)

/* Bits of pimg_header.incompatible. */
enum {
	/* the dataset has a section `images`, or a record of codec raster */
	PIMG_INCOMPATIBLE_IMAGES = 1 << 0,
};

/* Bits of pimg_header.incompatible that this version understands. */
#define PIMG_INCOMPATIBLE_KNOWN ((uint64_t)PIMG_INCOMPATIBLE_IMAGES)

/* Bits of pimg_header.content; all others are reserved. */
enum {
	PIMG_CONTENT_STATISTICS = 1 << 0, /* mean and std are recorded */
};

enum pimg_section_type {
	PIMG_SECTION_NONE = 0,    /* unused entry: all zero */
	PIMG_SECTION_INDEX = 1,   /* pimg_record[sample_count] */
	PIMG_SECTION_SOURCES = 2, /* strings: source name of each sample */
	PIMG_SECTION_CLASSES = 3, /* strings: class names, same in every shard */
	PIMG_SECTION_FIELDS = 4,  /* pimg_field[field_count], then the names, same in every shard */
	PIMG_SECTION_COLUMNS = 5, /* pimg_column[field_count] */
	PIMG_SECTION_METADATA = 6,    /* text, terminated, same in every shard */
	PIMG_SECTION_FIELD_STATS = 7, /* pimg_field_stats[field_count + 1], same in every shard */
	PIMG_SECTION_SCHEMA = 8,      /* format/base/schema.h, same in every shard */
	/* pimg_record[sample_count * k]: the k further images of each sample */
	PIMG_SECTION_IMAGES = 9,
	/* uint64_t starts[class_count + 1], then the sample numbers, uint32_t each, by class */
	PIMG_SECTION_MEMBERS = 10,
	PIMG_SECTION_SIZES = 11, /* pimg_size[sample_count] */
	PIMG_SECTION_KNOWN_MAX = 11,
};

struct pimg_section {
	uint32_t type;   /* enum pimg_section_type */
	uint32_t flags;  /* reserved */
	uint64_t offset; /* from the start of the file, a multiple of PIMG_ALIGN */
	uint64_t size;   /* bytes */
	uint64_t xxh3;   /* XXH3-64 of the section */
};

struct pimg_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t header_size;   /* sizeof(struct pimg_header) */
	uint64_t incompatible;  /* features that a reader must support to read the file */
	uint64_t compatible;    /* features that a reader may ignore */
	uint8_t set_uuid[16];   /* UUID of the dataset, the same in all its shards */
	uint8_t shard_uuid[16]; /* UUID of this file */
	uint64_t file_size;     /* bytes that belong to the file */
	uint64_t sample_count;  /* samples in this file */
	uint64_t sample_first;  /* dataset index of this file's first sample */
	uint64_t set_sample_count;
	uint32_t shard_index;
	uint32_t shard_count; /* 1 for a single file */
	uint32_t class_count;
	uint32_t field_count;
	uint32_t section_count; /* used entries, which come first in the table */
	uint32_t content;       /* PIMG_CONTENT_ bits */
	uint64_t reserved_0;
	double mean[3]; /* R, G, B in 0..255 */
	double std[3];
	uint8_t reserved_1[80];
	struct pimg_section sections[PIMG_SECTIONS_MAX];
	uint8_t reserved_2[24];
	uint64_t header_xxh3; /* XXH3-64 of all header bytes before this field */
};

struct pimg_record {
	uint64_t data_offset; /* multiple of PIMG_ALIGN */
	uint64_t side_offset; /* multiple of PIMG_ALIGN; 0 when there is none */
	uint64_t data_xxh3;
	uint64_t side_xxh3; /* 0 when there is none */
	uint32_t data_size;
	uint32_t side_size; /* 0 when there is none */
	uint32_t width;     /* after orientation */
	uint32_t height;
	int32_t label;
	uint8_t codec;
	uint8_t channels;
	uint8_t orientation;
	uint8_t reserved_0;
	uint64_t reserved_1;
};

/*
 * A section of strings: (count + 1) uint64 offsets, then the bytes. Offsets are relative to the
 * first of those bytes. The first offset is 0, the last is the number of bytes; string i is [offset
 * i, offset i + 1).
 */

struct pimg_field {
	uint32_t type;        /* enum packimg_field_type */
	uint32_t name_size;   /* bytes, without terminator */
	uint64_t name_offset; /* offset of the name from the start of the section */
	uint64_t reserved_0;
	uint64_t reserved_1;
};

enum pimg_value_kind {
	PIMG_VALUE_PLAIN = 0, /* no special kind; readers treat unknown kinds like this one */
	PIMG_VALUE_TEXT = 1,  /* a BYTES field holds UTF-8 without NUL */
};

/*
 * Statistics of the values of one field in the whole dataset. The last entry describes the source
 * names.
 */
struct pimg_field_stats {
	uint64_t longest; /* bytes of the longest value; 0 for INT64 and FLOAT64 */
	uint32_t kind;    /* enum pimg_value_kind */
	uint32_t reserved_0;
};

/*
 * One column of this file: a bitmap (bit i % 8 of byte i / 8 is set if sample i has a value),
 * padded to a multiple of 8 bytes, then sample_count 8-byte values. For BYTES and JSON,
 * (sample_count + 1) uint64 offsets instead of the values; the bytes into which they point follow.
 */
struct pimg_column {
	/*
	 * from the start of the file, a multiple of PIMG_ALIGN; 0 if no sample of this file has a
	 * value
	 */
	uint64_t offset;
	uint64_t size;
	uint64_t xxh3;
	uint64_t reserved_0;
};

/* Upright size of a sample's image, as in its index record. */
struct pimg_size {
	uint16_t width;
	uint16_t height;
};

/* Header of an item of side data. The content follows, then zeros up to a multiple of 8 bytes. */
struct pimg_side_item {
	uint32_t kind; /* enum pimg_side_kind */
	uint32_t size; /* bytes of the content */
};

enum pimg_side_kind {
	PIMG_SIDE_JPEG_INDEX =
		1, /* positions in the scan where decoding can start: codec/jpeg/jpeg_index.h */
	PIMG_SIDE_PRIVATE = 1u << 31, /* this value and above: free for private use */
};

static_assert(sizeof(struct pimg_section) == 32, "SPEC.md, Section table");
static_assert(offsetof(struct pimg_section, flags) == 4, "SPEC.md, Section table");
static_assert(offsetof(struct pimg_section, offset) == 8, "SPEC.md, Section table");
static_assert(offsetof(struct pimg_section, size) == 16, "SPEC.md, Section table");
static_assert(offsetof(struct pimg_section, xxh3) == 24, "SPEC.md, Section table");

static_assert(sizeof(struct pimg_header) == 1024, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, version) == 8, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, header_size) == 12, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, incompatible) == 16, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, compatible) == 24, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, set_uuid) == 32, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, shard_uuid) == 48, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, file_size) == 64, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, sample_count) == 72, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, sample_first) == 80, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, set_sample_count) == 88, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, shard_index) == 96, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, shard_count) == 100, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, class_count) == 104, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, field_count) == 108, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, section_count) == 112, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, content) == 116, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, mean) == 128, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, std) == 152, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, reserved_1) == 176, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, sections) == 256, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, reserved_2) == 992, "SPEC.md, Header");
static_assert(offsetof(struct pimg_header, header_xxh3) == 1016, "SPEC.md, Header");

static_assert(sizeof(struct pimg_record) == 64, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, side_offset) == 8, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, data_xxh3) == 16, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, side_xxh3) == 24, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, data_size) == 32, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, side_size) == 36, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, width) == 40, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, height) == 44, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, label) == 48, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, codec) == 52, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, channels) == 53, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, orientation) == 54, "SPEC.md, Index");
static_assert(offsetof(struct pimg_record, reserved_1) == 56, "SPEC.md, Index");

static_assert(sizeof(struct pimg_field) == 32, "SPEC.md, Fields");
static_assert(offsetof(struct pimg_field, name_size) == 4, "SPEC.md, Fields");
static_assert(offsetof(struct pimg_field, name_offset) == 8, "SPEC.md, Fields");

static_assert(sizeof(struct pimg_field_stats) == 16, "SPEC.md, Field statistics");
static_assert(offsetof(struct pimg_field_stats, kind) == 8, "SPEC.md, Field statistics");

static_assert(sizeof(struct pimg_column) == 32, "SPEC.md, Columns");
static_assert(offsetof(struct pimg_column, size) == 8, "SPEC.md, Columns");
static_assert(offsetof(struct pimg_column, xxh3) == 16, "SPEC.md, Columns");

static_assert(sizeof(struct pimg_size) == 4, "SPEC.md, Sizes");
static_assert(offsetof(struct pimg_size, height) == 2, "SPEC.md, Sizes");

static_assert(sizeof(struct pimg_side_item) == 8, "SPEC.md, Side data");
static_assert(offsetof(struct pimg_side_item, size) == 4, "SPEC.md, Side data");
