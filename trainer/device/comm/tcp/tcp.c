/* Transport of ranks over TCP, launched by torchrun, srun or by hand. */
#include "trainer/device/comm/tcp/tcp.h"

#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "format/base/text/sentence.h"

#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	BLOCK_MS = 1000, /* longest wait before another look for silent connections */
};

/* ---- failures ---- */

/* Passes on how the run has ended. */
static int tcp_failed(struct comm *comm)
{
	const struct tcp_run *run = ((const struct comm_tcp *)comm)->run;

	for (struct comm_tcp *each = run->communicators; each; each = each->next) {
		each->base.ended = run->ended;
		each->base.ended_here =
			run->members[run->culprit].leader == run->members[run->rank].leader;
	}
	return sentence_fail(comm->error, COMM_ERROR_MAX, run->failure, "%s", run->reason);
}

int tcp_mismatch(struct comm_tcp *tcp, unsigned rank, const struct tcp_header *theirs,
		 const struct tcp_header *mine)
{
	struct tcp_run *run = tcp->run;
	char text[512];

	snprintf(text, sizeof(text),
		 "ranks %u and %u are at different operations (%u, %llu of %llu values, and %u, "
		 "%llu of %llu): this is a bug",
		 run->rank, tcp->ranks[rank], mine->kind, (unsigned long long)mine->sequence,
		 (unsigned long long)mine->count, theirs->kind,
		 (unsigned long long)theirs->sequence, (unsigned long long)theirs->count);
	tcp_tell_aborted(run, text);
	return run->failure;
}

/* ---- lanes' queues ---- */

void tcp_queue_put(struct tcp_queue *queue, struct tcp_request *request)
{
	request->next = NULL;
	if (queue->head)
		queue->tail->next = request;
	else
		queue->head = request;
	queue->tail = request;
}

void tcp_queue_pop(struct tcp_queue *queue)
{
	queue->head->done = true;
	queue->head = queue->head->next;
	queue->sequence++;
}

struct tcp_header tcp_header(const struct tcp_queue *queue)
{
	const struct tcp_request *head = queue->head;

	return (struct tcp_header){(uint8_t)head->kind, (uint8_t)head->element,
				   (uint16_t)head->root, queue->sequence, head->count};
}

static void add_floats(float *restrict to, const float *restrict from, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] += from[i];
}

static void add_doubles(double *restrict to, const double *restrict from, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] += from[i];
}

void tcp_add(void *to, const void *from, size_t count, enum comm_element element)
{
	if (element == COMM_FLOAT)
		add_floats(to, from, count);
	else
		add_doubles(to, from, count);
}

/* ---- progress ---- */

/* Moves what can be moved in all communicators, until nothing can. */
static int advance_all(struct tcp_run *run, bool *moved)
{
	int r = tcp_watch_often(run);

	*moved = false;
	for (struct comm_tcp *tcp = run->communicators; tcp && r == 0; tcp = tcp->next) {
		r = tcp_star_advance(tcp, moved);
		if (r == 0)
			r = tcp_ring_advance(tcp, moved);
	}
	return r;
}

/* Ends the run if data on a lane was not acknowledged for long: only a part of the network fails.
 */
static int check_silence(struct tcp_run *run)
{
	if (clock_ms() - run->looked < BLOCK_MS)
		return 0;
	run->looked = clock_ms();
	for (struct comm_tcp *tcp = run->communicators; tcp; tcp = tcp->next) {
		unsigned world = tcp->base.world, rank = tcp->base.rank;

		if (tcp_is_silent(tcp->ring.next))
			return tcp_lose(run, tcp->ranks[(rank + 1) % world]);
		for (unsigned i = 0; i < (rank ? 1 : world); i++)
			if (tcp->star.sockets[i] >= 0 && tcp_is_silent(tcp->star.sockets[i]))
				return tcp_lose(run, tcp->ranks[i]);
	}
	return 0;
}

/* Waits until something can move, or there are news. */
static int block(struct tcp_run *run)
{
	unsigned count = 1;

	run->polls[0] = (struct pollfd){run->events, POLLIN, 0};
	for (struct comm_tcp *tcp = run->communicators; tcp; tcp = tcp->next) {
		count += tcp_star_polls(tcp, run->polls + count);
		count += tcp_ring_polls(tcp, run->polls + count);
	}
	poll(run->polls, count, BLOCK_MS);
	if (run->polls[0].revents)
		return tcp_watch(run, 0);
	return check_silence(run);
}

