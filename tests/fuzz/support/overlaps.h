/*
 * Files whose ranges overlap. The base is a good file with everything that has a range: header,
 * sections of all known types and of an unknown one, columns of all types, samples of all codecs
 * with side data and without. Ranges of a copy are moved onto one another. A model of where each
 * one lies, independent of the library, says whether any two overlap (SPEC.md, "Ranges"), by
 * comparing each with each; the file is made to agree with it, checksums included.
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
};

struct overlaps_range {
	enum overlaps_kind kind;
	uint32_t number; /* entry of the section table, field, or sample */
	uint64_t offset, size;
};

enum { OVERLAPS_RANGES_MAX = 64, OVERLAPS_BYTES_MAX = 1 << 16 };

struct overlaps_file {
	struct overlaps_range ranges[OVERLAPS_RANGES_MAX]; /* the header is the first */
	unsigned count;
	size_t size;
	_Alignas(64) uint8_t bytes[OVERLAPS_BYTES_MAX];
};

/* Where a range goes, seen from another. */
enum overlaps_way {
	OVERLAPS_BEGIN,  /* they begin at the same byte */
	OVERLAPS_INSIDE, /* it begins at a later multiple of 64 in the other: argument */
	OVERLAPS_END,    /* it ends in the other, and begins before it */
	OVERLAPS_REACH,  /* it stays, and is enlarged by as much as reaches into the other */
	OVERLAPS_SAME,   /* it takes the offset and size of the other */
	OVERLAPS_AROUND, /* it begins before the other and ends behind it */
	OVERLAPS_FREE,   /* anywhere: at argument * 64, with size_argument bytes */
	OVERLAPS_WAYS,
};

struct overlaps_move {
	unsigned moved, other; /* ranges */
	enum overlaps_way way;
	uint32_t argument, size_argument;
	bool with_bytes; /* they come along, over what is there; else what is there is taken as is
			  */
};

/* Makes the base, in a temporary file. Aborts if that fails. */
void overlaps_make(struct overlaps_file *ret_file);
/* False: there is no such place. The file is what it was then. */
bool overlaps_move(struct overlaps_file *file, const struct overlaps_move *move);
/* Once after all moves: tables and checksums become those of the model. */
void overlaps_settle(struct overlaps_file *file, const struct overlaps_file *base);
/* Whether two ranges overlap that may not. */
bool overlaps_any(const struct overlaps_file *file);

/* What became of a file. */
struct overlaps_verdict {
	int opened, checked; /* what packimg_open_fds() and packimg_check() returned */
	char text[512];      /* of the one that failed */
	unsigned read;       /* samples that io_uring has read */
};

/*
 * Opens the file, checks it, reads and decodes all there is as the library does, then every sample
 * as the daemon does: from the mapping, and by io_uring where there is one.
 */
void overlaps_serve(const struct overlaps_file *file, struct overlaps_verdict *ret_verdict);
