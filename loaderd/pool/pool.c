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
 * table slot, then increments the generation. Between claims, each thread announces the generation
 * that it has seen; a sleeping thread announces OFFLINE. Once every announcement has reached the
 * generation of the removal, no thread can hold the pointer. Announcements and table accesses are
 * seq_cst: either the thread's later read of the table misses the batcher, or the control thread's
 * read of the announcement returns an older generation.
 */
#define OFFLINE UINT64_MAX

/* Flag in thread.since: a standby has replaced this thread. */
#define REPLACED (UINT64_C(1) << 63)

enum {
	STUCK_NS = 1000 * 1000 * 1000,
	/* a thread that ran for less than 1/STUCK_PART of the observed time was asleep */
	STUCK_PART = 8,
};

struct pool_thread {
	_Alignas(64) _Atomic uint64_t seen;
	/*
	 * Ticks at the start of the current claim, 0 between claims. The control thread may set
	 * REPLACED.
	 */
	_Atomic uint64_t since;
	_Atomic(struct batcher *) at; /* batcher of the current claim; written before `since` */
	_Atomic uint32_t standby;     /* futex: 1 while the thread waits as a standby */
	clockid_t clock;              /* CPU-time clock of the thread */
	/*
	 * Used only by the control thread: the last observed `since`, when it was first observed,
	 * and the thread's CPU time then.
	 */
	uint64_t watched, watched_ns, watched_cpu_ns;
	struct pool *pool;
	pthread_t handle;
	bool started;
	_Atomic uint64_t idle; /* ticks slept for lack of work; excludes a sleep in progress */
	_Atomic uint64_t asleep_since; /* ticks; 0 if awake */
	struct batcher_thread tools;
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
	_Atomic uint32_t slot_count; /* table slots ever used */
	_Atomic uint64_t virtual_ns; /* highest of the batchers picked; new batchers start here */
	_Atomic bool stopping;
	_Atomic uint32_t ready; /* futex: threads that have finished their setup */
	_Alignas(64) _Atomic(struct batcher *) table[POOL_BATCHERS_MAX];
	struct grave graves[POOL_BATCHERS_MAX];
	struct cpus cpus;
	unsigned thread_count; /* active threads; there are as many standbys */
	int event_fd;
	struct pool_thread *threads;
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

/* Called between claims: the thread holds no batcher. */
static void pool_announce(struct pool_thread *thread, uint64_t generation)
{
	if (atomic_load_explicit(&thread->seen, memory_order_relaxed) == generation)
		return;
	atomic_store(&thread->seen, generation);
	if (atomic_load(&thread->pool->grave_count) > 0)
		pool_notify(thread->pool);
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
	uint32_t slots = atomic_load_explicit(&pool->slot_count, memory_order_acquire);
	for (uint32_t i = 0; i < slots; i++) {
		struct batcher *batcher = atomic_load(&pool->table[i]);
		count += batcher != NULL;
		if (!batcher || !batcher_runnable(batcher) ||
		    atomic_load_explicit(&batcher->stuck_threads, memory_order_relaxed) > 0)
			continue;
		uint64_t ns = atomic_load_explicit(&batcher->virtual_ns, memory_order_relaxed);
		if (ns < best_ns) {
			best = batcher;
			best_ns = ns;
		}
	}
	/*
	 * Concurrent stores may lower the value slightly. That is harmless: it only sets where new
	 * batchers start.
	 */
	if (best && best_ns > atomic_load_explicit(&pool->virtual_ns, memory_order_relaxed))
		atomic_store_explicit(&pool->virtual_ns, best_ns, memory_order_relaxed);
	*ret_alone = count == 1;
	return best;
}

static void pool_rest(struct pool_thread *thread, uint32_t word)
{
	/*
	 * Count from the last accounted time, to include the search that found nothing; other
	 * threads may have had the CPU for long meanwhile.
	 */
	uint64_t start = thread->tools.clock.mark;
	atomic_store_explicit(&thread->asleep_since, start, memory_order_relaxed);
	futex_wait(&thread->pool->wake_word, word);
	thread_clock_restart(&thread->tools.clock);
	atomic_store_explicit(&thread->asleep_since, 0, memory_order_relaxed);
	uint64_t idle = atomic_load_explicit(&thread->idle, memory_order_relaxed);
	atomic_store_explicit(&thread->idle, idle + ticks_since(start), memory_order_relaxed);
}

static void sleep_until_work(struct pool_thread *thread)
{
	bool alone;
	struct pool *pool = thread->pool;
	uint32_t word = atomic_load(&pool->wake_word);
	atomic_fetch_add(&pool->sleepers, 1);
	/*
	 * Check again after incrementing `sleepers`: a thread that adds work later changes the word
	 * and sees the sleeper.
	 */
	if (!pool_pick(pool, &alone) && !atomic_load(&pool->stopping)) {
		pool_announce(thread, OFFLINE);
		pool_rest(thread, word);
	}
	atomic_fetch_sub(&pool->sleepers, 1);
}

static void wait_as_standby(struct pool_thread *thread)
{
	pool_announce(thread, OFFLINE);
	while (atomic_load(&thread->standby) != 0 && !atomic_load(&thread->pool->stopping))
		futex_wait(&thread->standby, 1);
	thread_clock_restart(&thread->tools.clock);
}

/*
 * Makes one claim. If a standby has replaced this thread meanwhile, the thread becomes a standby.
 */
static void pool_work(struct pool_thread *thread, struct batcher *batcher)
{
	uint64_t begun;
	atomic_store_explicit(&thread->at, batcher, memory_order_relaxed);
	atomic_store_explicit(&thread->since, ticks_now() & ~REPLACED, memory_order_release);
	batcher_work(batcher, &thread->tools, &begun);
	if (atomic_exchange(&thread->since, 0) & REPLACED) {
		atomic_fetch_sub(&batcher->stuck_threads, 1);
		atomic_store(&thread->standby, 1);
		begun = INT_MAX;
	}
	if (begun > 0)
		pool_wake(thread->pool, begun);
}

static void *pool_thread_main(void *argument)
{
	struct pool_thread *thread = argument;
	struct pool *pool = thread->pool;
	thread_clock_init(&thread->tools.clock);
	crash_marker_thread();
	atomic_fetch_add(&pool->ready, 1);
	futex_wake(&pool->ready, 1);
	while (!atomic_load_explicit(&pool->stopping, memory_order_relaxed)) {
		if (atomic_load_explicit(&thread->standby, memory_order_relaxed) != 0) {
			wait_as_standby(thread);
			continue;
		}
		pool_announce(thread, atomic_load(&pool->generation));
		struct batcher *batcher = pool_pick(pool, &thread->tools.alone);
		if (!batcher)
			sleep_until_work(thread);
		else
			pool_work(thread, batcher);
	}
	pool_announce(thread, OFFLINE);
	thread_clock_deinit(&thread->tools.clock);
	return NULL;
}

/*
 * Pins each thread to one CPU. Standbys, and threads if there are more threads than CPUs, may run
 * on the whole set: the scheduler balances them better.
 */
static int set_affinity(const struct pool *pool, unsigned index, pthread_attr_t *attr)
{
	cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
	size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
	if (!set)
		return -ENOMEM;
	CPU_ZERO_S(size, set);
	if (index < pool->thread_count && pool->thread_count <= pool->cpus.count)
		CPU_SET_S(pool->cpus.number[index], size, set);
	else
		for (unsigned i = 0; i < pool->cpus.count; i++)
			CPU_SET_S(pool->cpus.number[i], size, set);
	int r = -pthread_attr_setaffinity_np(attr, size, set);
	CPU_FREE(set);
	return r;
}

static int pool_start_thread(struct pool *pool, unsigned index)
{
	struct pool_thread *thread = &pool->threads[index];
	thread->pool = pool;
	thread->tools.index = index;
	atomic_store(&thread->seen, OFFLINE);
	atomic_store(&thread->standby, index >= pool->thread_count);
	int r = pipeline_scratch_new(&thread->tools.scratch);
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
		r = -pthread_create(&thread->handle, &attr, pool_thread_main, thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r < 0)
		return r;
	thread->started = true;
	char name[16];
	snprintf(name, sizeof(name), "pool-%u", index);
	pthread_setname_np(thread->handle, name);
	return -pthread_getcpuclockid(thread->handle, &thread->clock);
}

/* Opens and starts all that the pool needs. pool_free() undoes it, half made or whole. */
static int pool_start(struct pool *pool)
{
	const unsigned count = pool_thread_indices(pool);
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->event_fd < 0)
		return -errno;
	pool->threads = aligned_alloc(64, count * sizeof(*pool->threads));
	if (!pool->threads)
		return -ENOMEM;
	memset(pool->threads, 0, count * sizeof(*pool->threads));
	for (unsigned i = 0; i < count; i++) {
		int r = pool_start_thread(pool, i);
		if (r < 0)
			return r;
	}
	/* Wait until all threads have opened their files. */
	for (uint32_t ready; (ready = atomic_load(&pool->ready)) < count;)
		futex_wait(&pool->ready, ready);
	return 0;
}

