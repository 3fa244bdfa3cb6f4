/*
 * An ordered parallel map: threads compute the results of a numbered range of items, one consumer
 * takes them in order. Work is claimed in blocks of consecutive items. The number of blocks in
 * flight is bounded, and shrinks when their results are large. Scheduling never affects the
 * results. claim and run are called on the workers; take, stopped and the progress on the thread
 * that calls parallel_map().
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
	struct buffer bytes; /* results' bytes; reused with the block, unless they were many */
	uint64_t held;       /* bytes that claim says the block holds until it is done */
	void *results;       /* count of the owner's result_size */
};

struct parallel_map_options {
	unsigned jobs;
	uint64_t total;     /* items */
	uint32_t block;     /* items per block, 1 to PARALLEL_MAP_BLOCK_MAX */
	size_t result_size; /* bytes of a result */
	/*
	 * of blocks under way, before workers pause: what claim said of those at work, and the
	 * results of those that are done. One block more may be read.
	 */
	uint64_t bytes_max;
	void *context;
	/* A worker's own state, zeroed: init before its first block, deinit after its last. */
	size_t worker_size;
	int (*worker_init)(void *context, void *worker);
	void (*worker_deinit)(void *worker);
	/*
	 * Called in order of blocks, one at a time; may be NULL. What must be read in order is read
	 * here. It may lower the block's count, not to 0: the next block then begins there.
	 */
	void (*claim)(void *context, void *worker, struct work_block *block);
	/* Computes one result of the block. */
	void (*run)(void *context, void *worker, struct work_block *block, uint32_t number);
	/* Consumes one result; not 0 ends the map. */
	int (*take)(void *context, const struct work_block *block, uint32_t number);
	bool (*stopped)(void); /* may be NULL */
	/* NULL: none. Shown after a block and while none is ready, and cleared in the end. */
	struct progress *progress;
	const uint64_t *bytes; /* done, for the progress */
};

/*
 * Processes all items and returns 0, the first result of take that is not 0, or -EINTR once stopped
 * says so. ret_fault: the error of starting workers, which is then the result, too; otherwise 0.
 */
int parallel_map(const struct parallel_map_options *setup, int *ret_fault);
