#include "loaderd/supervisor/ring_quota.h"

#include "format/base/system/clock.h"
#include "proto/ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

enum {
	RING,
	ACK,                  /* indices into arrays of fds */
	PROBES_MAX = 16,      /* rings per probe job */
	PROBE_MS = 200,       /* interval before the first retry of a pinned ring */
	PROBE_MS_MAX = 10000, /* maximum interval; it doubles after each retry */
	RINGS_MIN = 4,        /* rings that a user may have regardless of rings_share */
	SLOW_MS = 60000, /* after a pinned ring, a user's probes run as slow jobs for this long */
};
#define MS_NS UINT64_C(1000000)

enum probe_state {
	PROBE_NONE,
	PROBE_UNDER_WAY, /* a thread is probing the ring */
	PROBE_FREE,      /* the kernel holds no reference to it */
	PROBE_PINNED,    /* the kernel holds a reference to one of its pages */
	PROBE_SKIPPED,   /* not probed by the job */
};

/*
 * A ring passes the states in this order, except that one whose end its worker does not report goes
 * from IN_USE to CLOSED.
 */
enum quota_ring_state {
	QUOTA_RING_IN_USE,
	QUOTA_RING_ENDED,  /* its feed has ended, but a process may still hold it */
	QUOTA_RING_CLOSED, /* no process holds it; our fds are closed, the inode may still exist */
	QUOTA_RING_GONE,   /* the inode is gone */
};

struct quota_ring {
	struct quota_ring *next;
	enum quota_ring_state state;
	struct ring_usage *usage;
	uid_t uid;
	uint64_t worker, feed;
	uint64_t ring_bytes, other_bytes;
	int fds[IPC_FDS_MAX]; /* for the client; -1 once handed out */
	int watch_fds[IPC_FDS_MAX];
	int inotify_watch; /* negative if unavailable */
	_Atomic int probe; /* enum probe_state; a thread writes it while it is PROBE_UNDER_WAY */
	unsigned probe_ms; /* delay after the next failure */
	uint64_t probe_due_ns;
};

/* Rings of one user to probe. */
struct probe_job {
	int event_fd;
	unsigned count;
	struct quota_ring *rings[PROBES_MAX];
};

static int ring_quota_refuse(struct ipc_order *order, enum ipc_limit limit, uint64_t most,
			     uint64_t used)
{
	order->code = EDQUOT;
	order->limit = limit;
	order->most = most;
	order->left = used < most ? most - used : 0;
	return EDQUOT;
}

/*
 * Returns whether fds suffice for another ring of this user. A user may hold a fraction of the free
 * fds rather than all, so that a few users together cannot take everything (dynamic thresholds:
 * Choudhury and Hahne, 1998).
 */
static bool has_descriptors(const struct ring_quota *quota, const struct ring_usage *usage)
{
	if (quota->rings_count >= quota->rings_max)
		return false;
	if (quota->rings_share == 0 || usage->rings < RINGS_MIN)
		return true;
	return usage->rings < (quota->rings_max - quota->rings_count) / quota->rings_share;
}

static int ring_quota_admit(const struct ring_quota *quota, const struct ring_usage *usage,
			    uint64_t bytes, struct ipc_order *order)
{
	if (usage->rings >= quota->rings_per_user_max)
		return ring_quota_refuse(order, IPC_LIMIT_RINGS, quota->rings_per_user_max,
					 usage->rings);
	if (!has_descriptors(quota, usage))
		return ring_quota_refuse(order, IPC_LIMIT_DESCRIPTORS, 0, 0);
	if (usage->bytes > quota->bytes_per_user_max ||
	    bytes > quota->bytes_per_user_max - usage->bytes)
		return ring_quota_refuse(order, IPC_LIMIT_USER, quota->bytes_per_user_max,
					 usage->bytes);
	if (quota->bytes > quota->bytes_max || bytes > quota->bytes_max - quota->bytes)
		/* Report 0 left: the exact amount would reveal other users' usage. */
		return ring_quota_refuse(order, IPC_LIMIT_ALL, quota->bytes_max, quota->bytes_max);
	return 0;
}

static int make_memory(struct quota_ring *ring, bool writable, int inotify_fd,
		       int ret_fds[IPC_FDS_MAX])
{
	struct ring_memory memory, ack;
	int r = ring_memory_new(ring->ring_bytes - RING_ACK_SIZE, writable, &memory);
	if (r < 0)
		return r;
	r = ring_memory_new(RING_ACK_SIZE, true, &ack);
	if (r < 0) {
		close(memory.fd);
		close(memory.client_fd);
		close(memory.watch_fd);
		return r;
	}
	ret_fds[RING] = memory.fd;
	ret_fds[ACK] = ack.fd;
	ring->fds[RING] = memory.client_fd;
	ring->fds[ACK] = ack.client_fd;
	ring->watch_fds[RING] = memory.watch_fd;
	ring->watch_fds[ACK] = ack.watch_fd;
	ring->inotify_watch = ring_memory_watch(memory.watch_fd, inotify_fd);
	return 0;
}

