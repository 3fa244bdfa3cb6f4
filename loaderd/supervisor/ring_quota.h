/*
 * Accounts for the memory of each user's rings. A ring is charged from its creation until no
 * process has it open or mapped, the kernel holds no reference to one of its pages, and its inode
 * is gone. All three are verified with the kernel (ring_memory_open(), ring_memory_free(),
 * ring_memory_watch()), because workers are untrusted. Supervisor thread only.
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
	unsigned probing;       /* rings being probed on a thread */
	uint64_t slow_until_ns; /* until then, probes run as slow jobs */
	struct probe_job *job;  /* being assembled; used only inside ring_quota_sweep() */
};

struct ring_quota {
	uint64_t bytes_max, bytes_per_user_max; /* bytes */
	unsigned rings_per_user_max;
	unsigned rings_count, rings_max; /* all rings, and their limit */
	/*
	 * A user may hold at most 1/rings_share of the rings still free, but always a few; 0: no
	 * such limit.
	 */
	unsigned rings_share;
	bool writable_rings; /* clients may map rings writable */
	bool has_leases;     /* if false, a ring is charged until its worker reports its end */
	/*
	 * Owned. Readable when a sweep may free a ring; ring_quota_read_events() drains them.
	 * inotify_fd is -1 if unavailable: fds opened with O_PATH then go unnoticed.
	 */
	int inotify_fd, event_fd;
	uint64_t bytes; /* charged bytes of all users */
	struct quota_ring *rings;
	struct blocking_pool *blocking_pool;
};

/* Opens the descriptors; the caller sets the other fields. Returns 0 or -errno. */
int ring_quota_init(struct ring_quota *quota);
/*
 * Creates and charges the ring that the record asks for. Returns 0 or a positive errno, which is
 * also stored in order->code along with the limit that was exceeded. ret_fds: ring and ack page for
 * the worker, owned by the caller.
 */
int ring_quota_allocate(struct ring_quota *quota, struct ring_usage *usage, uid_t uid,
			uint64_t worker, const struct ipc_record *record, struct ipc_order *order,
			int ret_fds[IPC_FDS_MAX]);
/*
 * Hands out the client's fds of a ring, once; the caller then owns them. Returns false if there is
 * no such ring or they were handed out before.
 */
bool ring_quota_take_fds(struct ring_quota *quota, uint64_t worker, uint64_t feed,
			 int fds[IPC_FDS_MAX]);
/*
 * Handles the end of a feed, as reported by its worker, or of all feeds of a worker that has exited
 * (feed 0). Uncharges other_bytes; the ring stays charged until it is free.
 */
void ring_quota_release(struct ring_quota *quota, uint64_t worker, uint64_t feed);
/* Drains inotify_fd and event_fd and marks rings whose inode is gone. */
void ring_quota_read_events(struct ring_quota *quota);
/*
 * Uncharges rings that are free. Probing happens on threads, so a later sweep sees the result. all:
 * also probe rings of feeds that have not ended. Returns true if clients still hold rings of ended
 * feeds; sweep again soon.
 */
bool ring_quota_sweep(struct ring_quota *quota, bool all);
void ring_quota_deinit(struct ring_quota *quota);
