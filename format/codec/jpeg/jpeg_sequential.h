/*
 * A baseline scan from its top, MCU row by MCU row: for files without an index, and for making one.
 * Where there are restart markers it begins at the last one before the first row wanted. One object
 * belongs to one thread and keeps its buffers from image to image. The scan is untrusted: work is
 * bounded by the number of MCUs. The file's bytes are read once, by jpeg_unstuff(); the reader runs
 * along that copy, restart markers' places are offsets in it.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/scratch.h"

#include <stdbool.h>

struct jpeg_sequential {
	const struct jpeg_frame *frame;
	/* per component; the latter made for skipping */
	const struct jpeg_table *const *dc_tables, *const *ac_tables;
	bool zigzag; /* order of coefficients */
	struct scratch scan, segments;
	size_t scan_size;       /* bytes, unstuffed */
	uint32_t segment_count; /* restart markers */
	struct jpeg_reader reader;
	int32_t dc[JPEG_COMPONENTS_MAX];
	uint32_t segment, mcus_left; /* where the reader is, and what is left there */
};

/* All zero it is one without a budget. */
void jpeg_sequential_init(struct jpeg_sequential *sequential, struct scratch_budget *budget);
void jpeg_sequential_deinit(struct jpeg_sequential *sequential);
/*
 * Goes to an MCU row. Frame and tables must outlive the use. -EBADMSG: damaged on the way, -ENOMEM.
 */
int jpeg_sequential_begin(struct jpeg_sequential *sequential, const struct jpeg_frame *frame,
			  const struct jpeg_table *const *dc_tables,
			  const struct jpeg_table *const *ac_tables, bool zigzag, uint32_t row);
/*
 * Goes behind the restart marker, if the next MCU row begins with one, and returns 1 then, else 0;
 * -EBADMSG. jpeg_sequential_row does it, too.
 */
int jpeg_sequential_enter(struct jpeg_sequential *sequential);
/* Passes over MCUs, which may lead into the next row. -EBADMSG. */
int jpeg_sequential_skip(struct jpeg_sequential *sequential, uint64_t mcus);
/* Decodes the next MCU row; MCUs first .. end - 1 go to blocks, in coded order. -EBADMSG. */
int jpeg_sequential_row(struct jpeg_sequential *sequential, uint32_t first, uint32_t end,
			int16_t *blocks);
