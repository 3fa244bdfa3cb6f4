/*
 * Accounts for the memory of each user's rings. A ring counts from its creation until no process
 * has it open or mapped, nothing in the kernel refers to one of its pages, and its inode is gone.
 * The kernel tells (ring_memory_open(), ring_memory_free(), ring_memory_watch()); a worker is not
 * believed. Used by the supervisor's thread alone.
 */
#pragma once

#include "loaderd/supervisor/blocking_pool.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct quota_ring;
struct probe_job;

/* One user's rings. */
struct ring_usage {
	uint64_t bytes;
	unsigned rings;
	unsigned probing;       /* rings that a thread is probing */
	uint64_t slow_until_ns; /* a probe found a pinned ring recently: others may be slow, too */
	struct probe_job *job;  /* inside ring_quota_sweep() */
};

struct ring_quota {
	uint64_t bytes_max, bytes_per_user_max; /* bytes */
	unsigned rings_per_user_max;
	unsigned rings_count, rings_max; /* of all users, and their limit */
	/* A user may have 1/rings_share of the rings still free, but always a few; 0: all. */
	unsigned rings_share;
	bool writable_rings; /* clients may get a writable description */
	bool has_leases;     /* false: a ring counts until its worker reports its end */
	/*
	 * Owned. Readable when a sweep may find a free ring; ring_quota_read_events() clears them.
	 * inotify_fd -1: not available; O_PATH descriptors then go unnoticed.
	 */
	int inotify_fd, event_fd;
	uint64_t bytes; /* of all */
	struct quota_ring *rings;
	struct blocking_pool *blocking_pool;
};

/* Opens the descriptors; the caller sets the other fields. Returns 0 or -errno. */
int ring_quota_init(struct ring_quota *quota);
/*
 * Creates and charges the memory of the ring that the record asks for. Returns 0, or a positive
 * errno that is also in order->code, with the limit that was exceeded. ret_fds: ring and ack page
 * for the worker, owned by the caller.
 */
int ring_quota_allocate(struct ring_quota *quota, struct ring_usage *usage, uid_t uid,
			uint64_t worker, const struct ipc_record *record, struct ipc_order *order,
			int ret_fds[IPC_FDS_MAX]);
/*
 * Hands out the client's descriptors of a ring, once; the caller owns them. Returns false if there
 * is no such ring or they were handed out before.
 */
bool ring_quota_take_fds(struct ring_quota *quota, uint64_t worker, uint64_t feed,
			 int fds[IPC_FDS_MAX]);
/* A worker reports the end of a feed, or (feed 0) has ended: drops the charge of other_bytes. */
void ring_quota_release(struct ring_quota *quota, uint64_t worker, uint64_t feed);
/* Reads inotify and probe events. */
void ring_quota_read_events(struct ring_quota *quota);
/*
 * Uncharges free rings. A thread probes rings, so a later sweep has the answer. all: also probes
 * rings whose feeds have not ended. Returns true if clients still hold rings of ended feeds: sweep
 * again soon.
 */
bool ring_quota_sweep(struct ring_quota *quota, bool all);
void ring_quota_deinit(struct ring_quota *quota);
