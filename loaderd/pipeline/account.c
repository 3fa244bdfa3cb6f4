#include "account.h"

#include <sys/resource.h>
#include <time.h>

enum {
	COST_SHIFT = 3, /* weight of the newest claim in the moving average: 1/8 */
	/* Samples cheaper than this are timed one in TIMED_INTERVAL and the times scaled: half a dozen clock reads are a tenth of them. */
	TIMED_NS = 20 * 1000,
	TIMED_INTERVAL = 8,
};

static uint64_t cpu_clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void account_add(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
			      memory_order_relaxed);
}

uint32_t account_interval(const struct batcher *batcher, uint32_t units)
{
	uint64_t cost_ns = atomic_load_explicit(&batcher->cost_ns, memory_order_relaxed);
	return cost_ns != 0 && cost_ns < TIMED_NS && units >= TIMED_INTERVAL ? TIMED_INTERVAL : 1;
}

/* All but waiting. */
static void scale_work(struct sample_times *times, double scale)
{
	times->read_ns = (uint64_t)((double)times->read_ns * scale);
	times->stages.decode_ns = (uint64_t)((double)times->stages.decode_ns * scale);
	times->stages.resize_ns = (uint64_t)((double)times->stages.resize_ns * scale);
	times->stages.other_ns = (uint64_t)((double)times->stages.other_ns * scale);
}

static uint64_t sum_work(const struct sample_times *times)
{
	return times->read_ns + times->stages.decode_ns + times->stages.resize_ns +
	       times->stages.other_ns;
}

static bool faulted_pages_in(struct batcher_worker *worker)
{
	struct rusage usage;
	if (getrusage(RUSAGE_THREAD, &usage) < 0 || usage.ru_majflt == worker->major_faults)
		return false;
	worker->major_faults = usage.ru_majflt;
	return true;
}

/*
 * Stages are timed by the wall clock, which is cheap. Time of theirs in which the thread did not run was waiting for the file if pages had to
 * be read, and somebody else's turn on the CPU if not: it is taken out here, once per claim.
 */
static void subtract_idle(struct batcher_worker *worker, uint64_t wall_ns, uint64_t cpu_ns,
			  struct sample_times *times)
{
	uint64_t awake_ns = wall_ns > times->wait_ns ? wall_ns - times->wait_ns : 0;
	if (cpu_ns >= awake_ns)
		return;
	uint64_t before_ns = sum_work(times);
	scale_work(times, (double)cpu_ns / (double)awake_ns);
	if (awake_ns - cpu_ns > awake_ns / 8 && faulted_pages_in(worker))
		times->wait_ns += before_ns - sum_work(times);
}

static void average_cost(struct batcher *batcher, uint64_t newest_ns)
{
	uint64_t old_ns = atomic_load_explicit(&batcher->cost_ns, memory_order_relaxed);
	if (old_ns != 0)
		newest_ns = old_ns - (old_ns >> COST_SHIFT) + (newest_ns >> COST_SHIFT);
	atomic_store_explicit(&batcher->cost_ns, newest_ns + 1, memory_order_relaxed);
}

void account_claim(struct batcher *batcher, struct batcher_worker *worker,
		   struct sample_times *times, uint32_t samples, uint32_t timed, uint64_t wall_ns)
{
	struct batcher_counters *counters = &batcher->counters[worker->index];
	uint64_t cpu_now_ns = cpu_clock_ns();
	uint64_t cpu_ns = cpu_now_ns - worker->cpu_ns;
	worker->cpu_ns = cpu_now_ns;
	if (timed > 0 && timed < samples) {
		scale_work(times, (double)samples / timed);
		times->wait_ns = times->wait_ns * samples / timed;
	}
	subtract_idle(worker, wall_ns, cpu_ns, times);
	/* What no stage claims for itself is other: order, fields, waking, publishing. */
	uint64_t known_ns = sum_work(times);
	uint64_t other_ns = times->stages.other_ns + (cpu_ns > known_ns ? cpu_ns - known_ns : 0);
	account_add(&counters->read_ns, times->wait_ns + times->read_ns);
	account_add(&counters->decode_ns, times->stages.decode_ns);
	account_add(&counters->resize_ns, times->stages.resize_ns);
	account_add(&counters->other_ns, other_ns);
	atomic_fetch_add_explicit(&batcher->virtual_ns, cpu_ns + 1, memory_order_relaxed);
	if (samples > 0)
		average_cost(batcher, cpu_ns / samples);
}
