/*
 * Several rows of a scan decoded at once, each by a stream that goes on with another when it is
 * done. A Huffman stream is a chain of dependent loads and shifts; four independent ones
 * interleaved in one loop hide each other's latency. Where rows, and places inside them, begin is
 * known from an index (jpeg_index.h). Plain values of the caller, no ownership; memory safety does
 * not depend on the index, the tables or the scan being right. The bytes that streams read are
 * copies that jpeg_unstuff() made, followed by padding of ours: nobody changes them, and here and
 * in jpeg_streams_x86.S the file itself is not looked at.
 */
#pragma once

#include "format/codec/jpeg/jpeg_frame.h"
#include "format/codec/jpeg/jpeg_huffman.h"
#include "format/codec/jpeg/kernels/jpeg_kernels.h"

#include <stdbool.h>

enum {
	JPEG_MCU_BLOCKS_MAX = 10,
	JPEG_LANE_PHASES = 16, /* more than symbols between two looks at a lane */
	JPEG_CYCLE_MAX = 80,   /* least common multiple of both */
	JPEG_STREAMS = 4,      /* five and six gained nothing */
	/* blocks behind a task's last that may be written (they are garbage then) */
	JPEG_STREAM_BLOCKS_SPARE = 16,
	JPEG_STREAM_PADDING = 64, /* readable bytes behind a task's */
};

/* What is read next: the DC code of a block in an MCU, or AC codes of it. */
struct jpeg_state {
	/* as jpeg_table has them; AC: with the next block's DC codes */
	const uint32_t *lookup;
	const uint32_t *top;
	/* the AC state behind: behind DC of the same block, behind AC of the next one */
	const struct jpeg_state *next;
	const struct jpeg_state *enter; /* the DC state of the same block */
	const struct jpeg_table *table;
	uint32_t number; /* of the block in the cycle; of the DC state, one less */
};

/* The order of blocks in an MCU, perhaps several times: two states for each. */
struct jpeg_cycle {
	struct jpeg_state dc[JPEG_CYCLE_MAX], ac[JPEG_CYCLE_MAX];
};

/* Tables must outlive the cycle. checked: for lanes that are. -ENOMEM. */
int jpeg_cycle_init(struct jpeg_cycle *cycle, const struct jpeg_frame *frame,
		    struct jpeg_tables *tables, const struct jpeg_table *const *dc,
		    const struct jpeg_table *const *ac, bool checked);

/* A run of whole MCUs from one place on. */
struct jpeg_task {
	/* unstuffed bytes; decoding beyond them is an error. JPEG_STREAM_PADDING zeros follow */
	const uint8_t *begin, *end;
	uint32_t bits; /* of the first byte, less than 8, that come before */
	/*
	 * 128-byte aligned, zero; block_count + JPEG_STREAM_BLOCKS_SPARE of them; DC becomes
	 * differences
	 */
	int16_t *blocks;
	uint32_t block_count;
	uint32_t tag; /* the caller's */
};

/* What a stream consists of. */
struct jpeg_lane {
	const uint8_t *next; /* byte */
	uint64_t used;       /* bits from there on */
	/*
	 * Address one past the last coefficient, in zigzag order; before a DC code that of the last
	 * byte before the block. A number, since a block's end is found by its alignment.
	 */
	uint64_t place;
	const struct jpeg_state *state;
	uint64_t finish;      /* place at which the task is done */
	const uint8_t *limit; /* beyond it no stream may be that is not done */
	uint32_t tag;
	/* checked: by how much blocks are ahead of the states' numbers, modulo JPEG_LANE_PHASES */
	uint32_t phase;
	uint32_t checked;
	uint32_t unused; /* 64 bytes together */
};

/*
 * A lane by itself, from a block's beginning on: unlike a task's it need not end with the row, and
 * where it is done it may go on with the blocks behind. So all it reads must be valid, and runs
 * beyond a block's end are found out: jpeg_lane_in_step, not later than the next look at it.
 */
void jpeg_lane_begin(struct jpeg_lane *lane, const struct jpeg_cycle *cycle, const uint8_t *begin,
		     const uint8_t *end);
/* Leads it on to other memory, for its block number `from` there. */
void jpeg_lane_move(struct jpeg_lane *lane, int16_t *blocks, uint32_t block_count);
bool jpeg_lane_in_step(const struct jpeg_lane *lane);
/* Blocks behind the last that were begun: fewer than JPEG_STREAM_BLOCKS_SPARE. */
uint32_t jpeg_lane_surplus(const struct jpeg_lane *lane);
/*
 * Symbol by symbol to the end of the last block, not farther. -EBADMSG: a code not in its table, a
 * run beyond a block's end, or beyond the limit.
 */
int jpeg_lane_end(struct jpeg_lane *lane, bool zigzag);

struct jpeg_streams {
	struct jpeg_lane lanes[JPEG_STREAMS];
	uint32_t count; /* with a task */
	const struct jpeg_cycle *cycle;
	const jpeg_lanes_run *runs;
};

/* Without tasks. runs: one of those in jpeg_kernels.h. */
void jpeg_streams_begin(struct jpeg_streams *streams, const struct jpeg_cycle *cycle,
			const jpeg_lanes_run *runs);
/* Gives a task to one of fewer than JPEG_STREAMS. */
void jpeg_streams_add(struct jpeg_streams *streams, const struct jpeg_task *task);
/*
 * Decodes until one of the tasks is done, and says which. -EBADMSG when a code is not in its table
 * or a task runs beyond its end; blocks are then undefined.
 */
int jpeg_streams_run(struct jpeg_streams *streams, uint32_t *ret_tag);
/* DC differences to values, for whole MCUs. predictors: the values before, then the last ones. */
void jpeg_sum_dc(const struct jpeg_frame *frame, int16_t predictors[JPEG_COMPONENTS_MAX],
		 int16_t *blocks, uint32_t mcus);
