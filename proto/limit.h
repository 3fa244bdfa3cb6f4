/*
 * What limits a feed, judged from what the daemon counts (FeedStatus in feed.proto), since the feed
 * opened or between two looks. Pure functions, any thread; shared by the programs that tell a
 * person: loaderctl and loaderbench.
 */
#pragma once

#include "proto/feed.pb-c.h"

#include <stdint.h>

enum limit {
	LIMIT_NONE, /* nobody waited, or both sides alike */
	/* slots are full: the client takes batches more slowly than they are made */
	LIMIT_CONSUMER,
	LIMIT_STORAGE, /* threads sleep until stored bytes come */
	LIMIT_CPUS,    /* threads wait for CPUs that others use, more than they work */
	LIMIT_DECODE,  /* the CPUs are busy, most of all with decoding, */
	LIMIT_AUGMENT, /* resizing, augmenting and storing, */
	LIMIT_OTHER,   /* or verifying, collecting and handing over */
};

/* Nanoseconds, names as in FeedStatus. */
struct limit_times {
	uint64_t stall_client, stall_daemon;
	uint64_t wait, queued;
	uint64_t read, decode, resize, augment, store, other;
};

/* "consumer" for LIMIT_CONSUMER and so on. */
const char *limit_name(enum limit limit);
/* Adds what a feed's status says. */
void limit_times_add(struct limit_times *times, const Loaderd__FeedStatus *feed);
/* after - before. */
struct limit_times limit_times_between(const struct limit_times *before,
				       const struct limit_times *after);
/* CPU time. */
uint64_t limit_work(const struct limit_times *times);
/*
 * elapsed_ns: the time in which that happened; cpus: how many the daemon's threads could use,
 * threads or CPUs, whichever are fewer. Zeros: not known, then a disturbance by other programs is
 * not told from work.
 */
enum limit limit_judge(const struct limit_times *times, uint64_t elapsed_ns, unsigned cpus);
