/*
 * The worker pool: threads pinned to CPUs, which make samples for any number of batchers. A worker
 * takes the runnable batcher that has had the least CPU time so far, makes one claim for it, and
 * looks again; with nothing runnable it sleeps on a futex. Nobody spins.
 *
 * Owned by the server; pool_add, pool_kick, pool_remove and pool_reap belong to the control thread.
 * A removed batcher is handed back by pool_reap() once every worker has passed
 * a point where it holds no batcher: until then nothing it uses may be freed. pool_fd() becomes
 * readable when that may have happened.
 */
#pragma once

#include "loaderd/batch/batch.h"
#include "loaderd/cpus.h"

#include <stdint.h>

enum {
	POOL_BATCHERS_MAX = 1024,
	POOL_WORKERS_MAX = 1024,
};

struct pool;

/*
 * Starts `workers` threads on the CPUs of the set, in its order; more threads than CPUs share all
 * of them.
 */
int pool_new(unsigned workers, const struct cpus *cpus, struct pool **ret_pool);
/*
 * What each thread may take to decode one sample; a larger one is bad. Before there are batchers.
 */
void pool_limit_decoding(struct pool *pool, uint64_t bytes);
/* Every batcher must have been reaped. */
void pool_free(struct pool *pool);
unsigned pool_workers(const struct pool *pool);
/* Of batcher_options. */
unsigned pool_worker_indices(const struct pool *pool);
/*
 * Looks for workers that have been asleep inside one claim for a second: their feed's storage
 * hangs. Other workers keep away from that feed until they return, and spare ones, as many as there
 * are workers, take their places. Of several feeds; from time to time.
 */
void pool_replace_blocked(struct pool *pool);
/* Time that workers have slept because there was nothing to do, summed over them. */
uint64_t pool_idle_ns(const struct pool *pool);
int pool_fd(const struct pool *pool);

/* -EBUSY: POOL_BATCHERS_MAX. */
int pool_add(struct pool *pool, struct batcher *batcher);
void pool_remove(struct pool *pool, struct batcher *batcher);
/* A removed batcher that no worker uses any more; NULL when there is none yet. */
struct batcher *pool_reap(struct pool *pool);
/* The feed's client rang: slots may be free. */
void pool_kick(struct pool *pool, struct batcher *batcher);
