#include "loaderd/batch/account.h"

#include "format/base/ticks.h"

enum {
	COST_SHIFT = 3, /* weight of the newest claim in the moving average: 1/8 */
	/*
	 * A claim that missed the CPU for more than one part in so many of its time does not show
	 * where its time went.
	 */
	DISTURBED_PART = 8,
	STAGES = 6,
};

/* A claim's nanoseconds, in the order in which a page that has to be read first is met. */
union stages {
	struct {
		uint64_t read, decode, resize, augment, store, other;
	};
	uint64_t each[STAGES];
};

void account_add(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
			      memory_order_relaxed);
}

static uint64_t sum(const union stages *stages)
{
	uint64_t all = 0;
	for (unsigned i = 0; i < STAGES; i++)
		all += stages->each[i];
	return all;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What no stage claims for itself is other: order, fields, claiming, publishing, waking. */
static union stages stages_of(const struct sample_times *times, uint64_t lap)
{
	union stages stages = {
		.read = ticks_to_ns(times->read),
		.decode = ticks_to_ns(times->stages.decode),
		.resize = ticks_to_ns(times->stages.resize),
		.augment = ticks_to_ns(times->stages.augment),
		.store = ticks_to_ns(times->stages.store),
	};
	uint64_t known_ns = ticks_to_ns(times->wait) + sum(&stages), lap_ns = ticks_to_ns(lap);
	stages.other = lap_ns > known_ns ? lap_ns - known_ns : 0;
	return stages;
}

/*
 * Takes sleep out of the stages that touch the dataset's pages, first come first; returns what was
 * taken.
 */
static uint64_t take_blocked(union stages *stages, uint64_t blocked_ns)
{
	uint64_t left_ns = blocked_ns;
	for (unsigned i = 0; i < STAGES && left_ns > 0; i++) {
		uint64_t part_ns = least(stages->each[i], left_ns);
		stages->each[i] -= part_ns;
		left_ns -= part_ns;
	}
	return blocked_ns - left_ns;
}

/*
 * Takes time in which others had the CPU out of the stages; returns what was taken. Which stage it
 * hit is not known, and it may have been longer than all of them: after a long absence the rest is
 * divided as this worker's time for the feed has been so far.
 */
static uint64_t take_queued(union stages *stages, uint64_t queued_ns, const union stages *past)
{
	uint64_t all_ns = sum(stages), taken_ns = least(queued_ns, all_ns), past_ns = sum(past);
	const union stages *pattern = stages;
	if (taken_ns == 0)
		return 0;
	if (taken_ns > all_ns / DISTURBED_PART && past_ns > 0)
		pattern = past;
	double scale = (double)(all_ns - taken_ns) / (double)sum(pattern);
	for (unsigned i = 0; i < STAGES; i++)
		stages->each[i] = (uint64_t)((double)pattern->each[i] * scale);
	return taken_ns;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void average_cost(struct batcher *batcher, uint64_t newest_ns)
{
	uint64_t old_ns = load(&batcher->cost_ns);
	if (old_ns != 0)
		newest_ns = old_ns - (old_ns >> COST_SHIFT) + (newest_ns >> COST_SHIFT);
	atomic_store_explicit(&batcher->cost_ns, newest_ns + 1, memory_order_relaxed);
}

void account_claim(struct batcher *batcher, struct batcher_worker *worker,
		   const struct sample_times *times, uint32_t samples)
{
	struct batcher_counters *counters = &batcher->counters[worker->index];
	struct watch *watch = &worker->watch;
	const union stages past = {
		.read = load(&counters->read_ns),
		.decode = load(&counters->decode_ns),
		.resize = load(&counters->resize_ns),
		.augment = load(&counters->augment_ns),
		.store = load(&counters->store_ns),
		.other = load(&counters->other_ns),
	};
	uint64_t lap = watch_lap(watch, times->wait);
	union stages stages = stages_of(times, lap);
	uint64_t blocked_ns = take_blocked(&stages, watch->blocked_ns);
	uint64_t queued_ns = take_queued(&stages, watch->queued_ns, &past);
	watch->blocked_ns -= blocked_ns;
	watch->queued_ns -= queued_ns;
	account_add(&counters->wait_ns, blocked_ns + ticks_to_ns(times->wait));
	account_add(&counters->queued_ns, queued_ns);
	account_add(&counters->read_ns, stages.read);
	account_add(&counters->decode_ns, stages.decode);
	account_add(&counters->resize_ns, stages.resize);
	account_add(&counters->augment_ns, stages.augment);
	account_add(&counters->store_ns, stages.store);
	account_add(&counters->other_ns, stages.other);
	uint64_t cpu_ns = sum(&stages);
	atomic_fetch_add_explicit(&batcher->virtual_ns, cpu_ns + 1, memory_order_relaxed);
	if (samples > 0)
		average_cost(batcher, cpu_ns / samples);
}