static int tcp_progress(struct comm *comm)
{
	struct tcp_run *run = ((struct comm_tcp *)comm)->run;
	bool moved = true;
	int r = 0;

	while (r == 0 && moved)
		r = advance_all(run, &moved);
	return r < 0 ? tcp_failed(comm) : 0;
}

static int wait_for(struct comm_tcp *tcp, struct tcp_request *request)
{
	bool moved;
	int r = tcp->run->failure;

	while (r == 0 && !request->done) {
		r = advance_all(tcp->run, &moved);
		if (r == 0 && !moved && !request->done)
			r = block(tcp->run);
	}
	request->used = false;
	return r < 0 ? tcp_failed(&tcp->base) : 0;
}

static int tcp_wait(struct comm *comm, unsigned number)
{
	struct comm_tcp *tcp = (struct comm_tcp *)comm;

	return wait_for(tcp, &tcp->requests[number]);
}

/* ---- operations ---- */

static void put(struct comm_tcp *tcp, struct tcp_request *request)
{
	request->used = true;
	request->done = false;
	tcp_queue_put(tcp_is_small(tcp, request) ? &tcp->star.queue : &tcp->ring.queue, request);
}

static int tcp_start(struct comm *comm, enum comm_operation operation, void *values, size_t count,
		     enum comm_element element, unsigned *ret_request)
{
	static const enum tcp_kind kinds[] = {
		[COMM_SUM] = TCP_SUM,
		[COMM_REDUCE_SCATTER] = TCP_REDUCE_SCATTER,
		[COMM_ALL_GATHER] = TCP_ALL_GATHER,
	};
	struct comm_tcp *tcp = (struct comm_tcp *)comm;
	unsigned number = 0;
	bool moved;

	if (tcp->run->failure)
		return tcp_failed(comm);
	while (number < COMM_REQUESTS_MAX && tcp->requests[number].used)
		number++;
	if (number == COMM_REQUESTS_MAX)
		return sentence_fail(comm->error, COMM_ERROR_MAX, -EBUSY,
				     "%d sums are under way already", COMM_REQUESTS_MAX);
	struct tcp_request *request = &tcp->requests[number];
	*request = (struct tcp_request){
		.kind = kinds[operation], .element = element, .values = values, .count = count};
	put(tcp, request);
	*ret_request = number;
	return advance_all(tcp->run, &moved) < 0 ? tcp_failed(comm) : 0;
}

/* Starts an operation in the place for those and waits for it. */
static int do_now(struct comm_tcp *tcp, enum tcp_kind kind, void *values, size_t size,
		  unsigned root)
{
	struct tcp_request *request = &tcp->requests[COMM_REQUESTS_MAX];

	*request = (struct tcp_request){
		.kind = kind, .element = COMM_BYTE, .values = values, .count = size, .root = root};
	put(tcp, request);
	return wait_for(tcp, request);
}

static int tcp_broadcast(struct comm *comm, void *bytes, size_t size, unsigned root)
{
	return do_now((struct comm_tcp *)comm, TCP_BROADCAST, bytes, size, root);
}

static int tcp_gather(struct comm *comm, const void *mine, size_t size, void *ret_all)
{
	memmove((char *)ret_all + comm->rank * size, mine, size);
	return do_now((struct comm_tcp *)comm, TCP_ALL_GATHER, ret_all, size, 0);
}

static void tcp_abort(struct comm *comm, const char *reason)
{
	struct tcp_run *run = ((struct comm_tcp *)comm)->run;

	tcp_tell_aborted(run, reason);
	tcp_watch_close(run);
}

static bool tcp_await_end(struct comm *comm, unsigned seconds)
{
	struct tcp_run *run = ((struct comm_tcp *)comm)->run;
	int64_t deadline = clock_ms() + 1000 * (int64_t)seconds;

	while (!run->failure && clock_ms() < deadline)
		tcp_watch(run, clock_left_ms(deadline));
	return run->failure && tcp_failed(comm) < 0;
}

/* ---- opening and closing ---- */

static int tcp_split(struct comm *comm, unsigned group, struct comm **ret_comm);
static void tcp_close(struct comm *comm);

static const struct comm_ops tcp_ops = {
	.close = tcp_close,
	.split = tcp_split,
	.start = tcp_start,
	.progress = tcp_progress,
	.wait = tcp_wait,
	.broadcast = tcp_broadcast,
	.gather = tcp_gather,
	.await_end = tcp_await_end,
	.abort = tcp_abort,
};

