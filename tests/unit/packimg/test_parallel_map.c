/* The memory of blocks must not grow with the number of threads. */
#include "tests/test.h"
#include "tools/packimg/common/parallel_map.h"

#include <malloc.h>
#include <pthread.h>

enum {
	MEBIBYTE = 1 << 20,
	BLOCK_BYTES = 4 * MEBIBYTE,
	BYTES_MAX = 16 * MEBIBYTE,
	JOBS = 8,
	BLOCKS = 100,
};

struct usage {
	pthread_mutex_t lock;
	uint64_t held, held_max; /* bytes of blocks that have been claimed but not yet taken */
	size_t mapped, mapped_max;
};

static int worker_init(void *context, void *worker)
{
	return 0;
}

static void worker_deinit(void *worker)
{
}

static void claim(void *context, void *worker, struct work_block *block)
{
	struct usage *usage = context;

	block->held = BLOCK_BYTES;
	pthread_mutex_lock(&usage->lock);
	usage->held += BLOCK_BYTES;
	if (usage->held > usage->held_max)
		usage->held_max = usage->held;
	pthread_mutex_unlock(&usage->lock);
}

static void run(void *context, void *worker, struct work_block *block, uint32_t number)
{
	/* Gives other threads time to claim blocks. */
	usleep(1000);
	if (!buffer_reserve(&block->bytes, BLOCK_BYTES))
		block->bytes.size = BLOCK_BYTES;
}

static int take(void *context, const struct work_block *block, uint32_t number)
{
	struct usage *usage = context;
	/* Large blocks are separate mappings. Allocators of sanitizers report 0. */
	size_t mapped = mallinfo2().hblkhd;

	if (block->bytes.size != BLOCK_BYTES)
		return -1;
	if (mapped > usage->mapped_max)
		usage->mapped_max = mapped;
	pthread_mutex_lock(&usage->lock);
	usage->held -= BLOCK_BYTES;
	pthread_mutex_unlock(&usage->lock);
	return 0;
}

TEST(bytes_in_flight)
{
	struct usage usage = {.lock = PTHREAD_MUTEX_INITIALIZER, .mapped = mallinfo2().hblkhd};
	const struct parallel_map_options setup = {
		.jobs = JOBS,
		.total = BLOCKS,
		.block = 1,
		.result_size = 1,
		.bytes_max = BYTES_MAX,
		.context = &usage,
		.worker_size = 1,
		.worker_init = worker_init,
		.worker_deinit = worker_deinit,
		.claim = claim,
		.run = run,
		.take = take,
	};
	int fault;

	assert_int_equal(parallel_map(&setup, &fault), 0);
	assert_int_equal(fault, 0);
	assert_int_equal(usage.held, 0);
	assert_in_range(usage.held_max, BLOCK_BYTES, BYTES_MAX + BLOCK_BYTES);
	/* buffers kept for later blocks must not exceed the limit either */
	assert_in_range(usage.mapped_max, 0, usage.mapped + BYTES_MAX + 2 * BLOCK_BYTES);
}
