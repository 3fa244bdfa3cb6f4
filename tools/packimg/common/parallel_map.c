#include "tools/packimg/common/parallel_map.h"

#include "format/base/system/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum {
	WAIT_MS = 100,
	WALK_END = 1,
	KEPT_MAX =
		16 << 20, /* maximum bytes that a free block keeps allocated for its next results */
};

enum slot_state {
	SLOT_FREE,
	SLOT_CLAIMED,
	SLOT_DONE,
};

struct slot {
	struct work_block block;
	enum slot_state state;
};

struct workers {
	struct parallel_map_options setup;
	pthread_t *threads;
	unsigned thread_count;
	pthread_mutex_t claim_lock; /* held while a block is claimed, to keep claims in order */
	pthread_mutex_t lock;       /* protects everything below */
	pthread_cond_t slot_freed, block_done;
	struct slot *slots; /* block n uses slot n % slot_count */
	uint32_t slot_count;
	uint64_t next;           /* first item not assigned to a block */
	uint64_t claimed, taken; /* number of blocks claimed, and of blocks taken */
	uint64_t bytes;          /* bytes of blocks that are claimed and not yet released */
	/*
	 * maximum bytes that a free slot keeps allocated: a quarter of the limit, divided by the
	 * number of slots
	 */
	uint64_t kept_max;
	bool stop;
	int fault;
};

/*
 * Returns the next block, or NULL after the last. Locks claim_lock, which the caller unlocks after
 * setup.claim.
 */
static struct slot *worker_claim(struct workers *workers)
{
	struct slot *slot = NULL;

	pthread_mutex_lock(&workers->claim_lock);
	pthread_mutex_lock(&workers->lock);
	while (!workers->stop && workers->next < workers->setup.total) {
		struct slot *next = &workers->slots[workers->claimed % workers->slot_count];
		bool full = workers->bytes > workers->setup.bytes_max &&
			    workers->claimed > workers->taken;

		if (next->state == SLOT_FREE && !full) {
			slot = next;
			break;
		}
		pthread_cond_wait(&workers->slot_freed, &workers->lock);
	}
	if (slot) {
		const struct parallel_map_options *setup = &workers->setup;
		struct work_block *block = &slot->block;

		slot->state = SLOT_CLAIMED;
		block->first = workers->next;
		block->count = setup->total - block->first < setup->block
				       ? (uint32_t)(setup->total - block->first)
				       : setup->block;
		block->bytes.size = 0;
		block->held = 0;
		workers->claimed++;
		workers->next += block->count;
	}
	pthread_mutex_unlock(&workers->lock);
	return slot;
}

/*
 * Calls setup.claim. The next block starts with the items that it leaves out of this one. The
 * caller still holds claim_lock, so that no other claim intervenes.
 */
static void worker_call_claim(struct workers *workers, void *worker, struct work_block *block)
{
	uint32_t count = block->count;

	workers->setup.claim(workers->setup.context, worker, block);
	pthread_mutex_lock(&workers->lock);
	workers->next -= count - block->count;
	workers->bytes += block->held;
	pthread_mutex_unlock(&workers->lock);
}

static void *worker_main(void *argument)
{
	struct workers *workers = argument;
	const struct parallel_map_options *setup = &workers->setup;
	struct slot *slot;
	void *worker = calloc(1, setup->worker_size);

	int r = worker ? setup->worker_init(setup->context, worker) : -ENOMEM;
	if (r) {
		free(worker);
		pthread_mutex_lock(&workers->lock);
		workers->fault = r;
		pthread_cond_signal(&workers->block_done);
		pthread_mutex_unlock(&workers->lock);
		return NULL;
	}
	for (;;) {
		slot = worker_claim(workers);
		if (slot && setup->claim)
			worker_call_claim(workers, worker, &slot->block);
		pthread_mutex_unlock(&workers->claim_lock);
		if (!slot)
			break;
		for (uint32_t i = 0; i < slot->block.count; i++)
			setup->run(setup->context, worker, &slot->block, i);
		pthread_mutex_lock(&workers->lock);
		slot->state = SLOT_DONE;
		workers->bytes += slot->block.bytes.size - slot->block.held;
		if (slot == &workers->slots[workers->taken % workers->slot_count])
			pthread_cond_signal(&workers->block_done);
		pthread_mutex_unlock(&workers->lock);
	}
	setup->worker_deinit(worker);
	free(worker);
	return NULL;
}

static int make_slots(struct workers *workers)
{
	workers->slots = calloc(workers->slot_count, sizeof(*workers->slots));
	if (!workers->slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < workers->slot_count; i++) {
		workers->slots[i].block.results =
			calloc(workers->setup.block, workers->setup.result_size);
		if (!workers->slots[i].block.results)
			return -ENOMEM;
	}
	return 0;
}

