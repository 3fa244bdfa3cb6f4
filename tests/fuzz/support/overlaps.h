/*
 * Files with overlapping ranges. The base is a valid file that contains every kind of range:
 * header, sections of all known types and of an unknown one, columns of all types, samples of
 * all codecs with and without side data, and further images. The fuzzer moves ranges of a copy onto
 * one another. A model of the ranges, independent of the library, compares all pairs and finds
 * illegal overlaps (SPEC.md, "Ranges"). Afterwards the file's tables and checksums are updated to
 * match the model.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum overlaps_kind {
	OVERLAPS_HEADER,
	OVERLAPS_SECTION,
	OVERLAPS_COLUMN,
	OVERLAPS_DATA,
	OVERLAPS_SIDE,
	OVERLAPS_IMAGE,
	OVERLAPS_IMAGE_SIDE,
	OVERLAPS_KINDS,
};

struct overlaps_range {
	enum overlaps_kind kind;
	uint32_t number; /* index of the section table entry, field, sample or image */
	uint64_t offset, size;
};

enum { OVERLAPS_RANGES_MAX = 64, OVERLAPS_BYTES_MAX = 1 << 16 };

struct overlaps_file {
	struct overlaps_range ranges[OVERLAPS_RANGES_MAX]; /* range 0 is the header */
	unsigned count;
	size_t size;
	_Alignas(64) uint8_t bytes[OVERLAPS_BYTES_MAX];
};

/* New position of the moved range, relative to another range. */
enum overlaps_way {
	OVERLAPS_BEGIN,  /* both begin at the same byte */
	OVERLAPS_INSIDE, /* begins inside the other, at 64 * argument bytes */
	OVERLAPS_END,    /* begins before the other and ends inside it */
	OVERLAPS_REACH,  /* keeps its offset and grows until it reaches into the other */
	OVERLAPS_SAME,   /* takes the other's offset and size */
	OVERLAPS_AROUND, /* begins before the other and ends after it */
	OVERLAPS_FREE,   /* anywhere: offset is argument * 64, size is size_argument bytes */
	OVERLAPS_WAYS,
};

struct overlaps_move {
	unsigned moved, other; /* indices into ranges */
	enum overlaps_way way;
	uint32_t argument, size_argument;
	bool with_bytes; /* moves the bytes too; otherwise the range contains the bytes at the new
			    offset */
};

/* Makes the base in a temporary file. Aborts on failure. */
void overlaps_make(struct overlaps_file *ret_file);
/* Returns false and leaves the file unchanged if the move is not possible. */
bool overlaps_move(struct overlaps_file *file, const struct overlaps_move *move);
/* Writes tables and checksums that match the model. Call once, after all moves. */
void overlaps_settle(struct overlaps_file *file, const struct overlaps_file *base);
/* Returns true if any two ranges overlap illegally. */
bool overlaps_any(const struct overlaps_file *file);

/* Result of reading a file as the library and the daemon do. */
struct overlaps_verdict {
	int opened, checked; /* results of packimg_open_fds() and packimg_check() */
	char text[512];      /* error text of the call that failed */
	unsigned read;       /* number of samples read by io_uring */
};

/*
 * Opens and checks the file, and reads and decodes everything as the library does. Then reads every
 * sample as the daemon does: from the mapping, and by io_uring where available.
 */
void overlaps_serve(const struct overlaps_file *file, struct overlaps_verdict *ret_verdict);