int pool_new(unsigned threads, const struct cpus *cpus, struct pool **ret_pool)
{
	if (threads == 0 || threads > POOL_THREADS_MAX)
		return -EINVAL;
	struct pool *pool = aligned_alloc(64, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	ticks_init();
	memset(pool, 0, sizeof(*pool));
	pool->cpus = *cpus;
	pool->thread_count = threads;
	atomic_store(&pool->generation, 1);
	int r = pool_start(pool);
	if (r < 0) {
		pool_free(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

void pool_limit_decode_memory(struct pool *pool, uint64_t bytes)
{
	for (unsigned i = 0; i < pool_thread_indices(pool); i++) {
		pipeline_scratch_limit(pool->threads[i].tools.scratch, bytes);
		pool->threads[i].tools.sample_bytes.limit = bytes;
		pool->threads[i].tools.image_bytes.limit = bytes;
	}
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	atomic_store(&pool->stopping, true);
	pool_wake(pool, INT_MAX);
	for (unsigned i = 0; pool->threads && i < pool_thread_indices(pool); i++) {
		struct pool_thread *thread = &pool->threads[i];
		/* `stopping` stays true, and a standby checks it after each wake. */
		futex_wake(&thread->standby, 1);
		if (thread->started)
			pthread_join(thread->handle, NULL);
		pipeline_scratch_free(thread->tools.scratch);
		batcher_forget_buffers(&thread->tools);
	}
	if (pool->event_fd >= 0)
		close(pool->event_fd);
	free(pool->threads);
	free(pool);
}

unsigned pool_threads(const struct pool *pool)
{
	return pool->thread_count;
}

unsigned pool_thread_indices(const struct pool *pool)
{
	return 2 * pool->thread_count;
}

/* Returns true if the thread has mostly slept for at least STUCK_NS in the claim `since`. */
static bool is_stuck(struct pool_thread *thread, uint64_t since, uint64_t now_ns)
{
	uint64_t cpu_ns = clock_ns(thread->clock);
	if (since != thread->watched) {
		thread->watched = since;
		thread->watched_ns = now_ns;
		thread->watched_cpu_ns = cpu_ns;
	}
	uint64_t passed_ns = now_ns - thread->watched_ns;
	return passed_ns >= STUCK_NS && cpu_ns - thread->watched_cpu_ns < passed_ns / STUCK_PART;
}

/*
 * Turns a standby into an active thread, which the caller must wake or turn back. Returns NULL if
 * there is no standby.
 */
static struct pool_thread *take_standby(struct pool *pool)
{
	for (unsigned i = 0; i < pool_thread_indices(pool); i++) {
		uint32_t expected = 1;
		if (atomic_compare_exchange_strong(&pool->threads[i].standby, &expected, 0))
			return &pool->threads[i];
	}
	return NULL;
}

void pool_replace_blocked(struct pool *pool)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < pool_thread_indices(pool); i++) {
		struct pool_thread *thread = &pool->threads[i];
		uint64_t since = atomic_load_explicit(&thread->since, memory_order_acquire);
		if (since == 0 || (since & REPLACED) || !is_stuck(thread, since, now_ns))
			continue;
		/*
		 * Replace threads only while there are standbys, so that the number of active
		 * threads stays the same.
		 */
		struct pool_thread *standby = take_standby(pool);
		if (!standby)
			return;
		struct batcher *batcher = atomic_load_explicit(&thread->at, memory_order_relaxed);
		/*
		 * Increment first: once `since` has REPLACED, the thread may return at any moment
		 * and the batcher may be freed.
		 */
		atomic_fetch_add(&batcher->stuck_threads, 1);
		if (atomic_compare_exchange_strong(&thread->since, &since, since | REPLACED)) {
			futex_wake(&standby->standby, 1);
		} else {
			atomic_fetch_sub(&batcher->stuck_threads, 1);
			atomic_store(&standby->standby, 1);
		}
	}
}

uint64_t pool_idle_ns(const struct pool *pool)
{
	uint64_t idle = 0;
	for (unsigned i = 0; i < pool_thread_indices(pool); i++) {
		const struct pool_thread *thread = &pool->threads[i];
		uint64_t since = atomic_load_explicit(&thread->asleep_since, memory_order_relaxed);
		idle += atomic_load_explicit(&thread->idle, memory_order_relaxed);
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

void pool_ready(struct pool *pool, struct batcher *batcher, uint64_t units)
{
	bring_level(pool, batcher);
	pool_wake(pool, units);
}

int pool_add(struct pool *pool, struct batcher *batcher)
{
	for (uint32_t i = 0; i < POOL_BATCHERS_MAX; i++) {
		if (atomic_load(&pool->table[i]))
			continue;
		bring_level(pool, batcher);
		atomic_store(&pool->table[i], batcher);
		if (i >= atomic_load(&pool->slot_count))
			atomic_store(&pool->slot_count, i + 1);
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
		pool_notify(pool); /* all threads may already be asleep */
		return;
	}
}

struct batcher *pool_reap(struct pool *pool)
{
	uint64_t oldest = UINT64_MAX;
	uint32_t count = atomic_load(&pool->grave_count);
	if (count == 0)
		return NULL;
	for (unsigned i = 0; i < pool_thread_indices(pool); i++) {
		uint64_t seen = atomic_load(&pool->threads[i].seen);
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
