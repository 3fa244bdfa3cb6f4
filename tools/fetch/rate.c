#include "tools/fetch/rate.h"
#include "format/base/system/clock.h"

#include <math.h>

enum {
	MEASURE_MS = 250,
	LATENCY_FACTOR = 3, /* a store rarely takes more than so many times its shortest latency */
};

/* Bytes under way, at least: a first guess at rate times latency. */
#define UNDER_WAY_MIN ((uint64_t)16 << 20)
/*
 * Bytes per second that a store is expected to deliver before that is known: 5 Gbit/s, about. With
 * less, a rate that grows from reply to reply takes several round trips to reach that of a fast
 * link; with a slow link, the guess only makes for a longer queue.
 */
#define PEAK_FIRST 6e8
/*
 * How much of the peak rate is kept at the next measurement, if what was under way was limited by
 * it, from a latency before on: a rate that feeds limit, or that replies which are still to come
 * lack in, says nothing of the store.
 */
#define PEAK_KEPT 0.8

void rate_init(struct rate *rate)
{
	rate->peak = PEAK_FIRST;
	rate->measured_ms = clock_ms();
}

void rate_measure(struct rate *rate, const struct store *store)
{
	struct store_counters counters = store_counters(store);
	int64_t now_ms = clock_ms(), passed_ms = now_ms - rate->measured_ms;

	if (passed_ms < MEASURE_MS)
		return;
	uint64_t bytes = counters.bytes - rate->measured_bytes;
	bool limited = rate->full_ms > 0 &&
		       rate->measured_ms - rate->full_ms >= (int64_t)counters.latency_ms;
	rate->now = (double)bytes * 1000 / (double)passed_ms;
	if (!rate->is_full)
		rate->full_ms = 0;
	rate->is_full = false;
	rate->measured_ms = now_ms;
	rate->measured_bytes = counters.bytes;
	if (!bytes)
		return;
	rate->peak = fmax(rate->now, limited ? PEAK_KEPT * rate->peak : rate->peak);
}

void rate_set_limits(const struct rate *rate, struct store *store, unsigned connections)
{
	const struct store_counters counters = store_counters(store);
	double waiting_ms = fmin(counters.latency_ms, LATENCY_FACTOR * counters.least_ms);

	store_set_limits(store, connections, (uint64_t)(1.5 * rate->peak * waiting_ms / 1000));
}

uint64_t rate_under_way(const struct rate *rate, const struct store *store)
{
	double target = LATENCY_FACTOR * rate->peak * store_counters(store).least_ms / 1000;

	return target > (double)UNDER_WAY_MIN ? (uint64_t)target : UNDER_WAY_MIN;
}

void rate_note_full(struct rate *rate)
{
	if (!rate->full_ms)
		rate->full_ms = clock_ms();
	rate->is_full = true;
}
