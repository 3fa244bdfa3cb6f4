/*
 * Large operations on a ring (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations"): each rank sends to the next and receives from the previous one, part
 * by part, and passes on bytes of a part as soon as they have come.
 *
 * A part is summed along the ring, and ends at the rank with its number; its bits then go to all.
 * So sums do not depend on timing, and are the same everywhere.
 */
#include "trainer/device/comm/tcp/tcp.h"

#include <string.h>

/* Bytes received before others have their turn. */
#define TURN ((size_t)1 << 20)

struct range {
	size_t at, size; /* bytes */
};

static unsigned steps_of(const struct comm_tcp *tcp, const struct tcp_request *request)
{
	unsigned others = tcp->base.world - 1;

	if (request->kind == TCP_BROADCAST)
		return 1;
	return request->kind == TCP_SUM ? 2 * others : others;
}

static bool adds(const struct comm_tcp *tcp, const struct tcp_request *request, unsigned step)
{
	return request->kind == TCP_REDUCE_SCATTER ||
	       (request->kind == TCP_SUM && step < tcp->base.world - 1);
}

/* The values that are sent in a step by the rank that is `back` before this one. */
static struct range range_of(const struct comm_tcp *tcp, const struct tcp_request *request,
			     unsigned step, unsigned back)
{
	size_t element = comm_element_size(request->element), count = request->count;
	unsigned world = tcp->base.world, behind = step + back;

	if (request->kind == TCP_BROADCAST)
		return (struct range){0, count * element};
	/* values that are added begin with the part of the rank before, and end with one's own */
	if (adds(tcp, request, step))
		behind++;
	else if (request->kind == TCP_SUM)
		behind -= world - 1;
	size_t part = (tcp->base.rank + 2 * world - behind) % world;
	if (request->kind != TCP_SUM)
		return (struct range){part * count * element, count * element};
	size_t from = count * part / world, to = count * (part + 1) / world;
	return (struct range){from * element, (to - from) * element};
}

static unsigned distance_from_root(const struct comm_tcp *tcp, const struct tcp_request *request)
{
	return (tcp->base.rank + tcp->base.world - request->root) % tcp->base.world;
}

static bool sends(const struct comm_tcp *tcp, const struct tcp_request *request)
{
	return request->kind != TCP_BROADCAST ||
	       distance_from_root(tcp, request) < tcp->base.world - 1;
}

static bool receives(const struct comm_tcp *tcp, const struct tcp_request *request)
{
	return request->kind != TCP_BROADCAST || distance_from_root(tcp, request);
}

/* Bytes of the step that may be sent: those that have come in the step before. */
static size_t sendable(const struct comm_tcp *tcp, const struct tcp_request *head, size_t size)
{
	const struct tcp_ring *ring = &tcp->ring;
	bool first = ring->send_step == 0;
	unsigned needs = first ? 0 : ring->send_step - 1;

	if (first && (head->kind != TCP_BROADCAST || !distance_from_root(tcp, head)))
		return size;
	if (ring->receive_step > needs)
		return size;
	return ring->receive_step == needs ? ring->receive_at : 0;
}

static int ring_send(struct comm_tcp *tcp, bool *moved)
{
	struct tcp_ring *ring = &tcp->ring;
	struct tcp_request *head = ring->queue.head;
	struct tcp_header mine = tcp_header(&ring->queue);

	if (!sends(tcp, head))
		return 0;
	if (ring->send_header < sizeof(mine)) {
		ssize_t sent = tcp_send(ring->next, (const char *)&mine + ring->send_header,
					sizeof(mine) - ring->send_header);
		if (sent < 0)
			return (int)sent;
		ring->send_header += (size_t)sent;
		if (ring->send_header < sizeof(mine))
			return 0;
	}
	while (ring->send_step < steps_of(tcp, head)) {
		struct range range = range_of(tcp, head, ring->send_step, 0);
		size_t size = sendable(tcp, head, range.size) - ring->send_at;
		ssize_t sent = tcp_send(ring->next, head->values + range.at + ring->send_at, size);

		if (sent < 0)
			return (int)sent;
		*moved = *moved || sent > 0;
		ring->send_at += (size_t)sent;
		if (ring->send_at < range.size)
			return 0;
		ring->send_step++;
		ring->send_at = 0;
	}
	return 0;
}

/* Receives up to size bytes and adds the elements that are complete. */
static ssize_t receive_added(struct tcp_ring *ring, const struct tcp_request *head, char *to,
			     size_t size)
{
	size_t room = TCP_STAGING - ring->staged, left = size - ring->staged;
	ssize_t got = tcp_receive(ring->previous, ring->staging + ring->staged,
				  left < room ? left : room);

	if (got <= 0)
		return got;
	ring->staged += (size_t)got;
	size_t element = comm_element_size(head->element), count = ring->staged / element;
	tcp_add(to, ring->staging, count, head->element);
	ring->staged -= count * element;
	memmove(ring->staging, ring->staging + count * element, ring->staged);
	ring->receive_at += count * element;
	return got;
}

