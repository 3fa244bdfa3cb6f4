/*
 * Decodes a baseline scan from its top, MCU row by MCU row: for files without an index, and to
 * build one. With restart markers it starts at the last one before the first row wanted. One object
 * belongs to one thread and keeps its buffers from image to image. The scan is untrusted: work is
 * bounded by the number of MCUs. jpeg_unstuff() reads the file's bytes once; the reader runs along
 * that copy, and restart marker positions are offsets in it.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/scratch.h"

#include <stdbool.h>

struct jpeg_sequential {
	const struct jpeg_frame *frame;
	/* per component; AC tables built for skipping */
	const struct jpeg_table *const *dc_tables, *const *ac_tables;
	bool zigzag; /* order of coefficients */
	struct scratch scan, segments;
	size_t scan_size;       /* bytes, unstuffed */
	uint32_t segment_count; /* restart markers */
	struct jpeg_reader reader;
	int32_t dc[JPEG_COMPONENTS_MAX];
	uint32_t segment, mcus_left; /* current segment, and MCUs left in it */
};

/* A zeroed object is valid and has no budget. */
void jpeg_sequential_init(struct jpeg_sequential *sequential, struct scratch_budget *budget);
void jpeg_sequential_deinit(struct jpeg_sequential *sequential);
/*
 * Moves to an MCU row. Frame and tables must outlive the use. -EBADMSG if damaged before it,
 * -ENOMEM.
 */
int jpeg_sequential_begin(struct jpeg_sequential *sequential, const struct jpeg_frame *frame,
			  const struct jpeg_table *const *dc_tables,
			  const struct jpeg_table *const *ac_tables, bool zigzag, uint32_t row);
/*
 * If the next MCU row begins with a restart marker, moves past it and returns 1; otherwise returns
 * 0; -EBADMSG. jpeg_sequential_row() does this as well.
 */
int jpeg_sequential_enter(struct jpeg_sequential *sequential);
/* Skips MCUs, also across row ends. -EBADMSG. */
int jpeg_sequential_skip(struct jpeg_sequential *sequential, uint64_t mcus);
/* Decodes the next MCU row and stores MCUs first .. end - 1 in blocks, in coded order. -EBADMSG. */
int jpeg_sequential_row(struct jpeg_sequential *sequential, uint32_t first, uint32_t end,
			int16_t *blocks);
