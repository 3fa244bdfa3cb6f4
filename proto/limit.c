#include "proto/limit.h"

enum {
	/* One side is the limit when the other waits for it so many times as long. */
	CLEARLY = 2,
	/*
	 * A loader that waits for less than this share of the time, in percent, is not held up by
	 * its client.
	 */
	STALL_PERCENT = 10,
	/* CPUs used by this share of their time, in percent, are the limit themselves. */
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
	times->wait += feed->wait_ns;
	times->queued += feed->queued_ns;
	times->read += feed->read_ns;
	times->decode += feed->decode_ns;
	times->resize += feed->resize_ns;
	times->augment += feed->augment_ns;
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
		.augment = after->augment - before->augment,
		.store = after->store - before->store,
		.other = after->other - before->other,
	};
}

uint64_t limit_work(const struct limit_times *times)
{
	return times->read + times->decode + times->resize + times->augment + times->store +
	       times->other;
}

static enum limit busiest(const struct limit_times *times)
{
	uint64_t augment = times->resize + times->augment + times->store;
	uint64_t rest = times->read + times->other;
	if (rest > times->decode && rest > augment)
		return LIMIT_OTHER;
	return augment > times->decode ? LIMIT_AUGMENT : LIMIT_DECODE;
}

/*
 * Who waits for whom: LIMIT_CONSUMER, LIMIT_NONE, or LIMIT_OTHER for something on the loader's
 * side.
 */
static enum limit slower_side(const struct limit_times *times, uint64_t elapsed_ns)
{
	/*
	 * A client's wait counts once it is over, so a first one may be missing; then a moment's
	 * stall of the loader means nothing.
	 */
	if (times->stall_daemon <= elapsed_ns / 100 * STALL_PERCENT)
		return times->stall_client + limit_work(times) + times->wait > 0 ? LIMIT_OTHER
										 : LIMIT_NONE;
	if (times->stall_daemon > CLEARLY * times->stall_client)
		return LIMIT_CONSUMER;
	return times->stall_client <= CLEARLY * times->stall_daemon ? LIMIT_NONE : LIMIT_OTHER;
}

enum limit limit_judge(const struct limit_times *times, uint64_t elapsed_ns, unsigned cpus)
{
	uint64_t work = limit_work(times), capacity = elapsed_ns * cpus;
	enum limit side = slower_side(times, elapsed_ns);
	if (side != LIMIT_OTHER)
		return side;
	if (capacity == 0)
		return times->wait > work ? LIMIT_STORAGE : busiest(times);
	if (work >= capacity / 100 * BUSY_PERCENT)
		return busiest(times);
	if (times->wait > work && times->wait >= times->queued)
		return LIMIT_STORAGE;
	/* More threads than CPUs queue for each other: others have only what is missing. */
	return times->queued > work && capacity - work > work ? LIMIT_CPUS : busiest(times);
}
