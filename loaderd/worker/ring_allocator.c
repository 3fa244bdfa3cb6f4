#include "loaderd/worker/ring_allocator.h"

#include "format/base/system/clock.h"
#include "loaderd/worker/async_jobs.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * The supervisor never blocks: if it does not answer for this long, it or the machine is stopped.
 */
enum { ANSWER_WITHIN_S = 20, TRIES = 25, TRY_AGAIN_MS = 20 };

struct ring_request {
	struct ipc_record record;
	enum ipc_order_kind answer; /* expected kind of the answer */
	bool answered;
	struct ipc_order order;
	int fds[IPC_FDS_MAX];
	struct ring_request *next;
};

static uint64_t bytes_of(const struct ring_request *request)
{
	return request->record.ring_bytes + request->record.other_bytes;
}

int ipc_report(int pipe, const struct ipc_record *record)
{
	ssize_t n;
	do {
		n = write(pipe, record, sizeof(*record));
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Waits for the answer, then removes the request from the list. Call with the mutex held. */
static void wait_for_answer(struct ring_allocator *allocator, struct ring_request *request)
{
	struct timespec until = clock_after_ms(ANSWER_WITHIN_S * 1000);
	while (!request->answered &&
	       pthread_cond_timedwait(&allocator->answered, &allocator->mutex, &until) == 0)
		;
	struct ring_request **at = &allocator->waiting;
	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
}

static int ring_allocator_refuse(const struct ring_request *request, struct refusal *refusal)
{
	const struct ipc_order *order = &request->order;
	if (!request->answered)
		return refuse_request(refusal, ETIMEDOUT, "slots",
				      "the service did not provide memory for the feed in time");
	if (order->code == EAGAIN)
		return refuse_request(refusal, ETIMEDOUT, NULL,
				      "the client does not read, so its ring could not be sent");
	/* ETOOMANYREFS passes as fds in flight are received; libfeed retries for a while. */
	if (order->code == ETOOMANYREFS)
		return refuse_request(refusal, EDQUOT, NULL,
				      "too many of the service's descriptors are in flight to "
				      "clients that have not received them; connect again, or "
				      "raise LimitNOFILE= of the service (ulimit -n)");
	if (order->code == ENOTCONN)
		return refuse_request(refusal, EDQUOT, NULL,
				      "the service has too few descriptors for connections that "
				      "delay opening their feed; connect again, or raise "
				      "LimitNOFILE= of the service (ulimit -n)");
	if (order->code != EDQUOT || order->limit == IPC_LIMIT_NONE ||
	    order->limit > IPC_LIMIT_DESCRIPTORS)
		return refuse_request(
			refusal, order->code, "slots", "no shared memory for the feed: %s",
			order->code == EMFILE || order->code == ENFILE
				? "the service has no descriptor left; try again, or raise "
				  "LimitNOFILE= of the service (ulimit -n)"
				: strerror(order->code));
	if (order->limit == IPC_LIMIT_RINGS)
		return refuse_request(
			refusal, EDQUOT, "slots",
			"this user has reached the limit of %llu rings, including those of closed "
			"feeds that a process still holds ([limits] feeds_per_user)",
			(unsigned long long)order->most);
	if (order->limit == IPC_LIMIT_DESCRIPTORS)
		return refuse_request(
			refusal, EDQUOT, "slots",
			"the service has no descriptors left for another ring of this user, who "
			"may still hold rings of closed feeds; close feeds, try again later, or "
			"raise LimitNOFILE= of the service (ulimit -n)");
	/* Do not report how much is left: it would reveal other users' usage. */
	if (order->limit == IPC_LIMIT_ALL)
		return refuse_request(
			refusal, EDQUOT, "slots",
			"the feed needs %llu bytes of shared memory, more than is left of "
			"the %llu that all users share; ask for fewer slots or smaller "
			"batches, try again later, or raise [limits] shared_memory",
			(unsigned long long)bytes_of(request), (unsigned long long)order->most);
	int r = refuse_request(
		refusal, EDQUOT, "slots",
		"the feed needs %llu bytes of shared memory, but only %llu are left of the limit "
		"of %llu, to which rings count until nothing refers to them; ask for fewer slots "
		"or smaller batches, or raise [limits] shared_memory_per_user",
		(unsigned long long)bytes_of(request), (unsigned long long)order->left,
		(unsigned long long)order->most);
	refusal->left = order->left;
	return r;
}

/* Sends the request and waits for the answer, once. */
static void ring_allocator_ask(struct ring_allocator *allocator, struct ring_request *request)
{
	pthread_mutex_lock(&allocator->mutex);
	request->answered = false;
	request->next = allocator->waiting;
	allocator->waiting = request;
	if (ipc_report(allocator->pipe, &request->record) == 0)
		wait_for_answer(allocator, request);
	else
		allocator->waiting = request->next;
	if (request->answered && request->order.code == 0)
		allocator->bytes += bytes_of(request);
	pthread_mutex_unlock(&allocator->mutex);
}

int ring_allocator_take(struct ring_allocator *allocator, uint64_t feed, uint64_t ring_bytes,
			uint64_t other_bytes, bool writable, int *ret_ring_fd, int *ret_ack_fd,
			struct refusal *refusal)
{
	const struct timespec pause = {.tv_nsec = TRY_AGAIN_MS * 1000000};
	struct ring_request request = {
		.record = {.kind = IPC_WANT_RING,
			   .writable = writable,
			   .feed = feed,
			   .ring_bytes = ring_bytes,
			   .other_bytes = other_bytes},
		.answer = IPC_RING,
		.fds = {-1, -1},
	};
	ring_allocator_ask(allocator, &request);
	/*
	 * When a client closes a feed and opens the next, the memory of the first may not be free
	 * yet.
	 */
	for (unsigned i = 0; i < TRIES && request.answered && request.order.code == EDQUOT; i++) {
		/* Closing the first feed is a job, too: let it run. */
		async_jobs_suspend();
		nanosleep(&pause, NULL);
		async_jobs_resume();
		ring_allocator_ask(allocator, &request);
	}
	if (!request.answered || request.order.code != 0)
		return ring_allocator_refuse(&request, refusal);
	*ret_ring_fd = request.fds[0];
	*ret_ack_fd = request.fds[1];
	return 0;
}

int ring_allocator_send(struct ring_allocator *allocator, uint64_t feed, uint64_t client,
			struct refusal *refusal)
{
	struct ring_request request = {
		.record = {.kind = IPC_SEND_RING, .feed = feed, .client = client},
		.answer = IPC_RING_SENT,
	};
	ring_allocator_ask(allocator, &request);
	return request.answered && request.order.code == 0
		       ? 0
		       : ring_allocator_refuse(&request, refusal);
}

void ring_allocator_give_back(struct ring_allocator *allocator, uint64_t feed, uint64_t bytes)
{
	const struct ipc_record record = {.kind = IPC_RING_DONE, .feed = feed};
	pthread_mutex_lock(&allocator->mutex);
	allocator->bytes -= bytes;
	pthread_mutex_unlock(&allocator->mutex);
	/*
	 * The pipe fills up only while the supervisor is stopped. It also sweeps rings periodically
	 * without a record.
	 */
	(void)ipc_report(allocator->pipe, &record);
}

void ring_allocator_init(struct ring_allocator *allocator, int pipe)
{
	pthread_condattr_t attributes;
	*allocator = (struct ring_allocator){.pipe = pipe};
	pthread_mutex_init(&allocator->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&allocator->answered, &attributes);
	pthread_condattr_destroy(&attributes);
}

void ring_allocator_deinit(struct ring_allocator *allocator)
{
	pthread_cond_destroy(&allocator->answered);
	pthread_mutex_destroy(&allocator->mutex);
}

void ring_allocator_answer(struct ring_allocator *allocator, const struct ipc_order *order,
			   const int fds[IPC_FDS_MAX])
{
	bool taken = false;
	pthread_mutex_lock(&allocator->mutex);
	for (struct ring_request *request = allocator->waiting; request && !taken;
	     request = request->next) {
		if (request->record.feed != order->feed || request->answer != order->kind ||
		    request->answered)
			continue;
		request->order = *order;
		request->answered = taken = true;
		for (unsigned i = 0; i < IPC_FDS_MAX; i++)
			request->fds[i] = fds[i];
		pthread_cond_broadcast(&allocator->answered);
	}
	pthread_mutex_unlock(&allocator->mutex);
	if (taken)
		return;
	/* The request has timed out. */
	for (unsigned i = 0; i < IPC_FDS_MAX; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (order->kind == IPC_RING && order->code == 0)
		ring_allocator_give_back(allocator, order->feed, 0);
}

uint64_t ring_allocator_bytes(struct ring_allocator *allocator)
{
	pthread_mutex_lock(&allocator->mutex);
	uint64_t bytes = allocator->bytes;
	pthread_mutex_unlock(&allocator->mutex);
	return bytes;
}
