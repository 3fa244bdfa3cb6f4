/*
 * How much memory each user has in rings. A ring counts from the moment it is made until no process
 * has it any more, nothing in the kernel refers to a page of it, and its inode is gone: the kernel
 * says so (ring_memory_open(), ring_memory_free(), ring_memory_watch()), not the worker. The
 * supervisor's thread alone uses it.
 */
#pragma once

#include "loaderd/supervisor/blocking_pool.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct quota_ring;
struct probe_job;

/* What one user has. */
struct ring_usage {
	uint64_t bytes;
	unsigned rings;
	unsigned probing;       /* rings that a thread is looking at */
	uint64_t slow_until_ns; /* a ring was pinned lately, and others may be */
	struct probe_job *job;  /* inside ring_quota_sweep() */
};

struct ring_quota {
	uint64_t bytes_max, bytes_per_user_max; /* bytes */
	unsigned rings_per_user_max;
	unsigned rings_count, rings_max; /* of all users, and how many there may be */
	/* Of those that are left a user may have one in so many, but a few; 0: all of them. */
	unsigned rings_share;
	bool writable_rings; /* a client may be given a description that can write */
	bool has_leases;     /* false: a ring counts as long as its worker says */
	/*
	 * Owned, and readable when a sweep may find a ring free, until ring_quota_read_events().
	 * inotify_fd -1: there is none, and O_PATH descriptors are not noticed.
	 */
	int inotify_fd, event_fd;
	uint64_t bytes; /* of all */
	struct quota_ring *rings;
	struct blocking_pool *blocking_pool;
};

/* Opens the descriptors; the rest is the caller's to fill in. -errno. */
int ring_quota_init(struct ring_quota *quota);
/*
 * Makes the memory of a ring as the record wants it and books it, or fills in why not: 0, or a
 * positive errno, which order->code has, too. ret_fds: ring and ack page for the worker, the
 * caller's to send and close.
 */
int ring_quota_allocate(struct ring_quota *quota, struct ring_usage *usage, uid_t uid,
			uint64_t worker, const struct ipc_record *record, struct ipc_order *order,
			int ret_fds[IPC_FDS_MAX]);
/*
 * The client's descriptors of a worker's ring, once: the caller's to send and close. False: there
 * is no such ring, or they have been taken.
 */
bool ring_quota_take_fds(struct ring_quota *quota, uint64_t worker, uint64_t feed,
			 int fds[IPC_FDS_MAX]);
/*
 * A worker says that it is done with a ring, or (feed 0) has ended: what else it needed for it, it
 * needs no more.
 */
void ring_quota_release(struct ring_quota *quota, uint64_t worker, uint64_t feed);
/* Takes note of what has come. */
void ring_quota_read_events(struct ring_quota *quota);
/*
 * Strikes out rings that are free. Whether one is free is found out on a thread, which may take a
 * while: a later sweep has the answer. all: looks at rings whose workers have not said that they
 * are done, too. True: clients still have rings whose workers are done, to be looked at again soon.
 */
bool ring_quota_sweep(struct ring_quota *quota, bool all);
void ring_quota_deinit(struct ring_quota *quota);