static void run_free(struct tcp_run *run)
{
	if (!run)
		return;
	tcp_watch_close(run);
	io_close(run->listener);
	free(run->members);
	free(run->polls);
	free(run);
}

static struct tcp_run *run_new(const struct launch *launch)
{
	struct tcp_run *run = calloc(1, sizeof(*run));
	unsigned controls = launch->rank ? 1 : launch->world;

	if (!run)
		return NULL;
	run->rank = launch->rank;
	run->world = launch->world;
	run->events = run->listener = -1;
	run->members = calloc(run->world, sizeof(*run->members));
	run->controls = malloc(controls * sizeof(*run->controls));
	for (unsigned i = 0; run->controls && i < controls; i++)
		run->controls[i] = -1;
	if (run->members && run->controls)
		return run;
	run_free(run);
	return NULL;
}

static void communicator_free(struct comm_tcp *tcp)
{
	struct comm_tcp **at = &tcp->run->communicators;

	while (*at && *at != tcp)
		at = &(*at)->next;
	if (*at)
		*at = tcp->next;
	tcp_lanes_close(tcp);
	free(tcp->ranks);
	free(tcp);
}

/* Makes room for what one more communicator of this size polls. */
static int reserve_polls(struct tcp_run *run, unsigned world)
{
	unsigned count = run->polls_max + world + 3;
	struct pollfd *polls = realloc(run->polls, count * sizeof(*polls));

	if (!polls)
		return -ENOMEM;
	run->polls = polls;
	run->polls_max = count;
	return 0;
}

/* Makes a communicator of ranks[world], which it takes over, and connects it. */
static int communicator_open(struct tcp_run *run, unsigned *ranks, unsigned world, uint32_t group,
			     int listener, struct comm_tcp **ret_tcp)
{
	struct comm_tcp *tcp = calloc(1, sizeof(*tcp));

	if (!tcp || reserve_polls(run, world) < 0) {
		io_close(listener);
		free(ranks);
		free(tcp);
		return -ENOMEM;
	}
	tcp->base.world = world;
	tcp->base.ops = &tcp_ops;
	tcp->run = run;
	tcp->ranks = ranks;
	tcp->number = run->splits;
	tcp->group = group;
	while (ranks[tcp->base.rank] != run->rank)
		tcp->base.rank++;
	int r = tcp_lanes_open(tcp, listener);
	if (r < 0) {
		communicator_free(tcp);
		return r;
	}
	/* at the end, so that an operation of a group does not hold up one of all ranks */
	struct comm_tcp **at = &run->communicators;
	while (*at)
		at = &(*at)->next;
	*at = tcp;
	*ret_tcp = tcp;
	return 0;
}

/* Compares the CPUs of the ranks of this machine. */
static int compare_affinities(struct comm *comm, const struct tcp_run *run)
{
	cpu_set_t mine, common, *sets = calloc(comm->world, sizeof(*sets));

	if (!sets)
		return sentence_fail(comm->error, COMM_ERROR_MAX, -ENOMEM, "out of memory");
	if (sched_getaffinity(0, sizeof(mine), &mine) < 0)
		CPU_ZERO(&mine);
	int r = tcp_gather(comm, &mine, sizeof(mine), sets);
	for (unsigned rank = 0; r == 0 && rank < comm->world; rank++) {
		if (run->members[rank].leader != comm->leader)
			continue;
		CPU_OR(&comm->cpus, &comm->cpus, &sets[rank]);
		CPU_AND(&common, &sets[rank], &mine);
		comm->sharers += rank == comm->rank || CPU_COUNT(&common);
	}
	free(sets);
	return r;
}

/* Sets the fields of struct comm that describe the ranks of this machine. */
static int find_place(struct comm *comm, const struct tcp_run *run)
{
	const struct tcp_member *member = &run->members[comm->rank];

	comm->local_rank = (unsigned)member->local_rank;
	comm->local_world = (unsigned)member->local_world;
	comm->leader = member->leader;
	return compare_affinities(comm, run);
}

