/*
 * What the fetcher requests: the samples that feeds wait for, then those that they announce, in
 * order, neighbours together. It keeps about as many bytes under way as the store delivers during
 * its latency, so that the link is busy, and no more. Main thread only.
 */
#pragma once

#include "tools/fetch/buffers.h"
#include "tools/fetch/feed.h"
#include "tools/fetch/rate.h"
#include "tools/fetch/sandbox.h"

enum { FETCHER_MEMORY_MIN = 32 << 20 };

struct fetcher {
	struct store *store;
	struct cache cache;
	struct fetch_sandbox sandbox;
	struct remote_dataset *datasets;
	struct fetch_feed *feeds;
	uint64_t memory;    /* bytes that it may take, beside indexes; set before schedule_init() */
	uint64_t under_way; /* bytes requested and not there */
	struct buffers buffers; /* for replies that are coming in */
	uint64_t passing;       /* bytes of a full cache through which samples pass */
	struct rate rate;
	unsigned connections; /* at most */
	int64_t disk_measured_ms;
	unsigned clearances; /* how often space was made on a full disk */
};

void schedule_init(struct fetcher *fetcher);
/* After the last request. */
void schedule_close(struct fetcher *fetcher);
/*
 * Sets how much of a dataset that is about to be added the cache keeps: removes datasets that
 * nobody has open, and leaves the others what they have been promised.
 */
void schedule_share_room(struct fetcher *fetcher, struct remote_dataset *dataset);
/*
 * Requests what is wanted. Returns how many milliseconds may pass until the next call; call it
 * earlier when a page has changed.
 */
int schedule_run(struct fetcher *fetcher);
