/*
 * Small operations: each rank sends to rank 0, which combines and sends the result to all. Two
 * messages one after the other for any number of ranks, where a ring has two for each rank.
 */
#include "trainer/device/comm/tcp/tcp.h"

#include <string.h>

/* Limit on what a rank sends or receives. Above, a ring is faster. */
#define SMALL_BYTES ((size_t)64 << 10)

static size_t bytes_of(const struct tcp_request *request)
{
	return request->count * comm_element_size(request->element);
}

/* Bytes that `rank` sends to rank 0. */
static size_t up_size(const struct comm_tcp *tcp, const struct tcp_request *request, unsigned rank)
{
	size_t bytes = bytes_of(request);

	if (request->kind == TCP_REDUCE_SCATTER)
		return bytes * tcp->base.world;
	return request->kind == TCP_BROADCAST && request->root != rank ? 0 : bytes;
}

/* Bytes that a rank receives from rank 0. */
static size_t down_size(const struct comm_tcp *tcp, const struct tcp_request *request)
{
	return bytes_of(request) * (request->kind == TCP_ALL_GATHER ? tcp->base.world : 1);
}

/* A rank's part of the values where each rank has one, else all of them. */
static char *part_of(const struct tcp_request *request, unsigned rank)
{
	bool divided = request->kind == TCP_REDUCE_SCATTER || request->kind == TCP_ALL_GATHER;

	return request->values + (divided ? bytes_of(request) * rank : 0);
}

bool tcp_is_small(const struct comm_tcp *tcp, const struct tcp_request *request)
{
	size_t up = up_size(tcp, request, request->root), down = down_size(tcp, request);
	size_t size = up > down ? up : down;

	return size <= SMALL_BYTES && size * tcp->base.world <= TCP_STAR_BYTES;
}

/* Transfers a header and then size bytes of values, from *at on. */
static int star_send(int fd, const struct tcp_header *header, const char *values, size_t size,
		     size_t *at, bool *moved)
{
	while (*at < sizeof(*header) + size) {
		bool heads = *at < sizeof(*header);
		size_t from = heads ? *at : *at - sizeof(*header);
		ssize_t sent =
			heads ? tcp_send(fd, (const char *)header + from, sizeof(*header) - from)
			      : tcp_send(fd, values + from, size - from);

		if (sent < 0)
			return (int)sent;
		if (sent == 0)
			return 0;
		*at += (size_t)sent;
		*moved = true;
	}
	return 0;
}

/* -EPROTO if the header is not the expected one. */
static int star_receive(int fd, const struct tcp_header *expected, struct tcp_header *header,
			char *values, size_t size, size_t *at, bool *moved)
{
	while (*at < sizeof(*header) + size) {
		bool heads = *at < sizeof(*header);
		size_t from = heads ? *at : *at - sizeof(*header);
		ssize_t got = heads ? tcp_receive(fd, (char *)header + from, sizeof(*header) - from)
				    : tcp_receive(fd, values + from, size - from);

		if (got < 0)
			return (int)got;
		if (got == 0)
			return 0;
		*at += (size_t)got;
		*moved = true;
		if (*at == sizeof(*header) && memcmp(header, expected, sizeof(*header)) != 0)
			return -EPROTO;
	}
	return 0;
}

/* Where rank 0 puts what another sends: with the others' to be added, or in its place. */
static char *place_of(const struct comm_tcp *tcp, const struct tcp_request *head, unsigned rank)
{
	if (head->kind == TCP_SUM || head->kind == TCP_REDUCE_SCATTER)
		return tcp->star.values + (rank - 1) * up_size(tcp, head, rank);
	return part_of(head, rank);
}

/* Rank 0: adds in the order of the ranks, whichever order they came in. */
static void star_combine(struct comm_tcp *tcp, const struct tcp_request *head)
{
	if (head->kind != TCP_SUM && head->kind != TCP_REDUCE_SCATTER)
		return;
	for (unsigned rank = 1; rank < tcp->base.world; rank++)
		tcp_add(head->values, place_of(tcp, head, rank),
			up_size(tcp, head, rank) / comm_element_size(head->element), head->element);
}

static int star_failed(struct comm_tcp *tcp, int r, unsigned rank, const struct tcp_header *mine)
{
	struct tcp_star *star = &tcp->star;

	if (r == -EPROTO)
		return tcp_mismatch(tcp, rank, &star->headers[tcp->base.rank ? 0 : rank], mine);
	return tcp_lose(tcp->run, tcp->ranks[rank]);
}