static void drop_fds(struct quota_ring *ring)
{
	for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
		if (ring->fds[i] >= 0)
			close(ring->fds[i]);
		ring->fds[i] = -1;
	}
}

int ring_quota_allocate(struct ring_quota *quota, struct ring_usage *usage, uid_t uid,
			uint64_t worker, const struct ipc_record *record, struct ipc_order *order,
			int ret_fds[IPC_FDS_MAX])
{
	uint64_t bytes;
	if (record->ring_bytes <= RING_ACK_SIZE || record->ring_bytes > INT64_MAX ||
	    __builtin_add_overflow(record->ring_bytes, record->other_bytes, &bytes))
		return order->code = EINVAL;
	if (ring_quota_admit(quota, usage, bytes, order) != 0)
		return order->code;
	struct quota_ring *ring = calloc(1, sizeof(*ring));
	if (!ring)
		return order->code = ENOMEM;
	*ring = (struct quota_ring){
		.next = quota->rings,
		.usage = usage,
		.uid = uid,
		.worker = worker,
		.feed = record->feed,
		.ring_bytes = record->ring_bytes,
		.other_bytes = record->other_bytes,
		.probe_ms = PROBE_MS,
	};
	int r = make_memory(ring, record->writable && quota->writable_rings, quota->inotify_fd,
			    ret_fds);
	if (r < 0) {
		free(ring);
		return order->code = -r;
	}
	quota->rings = ring;
	quota->bytes += bytes;
	usage->bytes += bytes;
	usage->rings++;
	quota->rings_count++;
	return 0;
}

static void ring_quota_uncharge(struct ring_quota *quota, struct quota_ring *ring, uint64_t *bytes)
{
	quota->bytes -= *bytes;
	ring->usage->bytes -= *bytes;
	*bytes = 0;
}

bool ring_quota_take_fds(struct ring_quota *quota, uint64_t worker, uint64_t feed,
			 int fds[IPC_FDS_MAX])
{
	struct quota_ring *ring = quota->rings;
	while (ring && (ring->worker != worker || ring->feed != feed || ring->fds[0] < 0))
		ring = ring->next;
	if (!ring)
		return false;
	for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
		fds[i] = ring->fds[i];
		ring->fds[i] = -1;
	}
	return true;
}

void ring_quota_release(struct ring_quota *quota, uint64_t worker, uint64_t feed)
{
	for (struct quota_ring *ring = quota->rings; ring; ring = ring->next) {
		if (ring->worker != worker || (feed != 0 && ring->feed != feed))
			continue;
		if (ring->state == QUOTA_RING_IN_USE)
			ring->state = QUOTA_RING_ENDED;
		drop_fds(ring);
		/*
		 * A worker may report the end of a feed and still use this memory; that harms only
		 * its own user.
		 */
		ring_quota_uncharge(quota, ring, &ring->other_bytes);
	}
}

/*
 * Runs on a thread. Probes rings until one is pinned, as a probe of a pinned ring takes long; skips
 * the rest.
 */
static void run_probes(void *context)
{
	struct probe_job *job = context;
	enum probe_state last = PROBE_FREE;
	for (unsigned i = 0; i < job->count; i++) {
		if (last != PROBE_FREE)
			last = PROBE_SKIPPED;
		else if (ring_memory_free(job->rings[i]->watch_fds[RING]) < 0)
			last = PROBE_PINNED;
		atomic_store(&job->rings[i]->probe, (int)last);
	}
	const uint64_t one = 1;
	ssize_t n = write(job->event_fd, &one, sizeof(one));
	(void)n;
	free(job);
}

/* Returns whether any process may still read or map the ring. */
static bool is_open(const struct ring_quota *quota, const struct quota_ring *ring)
{
	if (!quota->has_leases)
		return ring->state == QUOTA_RING_IN_USE;
	return ring_memory_open(ring->watch_fds[RING]) || ring_memory_open(ring->watch_fds[ACK]);
}

/*
 * Adds a ring that no process has open to its user's next probe job. A user has one job at a time,
 * so that a user with many pinned rings does not occupy all threads.
 */
static void collect(const struct ring_quota *quota, struct quota_ring *ring, uint64_t now_ns)
{
	struct ring_usage *usage = ring->usage;
	if (ring->state >= QUOTA_RING_CLOSED || usage->probing > 0 ||
	    (usage->job && usage->job->count == PROBES_MAX) || now_ns < ring->probe_due_ns ||
	    is_open(quota, ring))
		return;
	if (!usage->job)
		usage->job = calloc(1, sizeof(*usage->job));
	if (usage->job)
		usage->job->rings[usage->job->count++] = ring;
}

