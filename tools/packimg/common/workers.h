/*
 * Threads that turn a numbered range of work into results which one consumer takes in order. Work
 * is handed out in blocks of neighbours; a bounded number of blocks is under way, and fewer when
 * their results are large. Which thread does what never shows in the results. new/next/free belong
 * to the consumer; the two callbacks run on the workers.
 */
#pragma once

#include "tools/packimg/common/memory.h"

#include <stdbool.h>

enum {
	WORKERS_BLOCK_MAX = 64, /* items */
};

struct work_block {
	uint64_t first;
	uint32_t count;
	struct buffer bytes; /* results' bytes; kept and reused with the block */
	void *results;       /* count of the owner's result_size */
};

struct workers_setup {
	unsigned jobs;
	uint64_t total;     /* items */
	uint32_t block;     /* items per block, 1 to WORKERS_BLOCK_MAX */
	size_t result_size; /* bytes of a result */
	uint64_t bytes_max; /* of results under way, before workers pause */
	void *context;
	/* A worker's own state: made before its first block, freed after its last. */
	int (*worker_new)(void *context, void **ret_worker);
	void (*worker_free)(void *worker);
	/*
	 * Called in order of blocks, one at a time; may be NULL. What must be read in order is read
	 * here. It may lower the block's count, not to 0: the next block then begins there.
	 */
	void (*claim)(void *context, void *worker, struct work_block *block);
	/* Makes one of the block's results. */
	void (*run)(void *context, void *worker, struct work_block *block, uint32_t number);
	/* What workers_walk() calls of the consumer's. stopped and show may be NULL. */
	int (*take)(void *context, const struct work_block *block, uint32_t number);
	bool (*stopped)(void);
	void (*show)(void *context, uint64_t done); /* after a block, and while none is ready */
};

enum {
	WORKERS_END = 1,
	WORKERS_WAIT = 2,
};

struct workers;

int workers_new(const struct workers_setup *setup, struct workers **ret_workers);
/* Stops and joins: blocks that were not taken are dropped. */
void workers_free(struct workers *workers);
/*
 * The next block in order, valid until the next call. WORKERS_END after the last; WORKERS_WAIT when
 * none is ready within wait_ms; the error of worker_new when no worker could be made.
 */
int workers_next(struct workers *workers, unsigned wait_ms, struct work_block **ret_block);

/*
 * All of it, from new to free: each result goes to setup.take in order, until that fails. -EINTR
 * when setup.stopped says so. ret_fault: why workers could not be made, 0: they could.
 */
int workers_walk(const struct workers_setup *setup, int *ret_fault);
