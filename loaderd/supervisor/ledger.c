#include "loaderd/supervisor/ledger.h"

#include "proto/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ledger_ring {
	struct ledger_ring *next;
	struct ledger_account *account;
	uid_t uid;
	uint64_t worker, feed;
	uint64_t ring_bytes, other_bytes;
	int fds[LINK_FDS_MAX]; /* for the client; -1: it has been sent them */
	int watch_fds[LINK_FDS_MAX];
	bool done;
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

static int ledger_admit(const struct ledger *ledger, const struct ledger_account *account,
			uint64_t bytes, struct link_order *order)
{
	if (account->rings >= ledger->rings_per_user)
		return ledger_refuse(order, LINK_LIMIT_RINGS, ledger->rings_per_user,
				     account->rings);
	if (account->bytes > ledger->most_per_user ||
	    bytes > ledger->most_per_user - account->bytes)
		return ledger_refuse(order, LINK_LIMIT_USER, ledger->most_per_user, account->bytes);
	if (ledger->bytes > ledger->most || bytes > ledger->most - ledger->bytes)
		/* what others have is not told */
		return ledger_refuse(order, LINK_LIMIT_ALL, ledger->most, ledger->most);
	return 0;
}

static int make_memory(struct ledger_ring *ring)
{
	int r = ring_memory_new(ring->ring_bytes - RING_ACK_SIZE, &ring->fds[0],
				&ring->watch_fds[0]);
	if (r < 0)
		return r;
	r = ring_memory_new(RING_ACK_SIZE, &ring->fds[1], &ring->watch_fds[1]);
	if (r < 0) {
		close(ring->fds[0]);
		close(ring->watch_fds[0]);
	}
	return r;
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
		const struct link_record *record, struct link_order *order, int fds[LINK_FDS_MAX])
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
	};
	int r = make_memory(ring);
	if (r < 0) {
		free(ring);
		return order->code = -r;
	}
	memcpy(fds, ring->fds, sizeof(ring->fds));
	ledger->rings = ring;
	ledger->bytes += bytes;
	account->bytes += bytes;
	account->rings++;
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

bool ledger_sweep(struct ledger *ledger)
{
	bool soon = false;
	for (struct ledger_ring **at = &ledger->rings; *at;) {
		struct ledger_ring *ring = *at;
		if (!ring_memory_unused(ring->watch_fds[0]) ||
		    !ring_memory_unused(ring->watch_fds[1])) {
			soon |= ring->done;
			at = &ring->next;
			continue;
		}
		*at = ring->next;
		ledger_unbook(ledger, ring, &ring->ring_bytes);
		ledger_unbook(ledger, ring, &ring->other_bytes);
		ring->account->rings--;
		/* Giving back gigabytes takes a while. */
		for (unsigned i = 0; i < LINK_FDS_MAX; i++)
			closer_close(ledger->closer, ring->uid, ring->watch_fds[i]);
		free(ring);
	}
	return soon;
}

void ledger_deinit(struct ledger *ledger)
{
	while (ledger->rings) {
		struct ledger_ring *ring = ledger->rings;
		ledger->rings = ring->next;
		drop_fds(ring);
		close(ring->watch_fds[0]);
		close(ring->watch_fds[1]);
		free(ring);
	}
}
