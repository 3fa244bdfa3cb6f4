/*
 * Decodes a baseline scan from its top, MCU row by MCU row, for files without an index and to build
 * one. If the scan has restart markers, decoding starts at the last one before the first row
 * wanted. One object belongs to one thread and keeps its buffers from image to image. The scan is
 * untrusted: the number of MCUs bounds the work. jpeg_unstuff() reads the bytes of the file once.
 * The reader reads that copy, and restart marker positions are offsets in it.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/scratch.h"

#include <stdbool.h>

struct jpeg_sequential {
	const struct jpeg_frame *frame;
	/* one per component; AC tables are built for skipping */
	const struct jpeg_table *const *dc_tables, *const *ac_tables;
	bool zigzag; /* coefficients in zigzag order; in natural order if false */
	struct scratch scan, segments;
	size_t scan_size;       /* bytes of the unstuffed scan */
	uint32_t segment_count; /* restart markers */
	struct jpeg_reader reader;
	int32_t dc[JPEG_COMPONENTS_MAX];
	uint32_t segment, mcus_left; /* segment between restart markers, MCUs left in it */
};

/* A zeroed object is valid and has no budget. */
void jpeg_sequential_init(struct jpeg_sequential *sequential, struct scratch_budget *budget);
void jpeg_sequential_deinit(struct jpeg_sequential *sequential);
/*
 * Moves to an MCU row. frame and tables must stay valid while decoding. -EBADMSG if the scan is
 * damaged before that row, -ENOMEM.
 */
int jpeg_sequential_begin(struct jpeg_sequential *sequential, const struct jpeg_frame *frame,
			  const struct jpeg_table *const *dc_tables,
			  const struct jpeg_table *const *ac_tables, bool zigzag, uint32_t row);
/*
 * Moves past a restart marker if the next MCU row begins with one. Returns 1 if it did, else 0;
 * -EBADMSG. jpeg_sequential_row() does this as well.
 */
int jpeg_sequential_enter(struct jpeg_sequential *sequential);
/* Skips MCUs, across row ends too. -EBADMSG. */
int jpeg_sequential_skip(struct jpeg_sequential *sequential, uint64_t mcus);
/* Decodes the next MCU row and stores MCUs first .. end - 1 in blocks, in coded order. -EBADMSG. */
int jpeg_sequential_row(struct jpeg_sequential *sequential, uint32_t first, uint32_t end,
			int16_t *blocks);
