/* How long connections and replies take. */
#include "format/base/system/clock.h"
#include "tools/store/store_internal.h"

enum { LEAST_PERIOD_MS = 10000 };

/* Keeps the shortest latency of this period and of the one before. */
static void measure_least(struct store *store, double ms)
{
	const int64_t now_ms = clock_ms();
	double *least_ms = store->least_ms;

	if (now_ms - store->least_since_ms > LEAST_PERIOD_MS) {
		least_ms[1] = least_ms[0];
		least_ms[0] = 0;
		store->least_since_ms = now_ms;
	}
	if (least_ms[0] == 0 || ms < least_ms[0])
		least_ms[0] = ms;
	store->counters.least_ms =
		least_ms[1] > 0 && least_ms[1] < least_ms[0] ? least_ms[1] : least_ms[0];
}

static void measure_connection(const struct attempt *attempt)
{
	curl_off_t named_us = 0, connected_us = 0;
	long connections = 0;

	curl_easy_getinfo(attempt->easy, CURLINFO_NUM_CONNECTS, &connections);
	if (connections == 0) /* an earlier one served again */
		return;
	curl_easy_getinfo(attempt->easy, CURLINFO_NAMELOOKUP_TIME_T, &named_us);
	curl_easy_getinfo(attempt->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
	if (connected_us > named_us)
		attempt->transfer->store->connect_us = connected_us - named_us;
}

/* Smooths the time to the first byte as TCP does round trips (RFC 6298: gain of an eighth). */
static void measure_latency(const struct attempt *attempt)
{
	double *smoothed = &attempt->transfer->store->counters.latency_ms;
	curl_off_t first_us = 0, sent_us = 0;

	if (attempt->queues != attempt->transfer->store->loop.queues && *smoothed > 0)
		return;
	curl_easy_getinfo(attempt->easy, CURLINFO_STARTTRANSFER_TIME_T, &first_us);
	curl_easy_getinfo(attempt->easy, CURLINFO_PRETRANSFER_TIME_T, &sent_us);
	if (first_us <= sent_us)
		return;
	double ms = (double)(first_us - sent_us) / 1000;
	*smoothed += *smoothed > 0 ? (ms - *smoothed) / 8 : ms;
	measure_least(attempt->transfer->store, ms);
}

void attempt_measure(const struct attempt *attempt)
{
	measure_connection(attempt);
	measure_latency(attempt);
}
