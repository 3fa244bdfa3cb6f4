/*
 * Connects the lanes of a communicator: every rank connects to its rank 0 (star) and to the next
 * rank (ring), whose addresses it knows, and waits for those that connect to it. Each connection
 * begins with a greeting, which proves that it comes from a rank of this run, and the other end's
 * answer, without which a rank tries again.
 */
#include "trainer/device/comm/tcp/acceptor.h"
#include "trainer/device/comm/tcp/tcp.h"

#include "format/base/system/clock.h"
#include "format/base/system/io.h"

#include <stdlib.h>
#include <string.h>

enum { STAR = 0, RING, LANES };

enum {
	LANES_MS = 60000, /* all connections; the ranks start together */
	RETRY_MS = 50,
};

struct greeting {
	uint8_t session[TCP_NONCE];
	uint32_t number, group; /* of the communicator */
	uint32_t lane, from, to;
	uint8_t proof[SHA256_SIZE]; /* of all before it */
};

/* A connection that this rank makes. */
struct call {
	unsigned to;
	int fd;        /* -1 before an attempt */
	int64_t after; /* end of the pause before it */
	size_t sent, got;
	struct greeting greeting;
	uint8_t answer[SHA256_SIZE];
	bool wanted, done;
};

struct lanes {
	struct comm_tcp *tcp;
	struct call calls[LANES];
	unsigned missing; /* connections that others have to make */
	struct acceptor acceptor;
};

static void greet(const struct comm_tcp *tcp, unsigned lane, unsigned from, unsigned to,
		  struct greeting *ret_greeting)
{
	memset(ret_greeting, 0, sizeof(*ret_greeting));
	memcpy(ret_greeting->session, tcp->run->session, TCP_NONCE);
	ret_greeting->number = tcp->number;
	ret_greeting->group = tcp->group;
	ret_greeting->lane = lane;
	ret_greeting->from = from;
	ret_greeting->to = to;
	sha256_hmac(tcp->run->key, ret_greeting, offsetof(struct greeting, proof),
		    ret_greeting->proof);
}

static void answer_to(const struct tcp_run *run, const struct greeting *greeting,
		      uint8_t ret_answer[SHA256_SIZE])
{
	sha256_hmac(run->key, greeting, sizeof(*greeting), ret_answer);
}

/* ---- connections of others ---- */

/* Where the connection of a rank belongs; NULL if none is expected from it. */
static int *seat_of(struct comm_tcp *tcp, const struct greeting *greeting)
{
	unsigned world = tcp->base.world, rank = tcp->base.rank;

	if (greeting->from >= world || greeting->from == rank)
		return NULL;
	if (greeting->lane == STAR)
		return rank == 0 ? &tcp->star.sockets[greeting->from] : NULL;
	return (greeting->from + 1) % world == rank ? &tcp->ring.previous : NULL;
}

static bool take_call(struct newcomer *newcomer, void *context)
{
	struct lanes *lanes = context;
	struct comm_tcp *tcp = lanes->tcp;
	struct greeting greeting, expected;
	uint8_t answer[SHA256_SIZE];

	memcpy(&greeting, newcomer->bytes, sizeof(greeting));
	int *seat = greeting.lane < LANES ? seat_of(tcp, &greeting) : NULL;
	if (!seat)
		return false;
	greet(tcp, greeting.lane, greeting.from, tcp->base.rank, &expected);
	if (memcmp(&greeting, &expected, sizeof(greeting)) != 0)
		return false;
	answer_to(tcp->run, &greeting, answer);
	if (tcp_send(newcomer->fd, answer, sizeof(answer)) != sizeof(answer))
		return false;
	/* a second connection follows one whose answer came too late */
	lanes->missing -= *seat < 0;
	io_close(*seat);
	*seat = newcomer->fd;
	newcomer->fd = -1;
	return false;
}

/* ---- own connections ---- */

static void call_end(struct call *call)
{
	io_close(call->fd);
	call->fd = -1;
	call->sent = call->got = 0;
	call->after = clock_ms() + RETRY_MS;
}

static void call_start(struct comm_tcp *tcp, struct call *call)
{
	const struct tcp_run *run = tcp->run;
	const struct tcp_member *member = &run->members[tcp->ranks[call->to]];
	static const struct tcp_host none;
	bool beside = memcmp(&member->host, &none, sizeof(none)) == 0;

	call->fd = tcp_connect_start(beside ? &run->found : &member->host, (uint16_t)member->port);
	if (call->fd < 0)
		call_end(call);
}

static int call_advance(struct comm_tcp *tcp, struct call *call)
{
	const char *greeting = (const char *)&call->greeting;
	uint8_t answer[SHA256_SIZE];

	int r = call->sent ? 0 : tcp_connect_result(call->fd);
	if (r < 0)
		return r;
	ssize_t sent =
		tcp_send(call->fd, greeting + call->sent, sizeof(call->greeting) - call->sent);
	if (sent < 0)
		return (int)sent;
	call->sent += (size_t)sent;
	if (call->sent < sizeof(call->greeting))
		return 0;
	ssize_t got = tcp_receive(call->fd, call->answer + call->got, sizeof(answer) - call->got);
	if (got < 0)
		return (int)got;
	call->got += (size_t)got;
	if (call->got < sizeof(answer))
		return 0;
	answer_to(tcp->run, &call->greeting, answer);
	call->done = memcmp(answer, call->answer, sizeof(answer)) == 0;
	return call->done ? 0 : -EPROTO;
}

