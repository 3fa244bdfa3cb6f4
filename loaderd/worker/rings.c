#include "loaderd/worker/rings.h"

#include "format/base/system/clock.h"
#include "loaderd/worker/chores.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * The supervisor never waits for anything: so long it is silent only when it is stopped, or the
 * machine is.
 */
enum { ANSWER_WITHIN_S = 20, TRIES = 25, TRY_AGAIN_MS = 20 };

struct ring_request {
	struct link_record record;
	enum link_order_kind answer; /* that it waits for */
	bool answered;
	struct link_order order;
	int fds[LINK_FDS_MAX];
	struct ring_request *next;
};

static uint64_t bytes_of(const struct ring_request *request)
{
	return request->record.ring_bytes + request->record.other_bytes;
}

int link_report(int pipe, const struct link_record *record)
{
	ssize_t n;
	do {
		n = write(pipe, record, sizeof(*record));
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Under the mutex. */
static void wait_for_answer(struct rings *rings, struct ring_request *request)
{
	struct timespec until = clock_after_ms(ANSWER_WITHIN_S * 1000);
	while (!request->answered &&
	       pthread_cond_timedwait(&rings->answered, &rings->mutex, &until) == 0)
		;
	struct ring_request **at = &rings->waiting;
	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
}

static int rings_refuse(const struct ring_request *request, struct refusal *refusal)
{
	const struct link_order *order = &request->order;
	if (!request->answered)
		return refuse_request(refusal, ETIMEDOUT, "slots",
				      "the service did not provide memory for the feed in time");
	if (order->code == EAGAIN)
		return refuse_request(refusal, ETIMEDOUT, NULL,
				      "the client does not read: its ring could not be sent to it");
	/* What is on its way arrives, and libfeed tries again for a while. */
	if (order->code == ETOOMANYREFS)
		return refuse_request(
			refusal, EDQUOT, NULL,
			"too many of the service's descriptors are on their way to those "
			"who have not read them; connect again, or raise LimitNOFILE= of the "
			"service (ulimit -n)");
	if (order->code == ENOTCONN)
		return refuse_request(
			refusal, EDQUOT, NULL,
			"the service has too few descriptors for connections that wait with "
			"opening their feed; connect again, or raise LimitNOFILE= of the "
			"service (ulimit -n)");
	if (order->code != EDQUOT || order->limit == LINK_LIMIT_NONE ||
	    order->limit > LINK_LIMIT_DESCRIPTORS)
		return refuse_request(
			refusal, order->code, "slots", "no shared memory for the feed: %s",
			order->code == EMFILE || order->code == ENFILE
				? "the service has no descriptor left; try again, or raise "
				  "LimitNOFILE= of the service (ulimit -n)"
				: strerror(order->code));
	if (order->limit == LINK_LIMIT_RINGS)
		return refuse_request(
			refusal, EDQUOT, "slots",
			"this user has as many rings as one may, %llu, those of closed feeds that "
			"some process still holds among them ([limits] feeds_per_user)",
			(unsigned long long)order->most);
	if (order->limit == LINK_LIMIT_DESCRIPTORS)
		return refuse_request(
			refusal, EDQUOT, "slots",
			"the service's descriptors suffice for no further ring of this user, those "
			"of closed feeds that some process still holds included; close feeds, try "
			"again later, or raise LimitNOFILE= of the service (ulimit -n)");
	/* How much is left of it would tell what the others have. */
	if (order->limit == LINK_LIMIT_ALL)
		return refuse_request(
			refusal, EDQUOT, "slots",
			"the feed needs %llu bytes of shared memory, more than is left of "
			"the %llu that all users share; ask for fewer slots or smaller "
			"batches, try again later, or raise [limits] shared_memory",
			(unsigned long long)bytes_of(request), (unsigned long long)order->most);
	return refuse_request(
		refusal, EDQUOT, "slots",
		"the feed needs %llu bytes of shared memory, %llu are left of the "
		"limit of %llu, of which rings take part until nothing refers to them; "
		"ask for fewer slots or smaller batches, or raise [limits] shared_memory_per_user",
		(unsigned long long)bytes_of(request), (unsigned long long)order->left,
		(unsigned long long)order->most);
}

/* Asks once. */
static void rings_ask(struct rings *rings, struct ring_request *request)
{
	pthread_mutex_lock(&rings->mutex);
	request->answered = false;
	request->next = rings->waiting;
	rings->waiting = request;
	if (link_report(rings->pipe, &request->record) == 0)
		wait_for_answer(rings, request);
	else
		rings->waiting = request->next;
	if (request->answered && request->order.code == 0)
		rings->bytes += bytes_of(request);
	pthread_mutex_unlock(&rings->mutex);
}

int rings_take(struct rings *rings, uint64_t feed, uint64_t ring_bytes, uint64_t other_bytes,
	       bool writable, int *ret_ring_fd, int *ret_ack_fd, struct refusal *refusal)
{
	const struct timespec pause = {.tv_nsec = TRY_AGAIN_MS * 1000000};
	struct ring_request request = {
		.record = {.kind = LINK_WANT_RING,
			   .writable = writable,
			   .feed = feed,
			   .ring_bytes = ring_bytes,
			   .other_bytes = other_bytes},
		.answer = LINK_RING,
		.fds = {-1, -1},
	};
	rings_ask(rings, &request);
	/*
	 * A client that closes a feed and opens the next finds the first one's memory still on its
	 * way back.
	 */
	for (unsigned i = 0; i < TRIES && request.answered && request.order.code == EDQUOT; i++) {
		/* Its closing is a chore, too. */
		chores_suspend();
		nanosleep(&pause, NULL);
		chores_resume();
		rings_ask(rings, &request);
	}
	if (!request.answered || request.order.code != 0)
		return rings_refuse(&request, refusal);
	*ret_ring_fd = request.fds[0];
	*ret_ack_fd = request.fds[1];
	return 0;
}

int rings_send(struct rings *rings, uint64_t feed, uint64_t client, struct refusal *refusal)
{
	struct ring_request request = {
		.record = {.kind = LINK_SEND_RING, .feed = feed, .client = client},
		.answer = LINK_RING_SENT,
	};
	rings_ask(rings, &request);
	return request.answered && request.order.code == 0 ? 0 : rings_refuse(&request, refusal);
}

void rings_give_back(struct rings *rings, uint64_t feed, uint64_t bytes)
{
	const struct link_record record = {.kind = LINK_RING_DONE, .feed = feed};
	pthread_mutex_lock(&rings->mutex);
	rings->bytes -= bytes;
	pthread_mutex_unlock(&rings->mutex);
	/*
	 * Unread records fill the pipe only while the supervisor is stopped; it also looks by
	 * itself from time to time.
	 */
	(void)link_report(rings->pipe, &record);
}

void rings_init(struct rings *rings, int pipe)
{
	pthread_condattr_t attributes;
	*rings = (struct rings){.pipe = pipe};
	pthread_mutex_init(&rings->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&rings->answered, &attributes);
	pthread_condattr_destroy(&attributes);
}

void rings_deinit(struct rings *rings)
{
	pthread_cond_destroy(&rings->answered);
	pthread_mutex_destroy(&rings->mutex);
}

void rings_answer(struct rings *rings, const struct link_order *order, const int fds[LINK_FDS_MAX])
{
	bool taken = false;
	pthread_mutex_lock(&rings->mutex);
	for (struct ring_request *request = rings->waiting; request && !taken;
	     request = request->next) {
		if (request->record.feed != order->feed || request->answer != order->kind ||
		    request->answered)
			continue;
		request->order = *order;
		request->answered = taken = true;
		for (unsigned i = 0; i < LINK_FDS_MAX; i++)
			request->fds[i] = fds[i];
		pthread_cond_broadcast(&rings->answered);
	}
	pthread_mutex_unlock(&rings->mutex);
	if (taken)
		return;
	/* Nobody waits for it any more. */
	for (unsigned i = 0; i < LINK_FDS_MAX; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (order->kind == LINK_RING && order->code == 0)
		rings_give_back(rings, order->feed, 0);
}

uint64_t rings_bytes(struct rings *rings)
{
	pthread_mutex_lock(&rings->mutex);
	uint64_t bytes = rings->bytes;
	pthread_mutex_unlock(&rings->mutex);
	return bytes;
}