static int open_run(struct tcp_run *run, const struct launch *launch, struct comm **ret_comm,
		    char *error)
{
	unsigned *ranks = malloc(run->world * sizeof(*ranks));
	struct comm_tcp *tcp;

	if (!ranks)
		return sentence_fail(error, COMM_ERROR_MAX, -ENOMEM, "out of memory");
	for (unsigned rank = 0; rank < run->world; rank++)
		ranks[rank] = rank;
	int r = tcp_meet(run, launch, error);
	if (r == 0) {
		r = tcp_watch_open(run);
		if (r < 0)
			sentence_write(error, COMM_ERROR_MAX, "epoll: %s", strerror(-r));
	}
	if (r < 0) {
		free(ranks);
		return r;
	}
	int listener = run->listener;
	run->listener = -1;
	r = communicator_open(run, ranks, run->world, 0, listener, &tcp);
	if (r < 0)
		return sentence_fail(error, COMM_ERROR_MAX, r, "%s",
				     run->failure ? run->reason : strerror(-r));
	r = find_place(&tcp->base, run);
	if (r < 0) {
		sentence_write(error, COMM_ERROR_MAX, "%s", tcp->base.error);
		communicator_free(tcp);
		return r;
	}
	*ret_comm = &tcp->base;
	return 0;
}

int comm_tcp_open(struct comm **ret_comm, char *error)
{
	struct launch launch;
	int r = launch_read(&launch, error);

	if (r < 0)
		return r;
	if (launch.world == 1)
		return comm_open_alone(ret_comm, error);
	struct tcp_run *run = run_new(&launch);
	if (!run)
		return sentence_fail(error, COMM_ERROR_MAX, -ENOMEM, "out of memory");
	r = open_run(run, &launch, ret_comm, error);
	if (r < 0)
		run_free(run);
	return r;
}

/* ---- groups ---- */

struct split_member {
	uint32_t group, port;
};

/*
 * Enters where the members of the group wait, and returns the group's ranks in the run. NULL if out
 * of memory.
 */
static unsigned *group_ranks(struct comm_tcp *tcp, const struct split_member *members,
			     unsigned group, unsigned *ret_world)
{
	unsigned *ranks = malloc(tcp->base.world * sizeof(*ranks));

	*ret_world = 0;
	for (unsigned i = 0; ranks && i < tcp->base.world; i++) {
		if (members[i].group != group)
			continue;
		ranks[(*ret_world)++] = tcp->ranks[i];
		tcp->run->members[tcp->ranks[i]].port = members[i].port;
	}
	return ranks;
}

static int split_open(struct comm_tcp *tcp, const struct split_member *members, unsigned group,
		      int listener, struct comm **ret_comm)
{
	struct comm_tcp *made;
	unsigned world, *ranks = group_ranks(tcp, members, group, &world);

	if (ranks && world > 1) {
		int r = communicator_open(tcp->run, ranks, world, group, listener, &made);
		if (r == 0)
			*ret_comm = &made->base;
		return r;
	}
	io_close(listener);
	free(ranks);
	return ranks ? comm_open_alone(ret_comm, tcp->base.error) : -ENOMEM;
}

static int tcp_split(struct comm *comm, unsigned group, struct comm **ret_comm)
{
	struct comm_tcp *tcp = (struct comm_tcp *)comm;
	struct tcp_run *run = tcp->run;
	struct split_member mine, *members = calloc(comm->world, sizeof(*members));
	int listener = tcp_listen(run->local ? &run->found : NULL, 0);

	mine = (struct split_member){group, listener < 0 ? 0 : tcp_port(listener)};
	run->splits++;
	int r = members ? tcp_gather(comm, &mine, sizeof(mine), members) : -ENOMEM;
	if (r == 0 && listener < 0)
		r = listener;
	if (r == 0)
		r = split_open(tcp, members, group, listener, ret_comm);
	else
		io_close(listener);
	free(members);
	if (r < 0 && run->failure)
		return tcp_failed(comm);
	return r < 0 ? sentence_fail(comm->error, COMM_ERROR_MAX, r,
				     "rank %u of %u: cannot make a group of ranks: %s", comm->rank,
				     comm->world, strerror(-r))
		     : 0;
}

static void tcp_close(struct comm *comm)
{
	struct comm_tcp *tcp = (struct comm_tcp *)comm;
	struct tcp_run *run = tcp->run;
	char none = 0;

	run->closing = run->closing || tcp->number == 0;
	/* all have closed when all have come here */
	do_now(tcp, TCP_SUM, &none, 0, 0);
	bool last = run->communicators == tcp;
	communicator_free(tcp);
	if (last)
		run_free(run);
}
