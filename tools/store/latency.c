/* How long connections and replies take. */
#include "format/base/system/clock.h"
#include "tools/store/store_internal.h"

#include <string.h>
#include <xxhash.h>

enum { LEAST_PERIOD_MS = 10000 };

/* The same number for all objects of a host: of s3:// there is one endpoint. */
static uint64_t host_of(const struct store_address *address)
{
	const char *host = address->s3 ? NULL : strstr(address->path, "://");

	return host ? XXH3_64bits(host, 3 + strcspn(host + 3, "/?")) : 0;
}

/* Finds a host's latencies; those of the host that was measured anew the longest ago make room. */
static struct host_latency *find_host(struct store *store, uint64_t host)
{
	struct host_latency *found = &store->hosts[0];

	for (unsigned i = 0; i < STORE_HOSTS; i++) {
		if (store->hosts[i].host == host)
			return &store->hosts[i];
		if (store->hosts[i].since_ms < found->since_ms)
			found = &store->hosts[i];
	}
	*found = (struct host_latency){.host = host};
	return found;
}

static double shorter(const double ms[2])
{
	return ms[0] == 0 || (ms[1] > 0 && ms[1] < ms[0]) ? ms[1] : ms[0];
}

/*
 * Keeps the shortest latency of this period and of the one before. That of the farthest host
 * counts: what is requested of a near one would else limit how much is requested of others.
 */
static void measure_least(struct store *store, const struct store_address *address, double ms)
{
	const int64_t now_ms = clock_ms();
	struct host_latency *host = find_host(store, host_of(address));
	double *least_ms = &store->counters.least_ms;

	if (now_ms - host->since_ms > LEAST_PERIOD_MS) {
		host->least_ms[1] = host->least_ms[0];
		host->least_ms[0] = 0;
		host->since_ms = now_ms;
	}
	if (host->least_ms[0] == 0 || ms < host->least_ms[0])
		host->least_ms[0] = ms;
	*least_ms = 0;
	for (unsigned i = 0; i < STORE_HOSTS; i++)
		if (now_ms - store->hosts[i].since_ms <= 2 * LEAST_PERIOD_MS &&
		    shorter(store->hosts[i].least_ms) > *least_ms)
			*least_ms = shorter(store->hosts[i].least_ms);
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
	measure_least(attempt->transfer->store, &attempt->transfer->request.object->address, ms);
}

void attempt_measure(const struct attempt *attempt)
{
	measure_connection(attempt);
	measure_latency(attempt);
}
