#include "loaderd/supervisor/ledger.h"

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
	ACK,                  /* in arrays of descriptors */
	PROBES_MAX = 16,      /* rings of a user that one job looks at */
	PROBE_MS = 200,       /* a pinned ring is probed again after so long, */
	PROBE_MS_MAX = 10000, /* twice as long each time, at most so long */
	RINGS_LEAST = 4,      /* that a user may have, whatever others have */
	SLOW_MS = 60000,      /* who has had one keeps those waiting who have, too, for so long */
};
#define MS_NS UINT64_C(1000000)

enum probe_state {
	PROBE_NONE,
	PROBE_UNDER_WAY, /* a thread has the ring */
	PROBE_FREE,      /* nothing refers to the ring */
	PROBE_PINNED,    /* something does */
	PROBE_SKIPPED,   /* the thread has not looked */
};

struct ledger_ring {
	struct ledger_ring *next;
	struct ledger_account *account;
	uid_t uid;
	uint64_t worker, feed;
	uint64_t ring_bytes, other_bytes;
	int fds[LINK_FDS_MAX]; /* for the client; -1: it has been sent them */
	int watch_fds[LINK_FDS_MAX];
	int inotify_watch; /* negative: none was to be had */
	bool done;
	bool closed;       /* we have given up our descriptors, and wait for the inode to go */
	bool gone;         /* it has */
	_Atomic int probe; /* enum probe_state; written by a thread while it is under way */
	unsigned probe_ms; /* how long to wait after the next failure */
	uint64_t probe_due_ns;
};

/* Rings of one user to be looked at. */
struct probe_job {
	int event_fd;
	unsigned count;
	struct ledger_ring *rings[PROBES_MAX];
};

static int ledger_refuse(struct link_order *order, enum link_limit limit, uint64_t most,
			 uint64_t used)
{
	order->code = EDQUOT;
	order->limit = limit;
	order->most = most;
	order->left = used < most ? most - used : 0;
	return EDQUOT;
}

/*
 * Whether the descriptors suffice for another ring of this user. A user may have a part of what is
 * left, rather than of all, so that a few users together cannot take everything (dynamic
 * thresholds: Choudhury and Hahne, 1998).
 */
static bool has_descriptors(const struct ledger *ledger, const struct ledger_account *account)
{
	if (ledger->rings_count >= ledger->rings_all)
		return false;
	if (ledger->rings_share == 0 || account->rings < RINGS_LEAST)
		return true;
	return account->rings < (ledger->rings_all - ledger->rings_count) / ledger->rings_share;
}

static int ledger_admit(const struct ledger *ledger, const struct ledger_account *account,
			uint64_t bytes, struct link_order *order)
{
	if (account->rings >= ledger->rings_per_user)
		return ledger_refuse(order, LINK_LIMIT_RINGS, ledger->rings_per_user,
				     account->rings);
	if (!has_descriptors(ledger, account))
		return ledger_refuse(order, LINK_LIMIT_DESCRIPTORS, 0, 0);
	if (account->bytes > ledger->most_per_user ||
	    bytes > ledger->most_per_user - account->bytes)
		return ledger_refuse(order, LINK_LIMIT_USER, ledger->most_per_user, account->bytes);
	if (ledger->bytes > ledger->most || bytes > ledger->most - ledger->bytes)
		/* what others have is not told */
		return ledger_refuse(order, LINK_LIMIT_ALL, ledger->most, ledger->most);
	return 0;
}

static int make_memory(struct ledger_ring *ring, bool writable, int inotify_fd,
		       int ret_fds[LINK_FDS_MAX])
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

static void drop_fds(struct ledger_ring *ring)
{
	for (unsigned i = 0; i < LINK_FDS_MAX; i++) {
		if (ring->fds[i] >= 0)
			close(ring->fds[i]);
		ring->fds[i] = -1;
	}
}

