#include "loaderd/pool/pool.h"

#include "format/base/system/clock.h"
#include "format/base/system/ticks.h"
#include "loaderd/crash_marker.h"
#include "loaderd/io/futex.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/*
 * Safe removal of a batcher (quiescent-state-based reclamation). The control thread clears its
 * table slot, then increments the generation. Between claims, each worker announces the generation
 * that it has seen; a sleeping worker announces OFFLINE. Once every announcement has reached the
 * generation of the removal, no worker can hold the pointer. Announcements and table accesses are
 * seq_cst: either the worker's later read of the table misses the batcher, or the control thread's
 * read of the announcement returns an older generation.
 */
#define OFFLINE UINT64_MAX

/* Flag in worker.since: a spare has replaced this worker. */
#define REPLACED (UINT64_C(1) << 63)

enum {
	STUCK_NS = 1000 * 1000 * 1000,
	/* A worker that used less than 1/STUCK_PART of that time has been asleep. */
	STUCK_PART = 8,
};

struct worker {
	_Alignas(64) _Atomic uint64_t seen;
	/*
	 * Ticks at the start of the current claim, 0 between claims. The control thread may set
	 * REPLACED.
	 */
	_Atomic uint64_t since;
	_Atomic(struct batcher *) at; /* batcher of the current claim; written before `since` */
	_Atomic uint32_t spare;       /* futex: 1 while the worker waits as a spare */
	clockid_t clock;              /* CPU-time clock of the thread */
	/*
	 * Used only by the control thread: the last observed `since`, when it was first observed,
	 * and the thread's CPU time then.
	 */
	uint64_t watched, watched_ns, watched_cpu_ns;
	struct pool *pool;
	pthread_t thread;
	bool started;
	_Atomic uint64_t idle; /* ticks asleep for lack of work, without the current sleep */
	_Atomic uint64_t asleep_since; /* ticks; 0 if awake */
	struct batcher_worker tools;
};

struct grave {
	struct batcher *batcher;
	uint64_t generation;
};

struct pool {
	_Alignas(64) _Atomic uint32_t wake_word; /* futex: changes when there may be work */
	_Atomic uint32_t sleepers;
	_Alignas(64) _Atomic uint64_t generation;
	_Atomic uint32_t grave_count;
	_Atomic uint32_t place_count; /* table slots ever used */
	_Atomic uint64_t virtual_ns;  /* highest of the batchers picked; new batchers start here */
	_Atomic bool stopping;
	_Atomic uint32_t ready; /* futex: threads that have finished their setup */
	_Alignas(64) _Atomic(struct batcher *) table[POOL_BATCHERS_MAX];
	struct grave graves[POOL_BATCHERS_MAX];
	struct cpus cpus;
	unsigned worker_count; /* active workers; there are as many spares */
	int event_fd;
	struct worker *workers;
};

/* Announces work for up to `units` claims. */
static void pool_wake(struct pool *pool, uint64_t units)
{
	atomic_fetch_add(&pool->wake_word, 1);
	if (atomic_load(&pool->sleepers) > 0)
		futex_wake(&pool->wake_word, units);
}

static void pool_notify(struct pool *pool)
{
	uint64_t one = 1;
	ssize_t n = write(pool->event_fd, &one, sizeof(one));
	(void)n; /* EAGAIN means that the counter is full, thus readable */
}

/* Called between claims: the worker holds no batcher. */
static void pool_announce(struct worker *worker, uint64_t generation)
{
	if (atomic_load_explicit(&worker->seen, memory_order_relaxed) == generation)
		return;
	atomic_store(&worker->seen, generation);
	if (atomic_load(&worker->pool->grave_count) > 0)
		pool_notify(worker->pool);
}

/*
 * Returns the runnable batcher with the least CPU time, or NULL. Sets *ret_alone if the table holds
 * exactly one batcher, runnable or not.
 */
