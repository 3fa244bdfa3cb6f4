#include "limit.h"

#include <stddef.h>

enum {
	/* One side is the limit when the other waits for it so many times as long. */
	CLEARLY = 2,
	/* CPUs used by this share of their time, in percent, are the limit themselves. */
	BUSY_PERCENT = 75,
};

void limit_times(const Loaderd__FeedStatus *now, const Loaderd__FeedStatus *before,
		 struct limit_times *ret_times)
{
	static const Loaderd__FeedStatus none = LOADERD__FEED_STATUS__INIT;
	if (before == NULL)
		before = &none;
	*ret_times = (struct limit_times){
		.stall_client = now->stall_client_ns - before->stall_client_ns,
		.stall_daemon = now->stall_daemon_ns - before->stall_daemon_ns,
		.wait = now->wait_ns - before->wait_ns,
		.queued = now->queued_ns - before->queued_ns,
		.read = now->read_ns - before->read_ns,
		.decode = now->decode_ns - before->decode_ns,
		.resize = now->resize_ns - before->resize_ns,
		.store = now->store_ns - before->store_ns,
		.other = now->other_ns - before->other_ns,
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
	return times->queued >= missing / 2 ? LIMIT_CPUS : busiest(times);
}
