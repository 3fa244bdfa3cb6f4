/*
 * Decodes several rows of a scan at once, one per stream; a stream that finishes a row takes the
 * next one. A Huffman stream is a chain of dependent loads and shifts; four independent streams
 * interleaved in one loop hide each other's latency. An index (jpeg_index.h) gives the positions
 * where rows, and parts of rows, begin. Plain values of the caller, no ownership. Memory safety
 * does not depend on the correctness of index, tables or scan. Streams read only copies made by
 * jpeg_unstuff() and the padding after them, which never change; neither this code nor
 * jpeg_streams_x86.S reads the file itself.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"

#include <stdbool.h>

enum {
	JPEG_MCU_BLOCKS_MAX = 10,
	JPEG_LANE_PHASES = 16, /* more than the symbols between two checks of a lane */
	JPEG_CYCLE_MAX = 80, /* least common multiple of JPEG_MCU_BLOCKS_MAX and JPEG_LANE_PHASES */
	JPEG_STREAMS = 4,    /* more streams (five, six) were not faster */
	/* blocks after the last one of a task that may be overwritten with garbage */
	JPEG_STREAM_BLOCKS_SPARE = 16,
	JPEG_STREAM_PADDING = 64, /* readable bytes after the bytes of a task */
};

/*
 * Decoder state: the next code is the DC code of a block in an MCU, or one of the block's AC codes.
 */
struct jpeg_state {
	/* from a jpeg_table, or for AC from a jpeg_pair */
	const uint32_t *lookup;
	const uint32_t *top;
	/* next AC state: of the same block after DC, of the next block after AC */
	const struct jpeg_state *next;
	const struct jpeg_state *enter; /* DC state of the same block */
	const struct jpeg_table *table;
	uint32_t number; /* block number in the cycle; one less for the DC state */
};

/* The blocks of one MCU, or of several MCUs: a DC and an AC state for each block. */
struct jpeg_cycle {
	struct jpeg_state dc[JPEG_CYCLE_MAX], ac[JPEG_CYCLE_MAX];
};

/*
 * Initialises a cycle. Tables must outlive it. checked: the cycle is for lanes with `checked` set.
 * Returns 0 or -ENOMEM.
 */
int jpeg_cycle_init(struct jpeg_cycle *cycle, const struct jpeg_frame *frame,
		    struct jpeg_tables *tables, const struct jpeg_table *const *dc,
		    const struct jpeg_table *const *ac, bool checked);

/* A sequence of whole MCUs, decoded from one position on. */
struct jpeg_task {
	/* unstuffed bytes, followed by JPEG_STREAM_PADDING zeros; decoding past end is an error */
	const uint8_t *begin, *end;
	uint32_t bits; /* bits of the first byte to skip, less than 8 */
	/*
	 * 128-byte aligned, zeroed, block_count + JPEG_STREAM_BLOCKS_SPARE blocks; receives DC
	 * differences
	 */
	int16_t *blocks;
	uint32_t block_count;
	uint32_t tag; /* value for the caller */
};

/* State of a stream. */
struct jpeg_lane {
	const uint8_t *next; /* next byte */
	uint64_t used;       /* bits used from next on */
	/*
	 * Address one past the last coefficient, in zigzag order. Before a DC code, the address of
	 * the last byte before the block. An integer, because alignment to 128 bytes detects the
	 * end of a block.
	 */
	uint64_t cursor;
	const struct jpeg_state *state;
	uint64_t finish;      /* value of cursor at which the task is done */
	const uint8_t *limit; /* passing it before the task is done is an error */
	uint32_t tag;
	/* for checked lanes: block number minus state number, modulo JPEG_LANE_PHASES */
	uint32_t phase;
	uint32_t checked;
	uint32_t unused; /* pads to 64 bytes */
};

/*
 * Starts a lane without a task, at the beginning of a block. The lane may end within an MCU row and
 * continue with the following blocks, so all bytes that it reads must be valid. It must also detect
 * runs past the end of a block: jpeg_lane_in_step() does so at the next check.
 */
void jpeg_lane_begin(struct jpeg_lane *lane, const struct jpeg_cycle *cycle, const uint8_t *begin,
		     const uint8_t *end);
/* Continues decoding into other memory, of block_count blocks. */
void jpeg_lane_move(struct jpeg_lane *lane, int16_t *blocks, uint32_t block_count);
bool jpeg_lane_in_step(const struct jpeg_lane *lane);
/*
 * Returns the number of blocks begun after the last of the current ones, less than
 * JPEG_STREAM_BLOCKS_SPARE.
 */
uint32_t jpeg_lane_surplus(const struct jpeg_lane *lane);
/*
 * Decodes symbol by symbol exactly to the end of the last block. -EBADMSG for an unknown code, a
 * run past the end of a block, or a read past the limit.
 */
int jpeg_lane_end(struct jpeg_lane *lane, bool zigzag);

struct jpeg_streams {
	struct jpeg_lane lanes[JPEG_STREAMS];
	uint32_t count; /* lanes with a task */
	const struct jpeg_cycle *cycle;
	const jpeg_lanes_run *runs;
};

/* Starts without tasks. runs is one of the arrays in jpeg_kernels.h. */
void jpeg_streams_begin(struct jpeg_streams *streams, const struct jpeg_cycle *cycle,
			const jpeg_lanes_run *runs);
/* Assigns a task to a free lane; fewer than JPEG_STREAMS may be in use. */
void jpeg_streams_add(struct jpeg_streams *streams, const struct jpeg_task *task);
/*
 * Decodes until one of the tasks is done and returns its tag. -EBADMSG for an unknown code or a
 * task that runs past its end; blocks are then undefined.
 */
int jpeg_streams_run(struct jpeg_streams *streams, uint32_t *ret_tag);
/* Replaces DC differences with values, for whole MCUs. Updates predictors. */
void jpeg_sum_dc(const struct jpeg_frame *frame, int16_t predictors[JPEG_COMPONENTS_MAX],
		 int16_t *blocks, uint32_t mcus);
