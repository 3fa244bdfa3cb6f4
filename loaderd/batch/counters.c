#include "loaderd/batch/counters.h"

#include "format/base/system/ticks.h"

#include <sys/param.h>

enum {
	COST_SHIFT = 3, /* the newest claim weighs 1/8 in the moving average */
	/*
	 * If other threads had the CPU for more than 1/DISTURBED_PART of a claim's time, its own
	 * stage times are not representative: use the thread's earlier times for the feed.
	 */
	DISTURBED_PART = 8,
};

void counters_add(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
			      memory_order_relaxed);
}

/* Time that belongs to no stage is STAGE_OTHER: order, fields, claiming, publishing, waking. */
static void stages_of(const struct sample_times *times, uint64_t lap, uint64_t ns[STAGE_COUNT])
{
	const uint64_t ticks[STAGE_COUNT] = {
		[STAGE_READ] = times->read,
		[STAGE_DECODE] = times->stages.decode,
		[STAGE_RESIZE] = times->stages.resize,
		[STAGE_AUGMENT] = times->stages.augment,
		[STAGE_STORE] = times->stages.store,
		[STAGE_WAIT] = times->wait,
	};
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		ns[i] = ticks_to_ns(ticks[i]);
	uint64_t known_ns = ns[STAGE_WAIT] + stages_work(ns), lap_ns = ticks_to_ns(lap);
	ns[STAGE_OTHER] = lap_ns > known_ns ? lap_ns - known_ns : 0;
}

/*
 * Subtracts sleep from the stages that may touch the dataset's pages, in stage order. Returns the
 * time subtracted.
 */
static uint64_t take_blocked(uint64_t ns[STAGE_COUNT], uint64_t blocked_ns)
{
	uint64_t left_ns = blocked_ns;
	for (enum stage i = 0; i < STAGE_WORK_COUNT && left_ns > 0; i++) {
		uint64_t part_ns = MIN(ns[i], left_ns);
		ns[i] -= part_ns;
		left_ns -= part_ns;
	}
	return blocked_ns - left_ns;
}

/*
 * Subtracts the time in which other threads had the CPU, at most the sum of all stages, and returns
 * the time subtracted. The affected stages are unknown: scales down all, or splits what remains in
 * the proportions of the thread's earlier times (DISTURBED_PART).
 */
static uint64_t take_queued(uint64_t ns[STAGE_COUNT], uint64_t queued_ns,
			    const uint64_t past[STAGE_COUNT])
{
	uint64_t all_ns = stages_work(ns), taken_ns = MIN(queued_ns, all_ns);
	const uint64_t *pattern = ns;
	if (taken_ns == 0)
		return 0;
	if (taken_ns > all_ns / DISTURBED_PART && stages_work(past) > 0)
		pattern = past;
	double scale = (double)(all_ns - taken_ns) / (double)stages_work(pattern);
	for (enum stage i = 0; i < STAGE_WORK_COUNT; i++)
		ns[i] = (uint64_t)((double)pattern[i] * scale);
	return taken_ns;
}

static uint64_t load_counter(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void average_cost(struct batcher *batcher, uint64_t newest_ns)
{
	uint64_t old_ns = load_counter(&batcher->cost_ns);
	if (old_ns != 0)
		newest_ns = old_ns - (old_ns >> COST_SHIFT) + (newest_ns >> COST_SHIFT);
	atomic_store_explicit(&batcher->cost_ns, newest_ns + 1, memory_order_relaxed);
}

void counters_claim(struct batcher *batcher, struct batcher_thread *thread,
		    const struct sample_times *times, uint32_t samples)
{
	struct batcher_counters *counters = &batcher->counters[thread->index];
	struct thread_clock *clock = &thread->clock;
	uint64_t past[STAGE_COUNT], ns[STAGE_COUNT];
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		past[i] = load_counter(&counters->stage_ns[i]);
	stages_of(times, thread_clock_lap(clock, times->wait), ns);
	uint64_t blocked_ns = take_blocked(ns, clock->blocked_ns);
	uint64_t queued_ns = take_queued(ns, clock->queued_ns, past);
	clock->blocked_ns -= blocked_ns;
	clock->queued_ns -= queued_ns;
	ns[STAGE_WAIT] += blocked_ns;
	ns[STAGE_QUEUED] += queued_ns;
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		counters_add(&counters->stage_ns[i], ns[i]);
	uint64_t cpu_ns = stages_work(ns);
	atomic_fetch_add_explicit(&batcher->virtual_ns, cpu_ns + 1, memory_order_relaxed);
	if (samples > 0)
		average_cost(batcher, cpu_ns / samples);
}