/* Blocks signals in the workers, so that the main thread handles them. */
static int start_threads(struct workers *workers)
{
	sigset_t all, before;
	int r = 0;

	workers->threads = calloc(workers->setup.jobs, sizeof(*workers->threads));
	if (!workers->threads)
		return -ENOMEM;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!r && workers->thread_count < workers->setup.jobs) {
		r = -pthread_create(&workers->threads[workers->thread_count], NULL, worker_main,
				    workers);
		if (!r)
			workers->thread_count++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return workers->thread_count ? 0 : r;
}

static int parallel_map_init(struct workers *workers, const struct parallel_map_options *setup)
{
	pthread_condattr_t attributes;

	*workers = (struct workers){.setup = *setup, .slot_count = setup->jobs * 4};
	workers->kept_max = setup->bytes_max / 4 / workers->slot_count;
	if (workers->kept_max > KEPT_MAX)
		workers->kept_max = KEPT_MAX;
	pthread_mutex_init(&workers->claim_lock, NULL);
	pthread_mutex_init(&workers->lock, NULL);
	pthread_cond_init(&workers->slot_freed, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&workers->block_done, &attributes);
	pthread_condattr_destroy(&attributes);
	int r = make_slots(workers);
	return r ? r : start_threads(workers);
}

/* Stops and joins the workers, and drops blocks that were not taken. */
static void parallel_map_deinit(struct workers *workers)
{
	pthread_mutex_lock(&workers->lock);
	workers->stop = true;
	pthread_cond_broadcast(&workers->slot_freed);
	pthread_mutex_unlock(&workers->lock);
	for (unsigned i = 0; i < workers->thread_count; i++)
		pthread_join(workers->threads[i], NULL);
	for (uint32_t i = 0; workers->slots && i < workers->slot_count; i++) {
		buffer_deinit(&workers->slots[i].block.bytes);
		free(workers->slots[i].block.results);
	}
	pthread_mutex_destroy(&workers->claim_lock);
	pthread_mutex_destroy(&workers->lock);
	pthread_cond_destroy(&workers->slot_freed);
	pthread_cond_destroy(&workers->block_done);
	free(workers->slots);
	free(workers->threads);
}

/*
 * Waits for the next block in order. If that takes longer than WAIT_MS, returns with *ret_slot
 * NULL, so that the caller can update the progress line. Returns WALK_END after the last block, or
 * the error of worker_init if no worker could start.
 */
static int wait_block(struct workers *workers, struct slot **ret_slot)
{
	struct timespec until = clock_after_ms(WAIT_MS);
	struct slot *slot = &workers->slots[workers->taken % workers->slot_count];
	int r = 0;

	pthread_mutex_lock(&workers->lock);
	bool end = workers->taken == workers->claimed && workers->next == workers->setup.total;
	while (!end && slot->state != SLOT_DONE && !workers->fault && !r)
		r = pthread_cond_timedwait(&workers->block_done, &workers->lock, &until);
	r = end ? WALK_END : 0;
	if (!end && slot->state == SLOT_DONE) {
		workers->taken++;
		*ret_slot = slot;
	} else if (!end) {
		r = workers->fault;
	}
	pthread_mutex_unlock(&workers->lock);
	return r;
}

static void worker_return_slot(struct workers *workers, struct slot *slot)
{
	uint64_t size = slot->block.bytes.size;

	/*
	 * Otherwise every slot would at some time hold, and keep, a buffer as large as the largest
	 * block.
	 */
	if (slot->block.bytes.capacity > workers->kept_max)
		buffer_deinit(&slot->block.bytes);
	pthread_mutex_lock(&workers->lock);
	slot->state = SLOT_FREE;
	workers->bytes -= size;
	/* Only the holder of claim_lock waits for slot_freed. */
	pthread_cond_signal(&workers->slot_freed);
	pthread_mutex_unlock(&workers->lock);
}

/* Takes the next block if it is ready. Returns 0 to continue, or WALK_END. */
static int take_block(struct workers *workers, uint64_t *done, int *ret_fault)
{
	const struct parallel_map_options *setup = &workers->setup;
	struct slot *slot = NULL;

	if (setup->stopped && setup->stopped())
		return -EINTR;
	int r = wait_block(workers, &slot);
	if (r < 0)
		*ret_fault = r;
	if (r)
		return r;
	for (uint32_t i = 0; slot && i < slot->block.count; i++) {
		r = setup->take(setup->context, &slot->block, i);
		if (r)
			return r;
		++*done;
	}
	if (slot)
		worker_return_slot(workers, slot);
	if (setup->progress)
		progress_update(setup->progress, *done, *setup->bytes);
	return 0;
}

int parallel_map(const struct parallel_map_options *setup, int *ret_fault)
{
	struct workers workers;
	uint64_t done = 0;

	int r = *ret_fault = parallel_map_init(&workers, setup);
	while (!r)
		r = take_block(&workers, &done, ret_fault);
	parallel_map_deinit(&workers);
	if (setup->progress)
		progress_clear(setup->progress);
	return r == WALK_END ? 0 : r;
}