/* Rank 0: receives from all. */
static int star_collect(struct comm_tcp *tcp, const struct tcp_header *mine, bool *moved)
{
	struct tcp_star *star = &tcp->star;
	struct tcp_request *head = star->queue.head;

	for (unsigned rank = 1; rank < tcp->base.world; rank++) {
		size_t all = sizeof(*mine) + up_size(tcp, head, rank);

		if (star->up[rank] == all)
			continue;
		int r = star_receive(star->sockets[rank], mine, &star->headers[rank],
				     place_of(tcp, head, rank), all - sizeof(*mine),
				     &star->up[rank], moved);
		if (r < 0)
			return star_failed(tcp, r, rank, mine);
		star->arrived += star->up[rank] == all;
	}
	if (star->arrived == tcp->base.world - 1) {
		star_combine(tcp, head);
		star->arrived++;
	}
	return 0;
}

/* Rank 0: sends to all. *done if that is complete. */
static int star_distribute(struct comm_tcp *tcp, const struct tcp_header *mine, bool *moved,
			   bool *done)
{
	struct tcp_star *star = &tcp->star;
	struct tcp_request *head = star->queue.head;
	size_t size = down_size(tcp, head);

	*done = true;
	for (unsigned rank = 1; rank < tcp->base.world; rank++) {
		const char *values =
			head->kind == TCP_REDUCE_SCATTER ? part_of(head, rank) : head->values;
		int r = star_send(star->sockets[rank], mine, values, size, &star->down[rank],
				  moved);

		if (r < 0)
			return star_failed(tcp, r, rank, mine);
		*done = *done && star->down[rank] == sizeof(*mine) + size;
	}
	return 0;
}

/* Rank 0. */
static int star_lead(struct comm_tcp *tcp, bool *moved, bool *done)
{
	struct tcp_header mine = tcp_header(&tcp->star.queue);
	int r = tcp->star.arrived < tcp->base.world ? star_collect(tcp, &mine, moved) : 0;

	if (r == 0 && tcp->star.arrived == tcp->base.world)
		r = star_distribute(tcp, &mine, moved, done);
	return r;
}

/* Other ranks. */
static int star_follow(struct comm_tcp *tcp, bool *moved, bool *done)
{
	struct tcp_star *star = &tcp->star;
	struct tcp_request *head = star->queue.head;
	struct tcp_header mine = tcp_header(&star->queue);
	unsigned rank = tcp->base.rank;
	size_t up = up_size(tcp, head, rank), down = down_size(tcp, head);
	const char *from = head->kind == TCP_REDUCE_SCATTER ? head->values : part_of(head, rank);
	int r = star_send(star->sockets[0], &mine, from, up, star->up, moved);

	if (r == 0 && *star->up == sizeof(mine) + up)
		r = star_receive(star->sockets[0], &mine, star->headers,
				 head->kind == TCP_REDUCE_SCATTER ? part_of(head, rank)
								  : head->values,
				 down, star->down, moved);
	*done = *star->down == sizeof(mine) + down;
	return r < 0 ? star_failed(tcp, r, 0, &mine) : 0;
}

int tcp_star_advance(struct comm_tcp *tcp, bool *moved)
{
	struct tcp_star *star = &tcp->star;
	unsigned sockets = tcp->base.rank ? 1 : tcp->base.world;

	while (star->queue.head) {
		bool done = false;
		int r = tcp->base.rank ? star_follow(tcp, moved, &done)
				       : star_lead(tcp, moved, &done);

		if (r < 0)
			return r;
		if (!done)
			return 0;
		memset(star->up, 0, sockets * sizeof(*star->up));
		memset(star->down, 0, sockets * sizeof(*star->down));
		star->arrived = 0;
		tcp_queue_pop(&star->queue);
	}
	return 0;
}

unsigned tcp_star_polls(const struct comm_tcp *tcp, struct pollfd *polls)
{
	const struct tcp_star *star = &tcp->star;
	const struct tcp_request *head = star->queue.head;
	unsigned count = 0;

	if (!head)
		return 0;
	if (tcp->base.rank) {
		bool sent =
			*star->up == sizeof(struct tcp_header) + up_size(tcp, head, tcp->base.rank);
		polls[0] = (struct pollfd){star->sockets[0], sent ? POLLIN : POLLOUT, 0};
		return 1;
	}
	for (unsigned rank = 1; rank < tcp->base.world; rank++) {
		bool collects = star->arrived < tcp->base.world;
		size_t all = sizeof(struct tcp_header) +
			     (collects ? up_size(tcp, head, rank) : down_size(tcp, head));

		if ((collects ? star->up : star->down)[rank] < all)
			polls[count++] = (struct pollfd){star->sockets[rank],
							 collects ? POLLIN : POLLOUT, 0};
	}
	return count;
}
