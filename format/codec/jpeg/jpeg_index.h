/*
 * Index into the scan of a baseline JPEG. It has a few entries per MCU row: positions where
 * decoding can start, each with its first bit and DC predictors (SPEC.md, "JPEG index"). Bytes from
 * a file are untrusted: jpeg_index_open() checks everything that can be checked without decoding.
 * Plain values, no ownership.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"

#include <stdbool.h>

enum {
	JPEG_INDEX_VERSION = 2,
	JPEG_INDEX_ENTRIES_MAX = 8, /* per row */
};

/* A position where decoding can start. */
struct jpeg_index_entry {
	uint64_t position; /* bits from the first byte of the scan, stuffing included */
	int16_t dc[JPEG_COMPONENTS_MAX];
};

/* The parts of an index that all rows share. */
struct jpeg_index_plan {
	uint32_t row_count;
	uint32_t component_count;
	uint32_t entry_count; /* entries per row, at least 1 */
	/* MCU column at which each entry starts, ascending; the first is 0 */
	uint32_t columns[JPEG_INDEX_ENTRIES_MAX];
};

struct jpeg_index {
	struct jpeg_index_plan plan;
	uint32_t position_bits, offset_bits,
		dc_bits[JPEG_COMPONENTS_MAX]; /* field widths in bits */
	uint32_t entry_bits, row_bits;
	const uint8_t *rows; /* row_count * row_bits bits */
	size_t rows_size;    /* bytes */
};

/*
 * True if the frame can have an index: restart markers occur only between rows, and positions fit
 * 32 bits.
 */
bool jpeg_index_possible(const struct jpeg_frame *frame);
/*
 * Chooses the number and columns of the entries of a row. The number depends on file_size, in
 * bytes.
 */
void jpeg_index_plan(const struct jpeg_frame *frame, size_t file_size,
		     struct jpeg_index_plan *ret_plan);
/* Upper bound of the size of an index, in bytes. */
size_t jpeg_index_size_max(const struct jpeg_index_plan *plan);
/* Packs entry_count entries for each of row_count rows, row by row. Returns the bytes used. */
size_t jpeg_index_pack(const struct jpeg_index_plan *plan, const struct jpeg_index_entry *entries,
		       uint8_t *output);

/* Returns 0, or -EBADMSG if version, size or frame do not match. */
int jpeg_index_open(const uint8_t *data, size_t size, const struct jpeg_frame *frame,
		    struct jpeg_index *ret_index);
/* Returns the last entry of a row at or before an MCU column. */
uint32_t jpeg_index_before(const struct jpeg_index *index, uint32_t column);
/* Return the position of an entry, or the complete entry. */
uint64_t jpeg_index_position(const struct jpeg_index *index, uint32_t row, uint32_t entry);
struct jpeg_index_entry jpeg_index_get(const struct jpeg_index *index, uint32_t row,
				       uint32_t entry);
