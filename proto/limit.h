/*
 * What limits a feed, judged from what the daemon counts (FeedStatus in feed.proto), since the feed
 * opened or between two looks. Pure functions, any thread; shared by the programs that tell a
 * person: loaderctl and loaderbench.
 */
#pragma once

#include "proto/feed.pb-c.h"
#include "proto/stage.h"

/* Nanoseconds, as in FeedStatus. */
struct limit_times {
	uint64_t stall_client, stall_daemon;
	uint64_t stage[STAGE_COUNT];
};

/* "consumer" for LIMIT_CONSUMER and so on. */
const char *limit_name(enum limit limit);
/* Adds what a feed's status says. */
void limit_times_add(struct limit_times *times, const Loaderd__FeedStatus *feed);
/* after - before. */
struct limit_times limit_times_between(const struct limit_times *before,
				       const struct limit_times *after);
/*
 * elapsed_ns: the time in which that happened; cpus: how many the daemon's threads could use,
 * threads or CPUs, whichever are fewer. Zeros: not known, then a disturbance by other programs is
 * not told from work.
 */
enum limit limit_judge(const struct limit_times *times, uint64_t elapsed_ns, unsigned cpus);
