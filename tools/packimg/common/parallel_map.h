/*
 * An ordered parallel map: threads compute the results of a numbered range of items, and one
 * consumer takes the results in order. Workers claim blocks of consecutive items. The number of
 * blocks in flight is bounded, and shrinks if their results are large. Scheduling never affects the
 * results. claim and run are called on the workers; take, stopped and the progress line on the
 * thread that calls parallel_map().
 */
#pragma once

#include "tools/packimg/common/memory.h"
#include "tools/packimg/common/progress.h"

#include <stdbool.h>

enum {
	PARALLEL_MAP_BLOCK_MAX = 64, /* maximum number of items in a block */
};

struct work_block {
	uint64_t first;
	uint32_t count;
	struct buffer bytes; /* bytes of the results; the block keeps the buffer for reuse unless it
				is large */
	uint64_t held;       /* bytes that the block occupies until it is done; claim sets it */
	void *results;       /* count results of result_size bytes each */
};

struct parallel_map_options {
	unsigned jobs;
	uint64_t total;     /* number of items */
	uint32_t block;     /* items per block, 1 to PARALLEL_MAP_BLOCK_MAX */
	size_t result_size; /* size of a result in bytes */
	/*
	 * Workers pause while blocks in flight occupy more bytes than this: `held` bytes of blocks
	 * being computed, and results of finished ones. One block may exceed the limit.
	 */
	uint64_t bytes_max;
	void *context;
	/*
	 * State of each worker, zero-filled. worker_init is called before the worker's first block,
	 * worker_deinit after its last one.
	 */
	size_t worker_size;
	int (*worker_init)(void *context, void *worker);
	void (*worker_deinit)(void *worker);
	/*
	 * Called in block order, one call at a time; may be NULL. For reads that must be
	 * sequential. It may lower the block's count to 1 or more; the next block then starts at
	 * the first item left out.
	 */
	void (*claim)(void *context, void *worker, struct work_block *block);
	/* Computes one result of the block. */
	void (*run)(void *context, void *worker, struct work_block *block, uint32_t number);
	/* Consumes one result. A nonzero return value ends the map. */
	int (*take)(void *context, const struct work_block *block, uint32_t number);
	bool (*stopped)(void); /* may be NULL */
	/*
	 * NULL for no progress line. Updated after each block and while none is ready, cleared at
	 * the end.
	 */
	struct progress *progress;
	const uint64_t *bytes; /* number of bytes done, for the progress line */
};

/*
 * Processes all items. Returns 0, the first nonzero result of take, or -EINTR once stopped()
 * returns true. If no worker can start, returns the error and stores it in *ret_fault, which is 0
 * otherwise.
 */
int parallel_map(const struct parallel_map_options *setup, int *ret_fault);