int ledger_make(struct ledger *ledger, struct ledger_account *account, uid_t uid, uint64_t worker,
		const struct link_record *record, struct link_order *order,
		int ret_fds[LINK_FDS_MAX])
{
	uint64_t bytes;
	if (record->ring_bytes <= RING_ACK_SIZE || record->ring_bytes > INT64_MAX ||
	    __builtin_add_overflow(record->ring_bytes, record->other_bytes, &bytes))
		return order->code = EINVAL;
	if (ledger_admit(ledger, account, bytes, order) != 0)
		return order->code;
	struct ledger_ring *ring = calloc(1, sizeof(*ring));
	if (!ring)
		return order->code = ENOMEM;
	*ring = (struct ledger_ring){
		.next = ledger->rings,
		.account = account,
		.uid = uid,
		.worker = worker,
		.feed = record->feed,
		.ring_bytes = record->ring_bytes,
		.other_bytes = record->other_bytes,
		.probe_ms = PROBE_MS,
	};
	int r = make_memory(ring, record->writable && ledger->writable_rings, ledger->inotify_fd,
			    ret_fds);
	if (r < 0) {
		free(ring);
		return order->code = -r;
	}
	ledger->rings = ring;
	ledger->bytes += bytes;
	account->bytes += bytes;
	account->rings++;
	ledger->rings_count++;
	return 0;
}

static void ledger_unbook(struct ledger *ledger, struct ledger_ring *ring, uint64_t *bytes)
{
	ledger->bytes -= *bytes;
	ring->account->bytes -= *bytes;
	*bytes = 0;
}

bool ledger_take_fds(struct ledger *ledger, uint64_t worker, uint64_t feed, int fds[LINK_FDS_MAX])
{
	struct ledger_ring *ring = ledger->rings;
	while (ring && (ring->worker != worker || ring->feed != feed || ring->fds[0] < 0))
		ring = ring->next;
	if (!ring)
		return false;
	for (unsigned i = 0; i < LINK_FDS_MAX; i++) {
		fds[i] = ring->fds[i];
		ring->fds[i] = -1;
	}
	return true;
}

void ledger_done(struct ledger *ledger, uint64_t worker, uint64_t feed)
{
	for (struct ledger_ring *ring = ledger->rings; ring; ring = ring->next) {
		if (ring->worker != worker || (feed != 0 && ring->feed != feed))
			continue;
		ring->done = true;
		drop_fds(ring);
		/*
		 * A worker that has not ended may still use it, whatever it says: it says so to its
		 * own harm alone.
		 */
		ledger_unbook(ledger, ring, &ring->other_bytes);
	}
}

/* On a thread. Stops at a pinned ring, which takes long: the rest is for another time. */
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

/* Can any process still read or map it? */
static bool is_open(const struct ledger *ledger, const struct ledger_ring *ring)
{
	if (!ledger->has_leases)
		return !ring->done;
	return ring_memory_open(ring->watch_fds[RING]) || ring_memory_open(ring->watch_fds[ACK]);
}

/*
 * Collects a ring that no process has any more to be looked at. A user has one job at a time, so
 * that one with many pinned rings does not keep the threads from others.
 */
static void collect(const struct ledger *ledger, struct ledger_ring *ring, uint64_t now_ns)
{
	struct ledger_account *account = ring->account;
	if (ring->closed || account->probing > 0 ||
	    (account->job && account->job->count == PROBES_MAX) || now_ns < ring->probe_due_ns ||
	    is_open(ledger, ring))
		return;
	if (!account->job)
		account->job = calloc(1, sizeof(*account->job));
	if (account->job)
		account->job->rings[account->job->count++] = ring;
}

static void start_job(struct ledger *ledger, struct ledger_account *account, uid_t uid,
		      uint64_t now_ns)
{
	struct probe_job *job = account->job;
	account->job = NULL;
	account->probing = job->count;
	job->event_fd = ledger->event_fd;
	for (unsigned i = 0; i < job->count; i++)
		atomic_store(&job->rings[i]->probe, PROBE_UNDER_WAY);
	if (closer_run(ledger->closer, uid, now_ns < account->slow_until_ns, run_probes, job))
		return;
	for (unsigned i = 0; i < job->count; i++)
		atomic_store(&job->rings[i]->probe, PROBE_SKIPPED);
	free(job);
}

