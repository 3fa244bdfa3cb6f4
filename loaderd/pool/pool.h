/*
 * The pool: threads that make samples for any number of batchers. A thread picks the
 * runnable batcher with the least CPU time so far, makes one claim for it, and picks again. It
 * sleeps on a futex if no batcher is runnable; threads never spin.
 *
 * The server owns the pool. Only the control thread may call pool_add(), pool_kick(), pool_remove()
 * and pool_reap(). pool_reap() returns a removed batcher once every thread has passed a point where
 * it holds no batcher; until then nothing the batcher uses may be freed. pool_fd() becomes readable
 * when that may have happened.
 */
#pragma once

#include "loaderd/batch/batch.h"
#include "loaderd/cpus.h"

#include <stdint.h>

enum {
	POOL_BATCHERS_MAX = 1024,
	POOL_THREADS_MAX = 1024,
};

struct pool;

/*
 * Starts `threads` threads, one pinned to each CPU in the order of the set. If there are more
 * threads than CPUs, all threads may run on all CPUs of the set. Also starts as many standbys.
 * Returns -EINVAL, -ENOMEM or the error of a system call.
 */
int pool_new(unsigned threads, const struct cpus *cpus, struct pool **ret_pool);
/*
 * Limits the memory that a thread may use to decode one sample; a larger sample counts as bad. Call
 * it before the first pool_add().
 */
void pool_limit_decode_memory(struct pool *pool, uint64_t bytes);
/* All batchers must have been reaped. */
void pool_free(struct pool *pool);
unsigned pool_threads(const struct pool *pool);
/* For batcher_options.thread_indices. */
unsigned pool_thread_indices(const struct pool *pool);
/*
 * Finds threads that have been asleep in one claim for a second because their feed's storage hangs.
 * Other threads avoid that feed until they return, and standbys, as many as there are threads,
 * take their places. Call it periodically.
 */
void pool_replace_blocked(struct pool *pool);
/* Total time that threads have slept for lack of work. */
uint64_t pool_idle_ns(const struct pool *pool);
int pool_fd(const struct pool *pool);

/* Returns -EBUSY if there are already POOL_BATCHERS_MAX batchers. */
int pool_add(struct pool *pool, struct batcher *batcher);
void pool_remove(struct pool *pool, struct batcher *batcher);
/* Returns a removed batcher that no thread uses any more, or NULL. */
struct batcher *pool_reap(struct pool *pool);
/* Handles the doorbell of the feed's client: slots may be free. */
void pool_kick(struct pool *pool, struct batcher *batcher);
/* Wakes threads for so many units that a batcher has to make again. Any thread. */
void pool_ready(struct pool *pool, struct batcher *batcher, uint64_t units);
