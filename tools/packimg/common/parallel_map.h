/*
 * An ordered parallel map: threads compute the results of a numbered range of items, one consumer
 * takes them in order. Workers claim blocks of consecutive items. The number of blocks in flight is
 * bounded, and shrinks if their results are large. Scheduling never affects the results. claim and
 * run are called on the workers; take, stopped and the progress on the thread that calls
 * parallel_map().
 */
#pragma once

#include "tools/packimg/common/memory.h"
#include "tools/packimg/common/progress.h"

#include <stdbool.h>

enum {
	PARALLEL_MAP_BLOCK_MAX = 64, /* items */
};

struct work_block {
	uint64_t first;
	uint32_t count;
	struct buffer bytes; /* bytes of the results; kept with the block for reuse unless large */
	uint64_t held;       /* bytes that the block holds until it is done, set by claim */
	void *results;       /* count results of result_size bytes each */
};

struct parallel_map_options {
	unsigned jobs;
	uint64_t total;     /* items */
	uint32_t block;     /* items per block, 1 to PARALLEL_MAP_BLOCK_MAX */
	size_t result_size; /* bytes of a result */
	/*
	 * bytes of blocks in flight before workers pause: held bytes of blocks being computed, and
	 * results of finished ones. May be exceeded by one block.
	 */
	uint64_t bytes_max;
	void *context;
	/* Per-worker state, zeroed: init before the worker's first block, deinit after its last. */
	size_t worker_size;
	int (*worker_init)(void *context, void *worker);
	void (*worker_deinit)(void *worker);
	/*
	 * Called in block order, one call at a time; may be NULL. Do reads that must be sequential
	 * here. It may lower the block's count, not to 0: the next block then begins there.
	 */
	void (*claim)(void *context, void *worker, struct work_block *block);
	/* Computes one result of the block. */
	void (*run)(void *context, void *worker, struct work_block *block, uint32_t number);
	/* Consumes one result; a nonzero return ends the map. */
	int (*take)(void *context, const struct work_block *block, uint32_t number);
	bool (*stopped)(void); /* may be NULL */
	/*
	 * NULL for no progress line. Updated after a block and while none is ready, cleared at the
	 * end.
	 */
	struct progress *progress;
	const uint64_t *bytes; /* bytes done, for the progress line */
};

/*
 * Processes all items. Returns 0, the first nonzero result of take, or -EINTR once stopped()
 * returns true. If workers fail to start, returns that error and stores it in *ret_fault, which is
 * 0 otherwise.
 */
int parallel_map(const struct parallel_map_options *setup, int *ret_fault);
