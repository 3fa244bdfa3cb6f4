#include "proto/limit.h"

enum {
	/* One side is the limit if the other waits for it this many times as long. */
	CLEARLY = 2,
	/*
	 * The client does not hold up a loader that waits for less than this percentage of the
	 * time.
	 */
	STALL_PERCENT = 10,
	/* The CPUs are the limit if they are busy for this percentage of the time. */
	BUSY_PERCENT = 75,
};

const char *limit_name(enum limit limit)
{
	static const char *const names[] = {
		[LIMIT_NONE] = "none",   [LIMIT_CONSUMER] = "consumer", [LIMIT_STORAGE] = "storage",
		[LIMIT_CPUS] = "cpus",   [LIMIT_DECODE] = "decode",     [LIMIT_AUGMENT] = "augment",
		[LIMIT_OTHER] = "other",
	};
	return names[limit];
}

void limit_times_add(struct limit_times *times, const Loaderd__FeedStatus *feed)
{
	times->stall_client += feed->stall_client_ns;
	times->stall_daemon += feed->stall_daemon_ns;
	stages_add(times->stage, feed);
}

struct limit_times limit_times_between(const struct limit_times *before,
				       const struct limit_times *after)
{
	struct limit_times times = {
		.stall_client = after->stall_client - before->stall_client,
		.stall_daemon = after->stall_daemon - before->stall_daemon,
	};
	for (enum stage i = 0; i < STAGE_COUNT; i++)
		times.stage[i] = after->stage[i] - before->stage[i];
	return times;
}

static enum limit busiest(const struct limit_times *times)
{
	uint64_t sums[LIMIT_OTHER + 1] = {0};
	for (enum stage i = 0; i < STAGE_WORK_COUNT; i++)
		sums[stages[i].limit] += times->stage[i];
	if (sums[LIMIT_OTHER] > sums[LIMIT_DECODE] && sums[LIMIT_OTHER] > sums[LIMIT_AUGMENT])
		return LIMIT_OTHER;
	return sums[LIMIT_AUGMENT] > sums[LIMIT_DECODE] ? LIMIT_AUGMENT : LIMIT_DECODE;
}

/*
 * Compares the waits of both sides: LIMIT_CONSUMER, LIMIT_NONE, or LIMIT_OTHER for a limit on the
 * loader's side.
 */
static enum limit slower_side(const struct limit_times *times, uint64_t elapsed_ns)
{
	/*
	 * A client's wait counts once it is over, so the first one may be missing. A short stall of
	 * the loader then means nothing.
	 */
	if (times->stall_daemon <= elapsed_ns / 100 * STALL_PERCENT)
		return times->stall_client + stages_work(times->stage) + times->stage[STAGE_WAIT] >
				       0
			       ? LIMIT_OTHER
			       : LIMIT_NONE;
	if (times->stall_daemon > CLEARLY * times->stall_client)
		return LIMIT_CONSUMER;
	if (times->stall_client > CLEARLY * times->stall_daemon)
		return LIMIT_OTHER;
	/*
	 * A feed that waits for samples from a store has begun all its slots, and waits for one,
	 * too: what both sides wait for are the samples.
	 */
	uint64_t wait = times->stage[STAGE_WAIT];
	return wait >= times->stall_daemon / CLEARLY && wait > stages_work(times->stage)
		       ? LIMIT_OTHER
		       : LIMIT_NONE;
}

enum limit limit_judge(const struct limit_times *times, uint64_t elapsed_ns, unsigned cpus)
{
	uint64_t work = stages_work(times->stage), capacity = elapsed_ns * cpus;
	uint64_t wait = times->stage[STAGE_WAIT], queued = times->stage[STAGE_QUEUED];
	enum limit side = slower_side(times, elapsed_ns);
	if (side != LIMIT_OTHER)
		return side;
	if (capacity == 0)
		return wait > work ? LIMIT_STORAGE : busiest(times);
	if (work >= capacity / 100 * BUSY_PERCENT)
		return busiest(times);
	if (wait > work && wait >= queued)
		return LIMIT_STORAGE;
	/*
	 * If there are more threads than CPUs, they queue for each other. Other programs can only
	 * have taken the CPU time that the threads did not use.
	 */
	return queued > work && capacity - work > work ? LIMIT_CPUS : busiest(times);
}
