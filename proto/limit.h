/*
 * Finds what limits a feed's throughput from the daemon's counters (FeedStatus in feed.proto),
 * since the feed opened or between two samples of them. Pure functions, any thread. Used by
 * loaderctl and loaderbench.
 */
#pragma once

#include "proto/feed.pb-c.h"
#include "proto/stage.h"

/* Nanoseconds, as in FeedStatus. */
struct limit_times {
	uint64_t stall_client, stall_daemon;
	uint64_t stage[STAGE_COUNT];
};

/* Returns "consumer" for LIMIT_CONSUMER and so on. */
const char *limit_name(enum limit limit);
/* Adds a feed's counters. */
void limit_times_add(struct limit_times *times, const Loaderd__FeedStatus *feed);
/* Returns after - before. */
struct limit_times limit_times_between(const struct limit_times *before,
				       const struct limit_times *after);
/*
 * elapsed_ns: the time that `times` covers. cpus: the number of CPUs that the daemon's threads
 * could use, min(threads, CPUs). If either is 0, contention with other programs cannot be told from
 * work.
 */
enum limit limit_judge(const struct limit_times *times, uint64_t elapsed_ns, unsigned cpus);
