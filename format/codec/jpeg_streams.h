/*
 * Several places of one scan decoded at once. A Huffman stream is a chain of dependent loads and shifts; four independent ones
 * interleaved in one loop hide each other's latency. Where rows, and places inside them, begin is known from an index (jpeg_index.h). Plain values of the caller, no ownership; memory
 * safety does not depend on the index, the tables or the scan being right.
 */
#pragma once

#include "jpeg_frame.h"
#include "jpeg_huffman.h"

#include <stdbool.h>

enum {
	JPEG_MCU_BLOCKS_MAX = 10,
	JPEG_STREAM_BLOCKS_SPARE = 16, /* blocks behind a task's last that may be written (they are garbage then) */
};

/* The order of blocks in an MCU as a cycle of states: a DC code, then AC codes until the block's end. */
struct jpeg_state {
	const uint32_t *lookup;
	const struct jpeg_state *stay; /* the AC state of this block */
	const struct jpeg_state *next; /* the DC state of the block that follows */
	const struct jpeg_table *table;
};

struct jpeg_cycle {
	struct jpeg_state states[2 * JPEG_MCU_BLOCKS_MAX];
};

/* Tables must outlive the cycle. */
void jpeg_cycle_init(struct jpeg_cycle *cycle, const struct jpeg_frame *frame, const struct jpeg_table *const *dc,
		     const struct jpeg_table *const *ac);

/* A run of whole MCUs from one place on. */
struct jpeg_task {
	uint64_t position;   /* in bits from the scan's first byte */
	uint64_t end;        /* bits; decoding beyond it is an error */
	int16_t *blocks;     /* 128-byte aligned, zero; block_count + JPEG_STREAM_BLOCKS_SPARE of them; DC becomes differences */
	uint32_t block_count;
};

/*
 * Decodes all tasks. scan: unstuffed bytes, scan_size of them and JPEG_SCAN_PADDING zeros. Coefficients are left in zigzag order, which is a
 * tenth faster, or in natural order. 0, or -EBADMSG when a code is not in its table or a task runs beyond its end; blocks are
 * then undefined.
 */
int jpeg_streams_decode(const struct jpeg_cycle *cycle, const uint8_t *scan, size_t scan_size,
			const struct jpeg_task *tasks, uint32_t task_count, bool zigzag);