static struct batcher *pool_pick(struct pool *pool, bool *ret_alone)
{
	struct batcher *best = NULL;
	uint64_t best_ns = UINT64_MAX;
	uint32_t count = 0;
	uint32_t places = atomic_load_explicit(&pool->place_count, memory_order_acquire);
	for (uint32_t i = 0; i < places; i++) {
		struct batcher *batcher = atomic_load(&pool->table[i]);
		count += batcher != NULL;
		if (!batcher || !batcher_runnable(batcher) ||
		    atomic_load_explicit(&batcher->held_up, memory_order_relaxed) > 0)
			continue;
		uint64_t ns = atomic_load_explicit(&batcher->virtual_ns, memory_order_relaxed);
		if (ns < best_ns) {
			best = batcher;
			best_ns = ns;
		}
	}
	/*
	 * Concurrent stores may move it back slightly. That is harmless: it only sets where new
	 * batchers start.
	 */
	if (best && best_ns > atomic_load_explicit(&pool->virtual_ns, memory_order_relaxed))
		atomic_store_explicit(&pool->virtual_ns, best_ns, memory_order_relaxed);
	*ret_alone = count == 1;
	return best;
}

static void pool_rest(struct worker *worker, uint32_t word)
{
	/*
	 * Count from the last accounted time, to include the search that found nothing; other
	 * threads may have had the CPU for long meanwhile.
	 */
	uint64_t start = worker->tools.watch.mark;
	atomic_store_explicit(&worker->asleep_since, start, memory_order_relaxed);
	futex_wait(&worker->pool->wake_word, word);
	thread_clock_restart(&worker->tools.watch);
	atomic_store_explicit(&worker->asleep_since, 0, memory_order_relaxed);
	uint64_t idle = atomic_load_explicit(&worker->idle, memory_order_relaxed);
	atomic_store_explicit(&worker->idle, idle + ticks_since(start), memory_order_relaxed);
}

static void sleep_until_work(struct worker *worker)
{
	bool alone;
	struct pool *pool = worker->pool;
	uint32_t word = atomic_load(&pool->wake_word);
	atomic_fetch_add(&pool->sleepers, 1);
	/*
	 * Check again after incrementing `sleepers`: a thread that adds work later changes the word
	 * and sees the sleeper.
	 */
	if (!pool_pick(pool, &alone) && !atomic_load(&pool->stopping)) {
		pool_announce(worker, OFFLINE);
		pool_rest(worker, word);
	}
	atomic_fetch_sub(&pool->sleepers, 1);
}

static void wait_as_spare(struct worker *worker)
{
	pool_announce(worker, OFFLINE);
	while (atomic_load(&worker->spare) != 0 && !atomic_load(&worker->pool->stopping))
		futex_wait(&worker->spare, 1);
	thread_clock_restart(&worker->tools.watch);
}

/* Makes one claim. If a spare has replaced this worker meanwhile, the worker becomes a spare. */
static void pool_work(struct worker *worker, struct batcher *batcher)
{
	uint64_t begun;
	atomic_store_explicit(&worker->at, batcher, memory_order_relaxed);
	atomic_store_explicit(&worker->since, ticks_now() & ~REPLACED, memory_order_release);
	batcher_work(batcher, &worker->tools, &begun);
	if (atomic_exchange(&worker->since, 0) & REPLACED) {
		atomic_fetch_sub(&batcher->held_up, 1);
		atomic_store(&worker->spare, 1);
		begun = INT_MAX;
	}
	if (begun > 0)
		pool_wake(worker->pool, begun);
}

static void *worker_main(void *argument)
{
	struct worker *worker = argument;
	struct pool *pool = worker->pool;
	thread_clock_init(&worker->tools.watch);
	crash_marker_thread();
	atomic_fetch_add(&pool->ready, 1);
	futex_wake(&pool->ready, 1);
	while (!atomic_load_explicit(&pool->stopping, memory_order_relaxed)) {
		if (atomic_load_explicit(&worker->spare, memory_order_relaxed) != 0) {
			wait_as_spare(worker);
			continue;
		}
		pool_announce(worker, atomic_load(&pool->generation));
		struct batcher *batcher = pool_pick(pool, &worker->tools.alone);
		if (!batcher)
			sleep_until_work(worker);
		else
			pool_work(worker, batcher);
	}
	pool_announce(worker, OFFLINE);
	thread_clock_deinit(&worker->tools.watch);
	return NULL;
}

/*
 * Pins each worker to one CPU. Spares, and workers if there are more workers than CPUs, may run on
 * the whole set: the scheduler balances them better.
 */
static int set_affinity(const struct pool *pool, unsigned index, pthread_attr_t *attr)
{
	cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
	size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
	if (!set)
		return -ENOMEM;
	CPU_ZERO_S(size, set);
	if (index < pool->worker_count && pool->worker_count <= pool->cpus.count)
		CPU_SET_S(pool->cpus.number[index], size, set);
	else
		for (unsigned i = 0; i < pool->cpus.count; i++)
			CPU_SET_S(pool->cpus.number[i], size, set);
	int r = -pthread_attr_setaffinity_np(attr, size, set);
	CPU_FREE(set);
	return r;
}

