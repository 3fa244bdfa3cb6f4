/*
 * What limits a feed, judged from what the daemon counts (FeedStatus in feed.proto), since the feed opened or between two looks. Pure functions, any
 * thread; shared by the programs that tell a person: loaderctl and loaderbench.
 */
#pragma once

#include "feed.pb-c.h"

#include <stdint.h>

enum limit {
	LIMIT_NONE,     /* nobody waited, or both sides alike */
	LIMIT_CONSUMER, /* slots are full: the client takes batches more slowly than they are made */
	LIMIT_STORAGE,  /* threads sleep until stored bytes come */
	LIMIT_CPUS,     /* threads wait for CPUs that others use */
	LIMIT_DECODE,   /* the CPUs are busy, most of all with decoding, */
	LIMIT_AUGMENT,  /* resizing, augmenting and storing, */
	LIMIT_OTHER,    /* or verifying, collecting and handing over */
};

/* Nanoseconds, names as in FeedStatus. */
struct limit_times {
	uint64_t stall_client, stall_daemon;
	uint64_t wait, queued;
	uint64_t read, decode, resize, store, other;
};

/* What has passed since `before`; NULL: since the feed opened. */
void limit_times(const Loaderd__FeedStatus *now, const Loaderd__FeedStatus *before, struct limit_times *ret_times);
/* CPU time. */
uint64_t limit_work(const struct limit_times *times);
/*
 * capacity_ns: CPU time that the daemon's threads could have had meanwhile, the time times threads or CPUs, whichever are fewer; 0 when it is
 * not known, then a disturbance by other programs is not told from work.
 */
enum limit limit_judge(const struct limit_times *times, uint64_t capacity_ns);
