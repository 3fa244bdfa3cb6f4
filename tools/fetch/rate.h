/*
 * How fast the store is, and what follows: how many bytes are requested at once, and how many are
 * under way. One thread.
 */
#pragma once

#include "tools/store/store.h"

struct rate {
	/* the last measurement */
	int64_t measured_ms;
	uint64_t measured_bytes;
	double now;      /* bytes per second */
	double peak;     /* of it, lately */
	bool is_full;    /* since then, as much was under way as the peak allows */
	int64_t full_ms; /* from when on it was in each measurement; 0: in none */
};

void rate_init(struct rate *rate);
/* Measures the rate of the last quarter of a second, and the peak rate. Call it often. */
void rate_measure(struct rate *rate, const struct store *store);
/*
 * Lets as many bytes be requested at once as the store delivers while a request waits for its first
 * byte, and half as many more, so that the rate grows as long as the link lets it; by that many
 * connections at most. A latency that is far above the shortest one is that of requests which wait
 * for each other.
 */
void rate_set_limits(const struct rate *rate, struct store *store, unsigned connections);
/*
 * Bytes that may be under way: what the store delivers while three requests wait for their first
 * byte, one after the other. The shortest wait counts (Cardwell et al. 2016, "BBR"): with that of
 * requests which wait for each other, more requests would make for more of them, and what is needed
 * first would come ever later.
 */
uint64_t rate_under_way(const struct rate *rate, const struct store *store);
/* As much is under way as the peak rate allows. */
void rate_note_full(struct rate *rate);
