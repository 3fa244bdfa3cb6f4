/* What this user's loaderd-fetch does while a dataset in a store is measured. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Counts of all datasets that the fetcher has open. */
struct fetch_sample {
	uint64_t taken_ns; /* CLOCK_MONOTONIC; 0: there is no sample */
	uint32_t pid;      /* of the fetcher: another one counts from 0 */
	uint64_t requests, bytes, retries, hedges, hits, misses;
	uint64_t cpu_ns;
	uint64_t under_way; /* requests, now */
	double latency_ms;  /* from a request to its first byte, smoothed */
};

/* Of a window. */
struct fetch_rates {
	bool known;                        /* false for files, and if the fetcher was replaced */
	uint64_t requests;                 /* that have ended */
	double bytes_per_s, request_bytes; /* request_bytes: of one, 0 without any */
	double under_way;                  /* requests, mean of both ends */
	double latency_ms;
	double repeated, hedged; /* fractions of the requests */
	double cpu;              /* of one CPU */
	double cached;           /* fraction of the samples that need not be fetched */
};

/* Asks the fetcher. Leaves a sample without time if it does not answer. */
void fetch_sample_take(struct fetch_sample *ret_sample);
struct fetch_rates fetch_rates_between(const struct fetch_sample *before,
				       const struct fetch_sample *after);