static void call_do(struct comm_tcp *tcp, struct call *call)
{
	if (!call->wanted || call->done)
		return;
	if (call->fd >= 0 && call_advance(tcp, call) < 0)
		call_end(call);
	else if (call->fd < 0 && clock_ms() >= call->after)
		call_start(tcp, call);
}

/* ---- both ---- */

static bool all_done(const struct lanes *lanes)
{
	for (unsigned i = 0; i < LANES; i++)
		if (lanes->calls[i].wanted && !lanes->calls[i].done)
			return false;
	return lanes->missing == 0;
}

/* Waits until something may have come. */
static void wait_a_little(struct lanes *lanes)
{
	struct pollfd polls[ACCEPTOR_MAX + 1 + LANES + 1];
	unsigned count = acceptor_polls(&lanes->acceptor, polls);

	for (unsigned i = 0; i < LANES; i++) {
		const struct call *call = &lanes->calls[i];
		bool sent = call->sent == sizeof(call->greeting);

		if (call->wanted && !call->done && call->fd >= 0)
			polls[count++] = (struct pollfd){call->fd, sent ? POLLIN : POLLOUT, 0};
	}
	polls[count++] = (struct pollfd){lanes->tcp->run->events, POLLIN, 0};
	poll(polls, count, RETRY_MS);
}

/* The failure when the time is over: the first connection that is missing. */
static int lanes_late(struct lanes *lanes)
{
	struct comm_tcp *tcp = lanes->tcp;
	unsigned world = tcp->base.world, other = (tcp->base.rank + world - 1) % world;

	for (unsigned i = LANES; i-- > 0;)
		if (lanes->calls[i].wanted && !lanes->calls[i].done)
			other = lanes->calls[i].to;
	const struct tcp_member *member = &tcp->run->members[tcp->ranks[other]];
	return tcp_end(tcp->run, COMM_LOST, -ETIMEDOUT,
		       "rank %u and rank %u on %s cannot connect to each other: a firewall must "
		       "let the ranks' machines connect on all ports",
		       tcp->run->rank, tcp->ranks[other], member->name);
}

static int connect_all(struct lanes *lanes)
{
	struct comm_tcp *tcp = lanes->tcp;
	int64_t deadline = clock_ms() + LANES_MS;

	while (!all_done(lanes)) {
		int r = tcp_watch(tcp->run, 0);
		if (r < 0)
			return r;
		if (clock_ms() >= deadline)
			return lanes_late(lanes);
		for (unsigned i = 0; i < LANES; i++)
			call_do(tcp, &lanes->calls[i]);
		acceptor_advance(&lanes->acceptor);
		if (!all_done(lanes))
			wait_a_little(lanes);
	}
	return 0;
}

static void take_own_calls(struct lanes *lanes, int r)
{
	struct comm_tcp *tcp = lanes->tcp;
	int *const sockets[LANES] = {tcp->star.sockets, &tcp->ring.next};

	for (unsigned i = 0; i < LANES; i++) {
		struct call *call = &lanes->calls[i];

		if (r == 0 && call->done)
			*sockets[i] = call->fd;
		else if (call->wanted)
			io_close(call->fd);
	}
}

static int lanes_allocate(struct comm_tcp *tcp)
{
	unsigned world = tcp->base.world, sockets = tcp->base.rank ? 1 : world;
	struct tcp_star *star = &tcp->star;

	tcp->ring.next = tcp->ring.previous = -1;
	star->sockets = malloc(sockets * sizeof(*star->sockets));
	star->up = calloc(sockets, sizeof(*star->up));
	star->down = calloc(sockets, sizeof(*star->down));
	star->headers = calloc(sockets, sizeof(*star->headers));
	star->values = tcp->base.rank ? NULL : malloc(TCP_STAR_BYTES);
	tcp->ring.staging = malloc(TCP_STAGING);
	for (unsigned i = 0; star->sockets && i < sockets; i++)
		star->sockets[i] = -1;
	return star->sockets && star->up && star->down && star->headers &&
			       (tcp->base.rank || star->values) && tcp->ring.staging
		       ? 0
		       : -ENOMEM;
}

int tcp_lanes_open(struct comm_tcp *tcp, int listener)
{
	struct lanes *lanes = calloc(1, sizeof(*lanes));
	unsigned world = tcp->base.world, rank = tcp->base.rank;

	if (!lanes || lanes_allocate(tcp) < 0) {
		io_close(listener);
		free(lanes);
		return -ENOMEM;
	}
	lanes->tcp = tcp;
	lanes->missing = 1 + (rank ? 0 : world - 1);
	lanes->acceptor = (struct acceptor){.listener = listener,
					    .wanted = sizeof(struct greeting),
					    .read = take_call,
					    .context = lanes};
	for (unsigned i = 0; i < LANES; i++) {
		struct call *call = &lanes->calls[i];

		call->fd = -1;
		call->wanted = i == RING || rank;
		call->to = i == STAR ? 0 : (rank + 1) % world;
		greet(tcp, i, rank, call->to, &call->greeting);
	}
	int r = connect_all(lanes);
	take_own_calls(lanes, r);
	acceptor_close(&lanes->acceptor);
	free(lanes);
	return r;
}

void tcp_lanes_close(struct comm_tcp *tcp)
{
	struct tcp_star *star = &tcp->star;

	for (unsigned i = 0; star->sockets && i < (tcp->base.rank ? 1 : tcp->base.world); i++)
		io_close(star->sockets[i]);
	io_close(tcp->ring.next);
	io_close(tcp->ring.previous);
	free(star->sockets);
	free(star->up);
	free(star->down);
	free(star->headers);
	free(star->values);
	free(tcp->ring.staging);
}