/* What a job has found. */
static void end_probe(struct ledger_ring *ring, int probe, uint64_t now_ns)
{
	ring->account->probing--;
	atomic_store(&ring->probe, PROBE_NONE);
	if (probe != PROBE_PINNED)
		return;
	ring->account->slow_until_ns = now_ns + SLOW_MS * MS_NS;
	ring->probe_due_ns = now_ns + ring->probe_ms * MS_NS;
	ring->probe_ms = ring->probe_ms * 2 > PROBE_MS_MAX ? PROBE_MS_MAX : ring->probe_ms * 2;
}

static void strike_out(struct ledger *ledger, struct ledger_ring *ring)
{
	ledger_unbook(ledger, ring, &ring->ring_bytes);
	ledger_unbook(ledger, ring, &ring->other_bytes);
	ring->account->rings--;
	ledger->rings_count--;
	free(ring);
}

/* Of a ring that no process can read or map any more. Giving back gigabytes takes a while. */
static void close_watches(struct ledger *ledger, struct ledger_ring *ring)
{
	for (unsigned i = 0; i < LINK_FDS_MAX; i++)
		closer_close(ledger->closer, ring->uid, ring->watch_fds[i]);
	ring->closed = true;
	/* Otherwise a descriptor that was opened with O_PATH is found by nothing. */
	ring->gone = ring->inotify_watch < 0;
}

/* A watch goes with its inode, and its number is not given again for a long time. */
void ledger_read_events(struct ledger *ledger)
{
	_Alignas(struct inotify_event) char events[4096];
	uint64_t count;
	ssize_t n = read(ledger->event_fd, &count, sizeof(count));
	while ((n = read(ledger->inotify_fd, events, sizeof(events))) > 0)
		for (char *at = events; at < events + n;) {
			const struct inotify_event *event = (void *)at;
			at += sizeof(*event) + event->len;
			for (struct ledger_ring *ring = ledger->rings; ring; ring = ring->next)
				ring->gone |= ring->closed && ring->inotify_watch == event->wd;
		}
}

bool ledger_sweep(struct ledger *ledger, bool all)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	bool soon = false;
	ledger_read_events(ledger);
	for (struct ledger_ring **at = &ledger->rings; *at;) {
		struct ledger_ring *ring = *at;
		int probe = atomic_load(&ring->probe);
		if (probe != PROBE_NONE && probe != PROBE_UNDER_WAY)
			end_probe(ring, probe, now_ns);
		if (probe == PROBE_FREE)
			close_watches(ledger, ring);
		if (ring->gone) {
			*at = ring->next;
			strike_out(ledger, ring);
			continue;
		}
		/* Of others there will be an event. */
		soon |= ring->done && !ring->closed;
		at = &ring->next;
	}
	for (struct ledger_ring *ring = ledger->rings; ring; ring = ring->next)
		if (all || ring->done)
			collect(ledger, ring, now_ns);
	for (struct ledger_ring *ring = ledger->rings; ring; ring = ring->next)
		if (ring->account->job)
			start_job(ledger, ring->account, ring->uid, now_ns);
	return soon;
}

int ledger_init(struct ledger *ledger)
{
	ledger->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	ledger->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return ledger->event_fd < 0 ? -errno : 0;
}

void ledger_deinit(struct ledger *ledger)
{
	while (ledger->rings) {
		struct ledger_ring *ring = ledger->rings;
		ledger->rings = ring->next;
		drop_fds(ring);
		/* A thread may have it to the end of the process. */
		if (atomic_load(&ring->probe) == PROBE_UNDER_WAY)
			continue;
		if (!ring->closed) {
			close(ring->watch_fds[RING]);
			close(ring->watch_fds[ACK]);
		}
		free(ring);
	}
	if (ledger->inotify_fd >= 0)
		close(ledger->inotify_fd);
	/* A thread that has a ring to the end writes to the other. */
	ledger->inotify_fd = -1;
}
