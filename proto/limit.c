#include "limit.h"

enum {
	/* One side is the limit when the other waits for it so many times as long. */
	CLEARLY = 2,
	/* CPUs used by this share of their time, in percent, are the limit themselves. */
	BUSY_PERCENT = 75,
};

const char *limit_name(enum limit limit)
{
	static const char *const names[] = {
		[LIMIT_NONE] = "none",	 [LIMIT_CONSUMER] = "consumer", [LIMIT_STORAGE] = "storage",
		[LIMIT_CPUS] = "cpus",	 [LIMIT_DECODE] = "decode",	[LIMIT_AUGMENT] = "augment",
		[LIMIT_OTHER] = "other",
	};
	return names[limit];
}

void limit_times_add(struct limit_times *times, const Loaderd__FeedStatus *feed)
{
	times->stall_client += feed->stall_client_ns;
	times->stall_daemon += feed->stall_daemon_ns;
	times->wait += feed->wait_ns;
	times->queued += feed->queued_ns;
	times->read += feed->read_ns;
	times->decode += feed->decode_ns;
	times->resize += feed->resize_ns;
	times->store += feed->store_ns;
	times->other += feed->other_ns;
}

struct limit_times limit_times_between(const struct limit_times *before,
				       const struct limit_times *after)
{
	return (struct limit_times){
		.stall_client = after->stall_client - before->stall_client,
		.stall_daemon = after->stall_daemon - before->stall_daemon,
		.wait = after->wait - before->wait,
		.queued = after->queued - before->queued,
		.read = after->read - before->read,
		.decode = after->decode - before->decode,
		.resize = after->resize - before->resize,
		.store = after->store - before->store,
		.other = after->other - before->other,
	};
}

uint64_t limit_work(const struct limit_times *times)
{
	return times->read + times->decode + times->resize + times->store + times->other;
}

static enum limit busiest(const struct limit_times *times)
{
	uint64_t augment = times->resize + times->store, rest = times->read + times->other;
	if (rest > times->decode && rest > augment)
		return LIMIT_OTHER;
	return augment > times->decode ? LIMIT_AUGMENT : LIMIT_DECODE;
}

enum limit limit_judge(const struct limit_times *times, uint64_t capacity_ns)
{
	uint64_t work = limit_work(times);
	if (times->stall_daemon > CLEARLY * times->stall_client)
		return LIMIT_CONSUMER;
	if (times->stall_client <= CLEARLY * times->stall_daemon)
		return LIMIT_NONE;
	if (capacity_ns == 0)
		return times->wait > work ? LIMIT_STORAGE : busiest(times);
	if (work >= capacity_ns / 100 * BUSY_PERCENT)
		return busiest(times);
	/* More threads than CPUs queue for each other; what matters is how the CPUs' time came to be missing. */
	uint64_t missing = capacity_ns - work;
	if (times->wait >= missing / 2 && times->wait >= times->queued)
		return LIMIT_STORAGE;
	return times->queued >= missing / 2 && work < missing ? LIMIT_CPUS : busiest(times);
}
