/*
 * How fast the store is, and what follows: how many bytes are requested at once, and how many are
 * under way. The state is the fetcher's. Main thread only.
 */
#pragma once

#include <stdint.h>

struct fetcher;

void rate_init(struct fetcher *fetcher);
/* Measures the rate of the last quarter of a second, and the peak rate. Call it often. */
void rate_measure(struct fetcher *fetcher);
/*
 * Lets as many bytes be requested at once as the store delivers while a request waits for its first
 * byte, and half as many more, so that the rate grows as long as the link lets it. A latency that
 * is far above the shortest one is that of requests which wait for each other.
 */
void rate_set_limits(struct fetcher *fetcher);
/*
 * Bytes that may be under way: what the store delivers while three requests wait for their first
 * byte, one after the other. The shortest wait counts (Cardwell et al. 2016, "BBR"): with that of
 * requests which wait for each other, more requests would make for more of them, and what is needed
 * first would come ever later.
 */
uint64_t rate_under_way(const struct fetcher *fetcher);
/* As much is under way as the peak rate allows. */
void rate_note_full(struct fetcher *fetcher);