static ssize_t receive_plain(struct tcp_ring *ring, char *to, size_t size)
{
	ssize_t got = tcp_receive(ring->previous, to, size);

	ring->receive_at += got > 0 ? (size_t)got : 0;
	return got;
}

/* -EAGAIN if the header has not come, -EPROTO if it is not the expected one. */
static int receive_header(struct comm_tcp *tcp)
{
	struct tcp_ring *ring = &tcp->ring;
	struct tcp_header mine = tcp_header(&ring->queue);

	if (ring->receive_header == sizeof(mine))
		return 0;
	ssize_t got = tcp_receive(ring->previous, (char *)&ring->header + ring->receive_header,
				  sizeof(mine) - ring->receive_header);
	if (got < 0)
		return (int)got;
	ring->receive_header += (size_t)got;
	if (ring->receive_header < sizeof(mine))
		return -EAGAIN;
	return memcmp(&ring->header, &mine, sizeof(mine)) != 0 ? -EPROTO : 0;
}

static int ring_receive(struct comm_tcp *tcp, bool *moved)
{
	struct tcp_ring *ring = &tcp->ring;
	struct tcp_request *head = ring->queue.head;

	if (!receives(tcp, head))
		return 0;
	int r = receive_header(tcp);
	if (r < 0)
		return r == -EAGAIN ? 0 : r;
	for (size_t all = 0; ring->receive_step < steps_of(tcp, head) && all < TURN;) {
		struct range range = range_of(tcp, head, ring->receive_step, 1);
		char *to = head->values + range.at + ring->receive_at;
		size_t size = range.size - ring->receive_at;
		ssize_t got = adds(tcp, head, ring->receive_step)
				      ? receive_added(ring, head, to, size)
				      : receive_plain(ring, to, size);

		if (got < 0)
			return (int)got;
		*moved = *moved || got > 0;
		all += (size_t)got;
		if (ring->receive_at == range.size) {
			ring->receive_step++;
			ring->receive_at = 0;
		} else if (got == 0) {
			return 0;
		}
	}
	return 0;
}

static bool is_done(const struct comm_tcp *tcp, const struct tcp_request *head)
{
	const struct tcp_ring *ring = &tcp->ring;
	unsigned steps = steps_of(tcp, head);

	return (ring->send_step == steps || !sends(tcp, head)) &&
	       (ring->receive_step == steps || !receives(tcp, head));
}

static int ring_failed(struct comm_tcp *tcp, int r, unsigned rank)
{
	struct tcp_header mine = tcp_header(&tcp->ring.queue);

	if (r == -EPROTO)
		return tcp_mismatch(tcp, rank, &tcp->ring.header, &mine);
	return tcp_lose(tcp->run, tcp->ranks[rank]);
}

int tcp_ring_advance(struct comm_tcp *tcp, bool *moved)
{
	struct tcp_ring *ring = &tcp->ring;
	unsigned world = tcp->base.world, rank = tcp->base.rank;

	if (!ring->queue.head)
		return 0;
	int r = ring_send(tcp, moved);
	if (r < 0)
		return ring_failed(tcp, r, (rank + 1) % world);
	r = ring_receive(tcp, moved);
	if (r < 0)
		return ring_failed(tcp, r, (rank + world - 1) % world);
	if (is_done(tcp, ring->queue.head)) {
		ring->send_step = ring->receive_step = 0;
		ring->send_header = ring->receive_header = 0;
		tcp_queue_pop(&ring->queue);
		*moved = true;
	}
	return 0;
}

unsigned tcp_ring_polls(const struct comm_tcp *tcp, struct pollfd *polls)
{
	const struct tcp_ring *ring = &tcp->ring;
	const struct tcp_request *head = ring->queue.head;
	unsigned count = 0;

	if (!head)
		return 0;
	if (receives(tcp, head) && ring->receive_step < steps_of(tcp, head))
		polls[count++] = (struct pollfd){ring->previous, POLLIN, 0};
	if (sends(tcp, head) && ring->send_step < steps_of(tcp, head)) {
		struct range range = range_of(tcp, head, ring->send_step, 0);

		if (ring->send_header < sizeof(struct tcp_header) ||
		    sendable(tcp, head, range.size) > ring->send_at)
			polls[count++] = (struct pollfd){ring->next, POLLOUT, 0};
	}
	return count;
}