static void start_job(struct ring_quota *quota, struct ring_usage *usage, uid_t uid,
		      uint64_t now_ns)
{
	struct probe_job *job = usage->job;
	usage->job = NULL;
	usage->probing = job->count;
	job->event_fd = quota->event_fd;
	for (unsigned i = 0; i < job->count; i++)
		atomic_store(&job->rings[i]->probe, PROBE_UNDER_WAY);
	if (blocking_pool_run(quota->blocking_pool, uid, now_ns < usage->slow_until_ns, run_probes,
			      job))
		return;
	for (unsigned i = 0; i < job->count; i++)
		atomic_store(&job->rings[i]->probe, PROBE_SKIPPED);
	free(job);
}

/* Handles the result of a probe. */
static void end_probe(struct quota_ring *ring, int probe, uint64_t now_ns)
{
	ring->usage->probing--;
	atomic_store(&ring->probe, PROBE_NONE);
	if (probe != PROBE_PINNED)
		return;
	ring->usage->slow_until_ns = now_ns + SLOW_MS * MS_NS;
	ring->probe_due_ns = now_ns + ring->probe_ms * MS_NS;
	ring->probe_ms = ring->probe_ms * 2 > PROBE_MS_MAX ? PROBE_MS_MAX : ring->probe_ms * 2;
}

static void forget_ring(struct ring_quota *quota, struct quota_ring *ring)
{
	ring_quota_uncharge(quota, ring, &ring->ring_bytes);
	ring_quota_uncharge(quota, ring, &ring->other_bytes);
	ring->usage->rings--;
	quota->rings_count--;
	free(ring);
}

/* Closes the last fds of a free ring, on a thread: freeing gigabytes takes a while. */
static void close_watches(struct ring_quota *quota, struct quota_ring *ring)
{
	for (unsigned i = 0; i < IPC_FDS_MAX; i++)
		blocking_pool_close(quota->blocking_pool, ring->uid, ring->watch_fds[i]);
	/* Without a watch, fds opened with O_PATH go unnoticed. */
	ring->state = ring->inotify_watch < 0 ? QUOTA_RING_GONE : QUOTA_RING_CLOSED;
}

/*
 * Marks rings whose inode is gone. The kernel removes a watch with its inode and does not reuse its
 * number for a long time.
 */
void ring_quota_read_events(struct ring_quota *quota)
{
	_Alignas(struct inotify_event) char events[4096];
	uint64_t count;
	ssize_t n = read(quota->event_fd, &count, sizeof(count));
	while ((n = read(quota->inotify_fd, events, sizeof(events))) > 0)
		for (char *at = events; at < events + n;) {
			const struct inotify_event *event = (void *)at;
			at += sizeof(*event) + event->len;
			for (struct quota_ring *ring = quota->rings; ring; ring = ring->next)
				if (ring->state == QUOTA_RING_CLOSED &&
				    ring->inotify_watch == event->wd)
					ring->state = QUOTA_RING_GONE;
		}
}

bool ring_quota_sweep(struct ring_quota *quota, bool all)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	bool soon = false;
	ring_quota_read_events(quota);
	for (struct quota_ring **at = &quota->rings; *at;) {
		struct quota_ring *ring = *at;
		int probe = atomic_load(&ring->probe);
		if (probe != PROBE_NONE && probe != PROBE_UNDER_WAY)
			end_probe(ring, probe, now_ns);
		if (probe == PROBE_FREE)
			close_watches(quota, ring);
		if (ring->state == QUOTA_RING_GONE) {
			*at = ring->next;
			forget_ring(quota, ring);
			continue;
		}
		/* Closed rings need no early sweep: an inotify event reports their end. */
		soon |= ring->state == QUOTA_RING_ENDED;
		at = &ring->next;
	}
	for (struct quota_ring *ring = quota->rings; ring; ring = ring->next)
		if (all || ring->state != QUOTA_RING_IN_USE)
			collect(quota, ring, now_ns);
	for (struct quota_ring *ring = quota->rings; ring; ring = ring->next)
		if (ring->usage->job)
			start_job(quota, ring->usage, ring->uid, now_ns);
	return soon;
}

int ring_quota_init(struct ring_quota *quota)
{
	quota->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	quota->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return quota->event_fd < 0 ? -errno : 0;
}

/* Rings that probe threads may use until the process exits. Reachable, so that they are no leak. */
static struct quota_ring *probed_until_exit;

void ring_quota_deinit(struct ring_quota *quota)
{
	while (quota->rings) {
		struct quota_ring *ring = quota->rings;
		quota->rings = ring->next;
		drop_fds(ring);
		if (atomic_load(&ring->probe) == PROBE_UNDER_WAY) {
			ring->next = probed_until_exit;
			probed_until_exit = ring;
			continue;
		}
		if (ring->state < QUOTA_RING_CLOSED) {
			close(ring->watch_fds[RING]);
			close(ring->watch_fds[ACK]);
		}
		free(ring);
	}
	if (quota->inotify_fd >= 0)
		close(quota->inotify_fd);
	/* Leave event_fd open: a probe thread may still write to it. */
	quota->inotify_fd = -1;
}