static int pool_start_worker(struct pool *pool, unsigned index)
{
	struct worker *worker = &pool->workers[index];
	worker->pool = pool;
	worker->tools.index = index;
	atomic_store(&worker->seen, OFFLINE);
	atomic_store(&worker->spare, index >= pool->worker_count);
	int r = pipeline_scratch_new(&worker->tools.scratch);
	if (r < 0)
		return r;
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_attr_init(&attr);
	r = set_affinity(pool, index, &attr);
	/*
	 * The control thread handles signals. These four are raised by an instruction of the thread
	 * itself, and blocking them would only kill the process.
	 */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (r == 0)
		r = -pthread_create(&worker->thread, &attr, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	worker->started = r == 0;
	if (r == 0) {
		r = -pthread_getcpuclockid(worker->thread, &worker->clock);
		char name[16];
		snprintf(name, sizeof(name), "worker-%u", index);
		pthread_setname_np(worker->thread, name);
	}
	return r;
}

int pool_new(unsigned workers, const struct cpus *cpus, struct pool **ret_pool)
{
	if (workers == 0 || workers > POOL_WORKERS_MAX)
		return -EINVAL;
	struct pool *pool = aligned_alloc(64, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	ticks_init();
	memset(pool, 0, sizeof(*pool));
	pool->cpus = *cpus;
	pool->worker_count = workers;
	atomic_store(&pool->generation, 1);
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = pool->event_fd < 0 ? -errno : 0;
	unsigned threads = pool_worker_indices(pool);
	pool->workers = aligned_alloc(64, threads * sizeof(*pool->workers));
	if (!pool->workers)
		r = -ENOMEM;
	else
		memset(pool->workers, 0, threads * sizeof(*pool->workers));
	for (unsigned i = 0; r == 0 && i < threads; i++)
		r = pool_start_worker(pool, i);
	/* Wait until all threads have opened their files. */
	for (uint32_t ready; r == 0 && (ready = atomic_load(&pool->ready)) < threads;)
		futex_wait(&pool->ready, ready);
	if (r < 0) {
		pool_free(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

void pool_limit_decoding(struct pool *pool, uint64_t bytes)
{
	for (unsigned i = 0; i < pool_worker_indices(pool); i++) {
		pipeline_scratch_limit(pool->workers[i].tools.scratch, bytes);
		pool->workers[i].tools.sample_bytes.limit = bytes;
	}
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	atomic_store(&pool->stopping, true);
	pool_wake(pool, INT_MAX);
	for (unsigned i = 0; pool->workers && i < pool_worker_indices(pool); i++) {
		struct worker *worker = &pool->workers[i];
		/* Stays true: a spare checks `stopping` after each wake. */
		futex_wake(&worker->spare, 1);
		if (worker->started)
			pthread_join(worker->thread, NULL);
		pipeline_scratch_free(worker->tools.scratch);
		batcher_forget_buffers(&worker->tools);
	}
	if (pool->event_fd >= 0)
		close(pool->event_fd);
	free(pool->workers);
	free(pool);
}

unsigned pool_workers(const struct pool *pool)
{
	return pool->worker_count;
}

unsigned pool_worker_indices(const struct pool *pool)
{
	return 2 * pool->worker_count;
}

/* Returns true if the worker has mostly slept for at least STUCK_NS in the claim `since`. */
static bool is_stuck(struct worker *worker, uint64_t since, uint64_t now_ns)
{
	uint64_t cpu_ns = clock_ns(worker->clock);
	if (since != worker->watched) {
		worker->watched = since;
		worker->watched_ns = now_ns;
		worker->watched_cpu_ns = cpu_ns;
	}
	uint64_t passed_ns = now_ns - worker->watched_ns;
	return passed_ns >= STUCK_NS && cpu_ns - worker->watched_cpu_ns < passed_ns / STUCK_PART;
}

/*
 * Returns a worker that is no longer a spare but has not been woken yet, or NULL if there is no
 * spare.
 */
static struct worker *take_spare(struct pool *pool)
{
	for (unsigned i = 0; i < pool_worker_indices(pool); i++) {
		uint32_t expected = 1;
		if (atomic_compare_exchange_strong(&pool->workers[i].spare, &expected, 0))
			return &pool->workers[i];
	}
	return NULL;
}

void pool_replace_blocked(struct pool *pool)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < pool_worker_indices(pool); i++) {
		struct worker *worker = &pool->workers[i];
		uint64_t since = atomic_load_explicit(&worker->since, memory_order_acquire);
		if (since == 0 || (since & REPLACED) || !is_stuck(worker, since, now_ns))
			continue;
		/*
		 * Replace workers only while there are spares, so that the number of active workers
		 * stays the same.
		 */
		struct worker *spare = take_spare(pool);
		if (!spare)
			return;
		struct batcher *batcher = atomic_load_explicit(&worker->at, memory_order_relaxed);
		/*
		 * Increment first: once `since` has REPLACED, the worker may return at any moment
		 * and the batcher may be freed.
		 */
		atomic_fetch_add(&batcher->held_up, 1);
		if (atomic_compare_exchange_strong(&worker->since, &since, since | REPLACED)) {
			futex_wake(&spare->spare, 1);
		} else {
			atomic_fetch_sub(&batcher->held_up, 1);
			atomic_store(&spare->spare, 1);
		}
	}
}

uint64_t pool_idle_ns(const struct pool *pool)
{
	uint64_t idle = 0;
	for (unsigned i = 0; i < pool_worker_indices(pool); i++) {
		const struct worker *worker = &pool->workers[i];
		uint64_t since = atomic_load_explicit(&worker->asleep_since, memory_order_relaxed);
		idle += atomic_load_explicit(&worker->idle, memory_order_relaxed);
		if (since != 0)
			idle += ticks_since(since);
	}
	return ticks_to_ns(idle);
}

int pool_fd(const struct pool *pool)
{
	return pool->event_fd;
}

/*
 * Raises a new or unblocked batcher to the common virtual time, so that it cannot claim the time it
 * was absent (start-time fair queueing; Goyal, Vin, Cheng 1996).
 */
static void bring_level(struct pool *pool, struct batcher *batcher)
{
	uint64_t now_ns = atomic_load_explicit(&pool->virtual_ns, memory_order_relaxed);
	uint64_t its_ns = atomic_load_explicit(&batcher->virtual_ns, memory_order_relaxed);
	if (its_ns < now_ns)
		atomic_fetch_add_explicit(&batcher->virtual_ns, now_ns - its_ns,
					  memory_order_relaxed);
}

void pool_kick(struct pool *pool, struct batcher *batcher)
{
	if (!batcher_kick(batcher))
		return;
	bring_level(pool, batcher);
	pool_wake(pool, batcher->unit_span);
}

int pool_add(struct pool *pool, struct batcher *batcher)
{
	for (uint32_t i = 0; i < POOL_BATCHERS_MAX; i++) {
		if (atomic_load(&pool->table[i]))
			continue;
		bring_level(pool, batcher);
		atomic_store(&pool->table[i], batcher);
		if (i >= atomic_load(&pool->place_count))
			atomic_store(&pool->place_count, i + 1);
		pool_wake(pool, INT_MAX);
		return 0;
	}
	return -EBUSY;
}

void pool_remove(struct pool *pool, struct batcher *batcher)
{
	batcher_stop(batcher);
	for (uint32_t i = 0; i < POOL_BATCHERS_MAX; i++) {
		if (atomic_load(&pool->table[i]) != batcher)
			continue;
		uint32_t count = atomic_load(&pool->grave_count);
		atomic_store(&pool->table[i], NULL);
		pool->graves[count] = (struct grave){batcher, atomic_load(&pool->generation) + 1};
		atomic_store(&pool->grave_count, count + 1);
		atomic_fetch_add(&pool->generation, 1);
		pool_notify(pool); /* all workers may already be asleep */
		return;
	}
}

struct batcher *pool_reap(struct pool *pool)
{
	uint64_t oldest = UINT64_MAX;
	uint32_t count = atomic_load(&pool->grave_count);
	if (count == 0)
		return NULL;
	for (unsigned i = 0; i < pool_worker_indices(pool); i++) {
		uint64_t seen = atomic_load(&pool->workers[i].seen);
		oldest = seen < oldest ? seen : oldest;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (pool->graves[i].generation > oldest)
			continue;
		struct batcher *batcher = pool->graves[i].batcher;
		pool->graves[i] = pool->graves[count - 1];
		atomic_store(&pool->grave_count, count - 1);
		return batcher;
	}
	return NULL;
}
