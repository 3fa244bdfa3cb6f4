/*
 * Invalid records from a worker to its supervisor, and excessive use of each resource by a worker.
 */
#include "tests/security/compromised_worker/agent.h"

#include "loaderd/worker/ring_allocator.h"
#include "proto/ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	FLOOD = 4000, /* number of records; the supervisor takes seconds to handle them */
	RINGS_MAX = 4096,
	WISHES_MAX = 20000, /* number of requests for one ring, NAP_NS apart */
	THREADS_MAX = 20000,
	STACK = 64 << 10,
	NAP_NS = 1000000,
};

static void sleep_briefly(void)
{
	const struct timespec t = {.tv_nsec = NAP_NS};
	nanosleep(&t, NULL);
}

static void put(const void *bytes, size_t size)
{
	for (unsigned i = 0; i < 5000 && write(IPC_PIPE_FD, bytes, size) < 0 && errno == EAGAIN;
	     i++)
		sleep_briefly();
}

static void put_record(uint32_t kind, uint64_t feed, uint64_t ring_bytes, uint64_t other_bytes,
		       uint64_t count)
{
	const struct ipc_record record = {kind, 0, 0, feed, ring_bytes, other_bytes, count};
	put(&record, sizeof(record));
}

static void drop_orders(void)
{
	struct ipc_order order;
	int fds[IPC_FDS_MAX];
	while (ipc_receive(IPC_SOCKET_FD, &order, fds) == 0)
		for (unsigned i = 0; i < IPC_FDS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
}

void agent_give_back(uint64_t feed)
{
	put_record(IPC_RING_DONE, feed, 0, 0, 0);
}

int agent_request_ring(uint64_t feed, uint64_t ring_bytes, uint64_t other_bytes,
		       int ret_fds[IPC_FDS_MAX])
{
	struct ipc_order order;
	int fds[IPC_FDS_MAX];
	put_record(IPC_WANT_RING, feed, ring_bytes, other_bytes, 0);
	do {
		if (!agent_await(IPC_RING, &order, fds))
			return -ETIMEDOUT;
		for (unsigned i = 0; order.feed != feed && i < IPC_FDS_MAX; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	} while (order.feed != feed); /* skip late replies to an earlier flood */
	for (unsigned i = 0; i < IPC_FDS_MAX; i++) {
		if (ret_fds)
			ret_fds[i] = fds[i];
		else if (fds[i] >= 0)
			close(fds[i]);
	}
	return order.code;
}

int agent_send_ring(uint64_t feed, uint64_t client)
{
	const struct ipc_record record = {.kind = IPC_SEND_RING, .feed = feed, .client = client};
	struct ipc_order order;
	int fds[IPC_FDS_MAX];
	put(&record, sizeof(record));
	return agent_await(IPC_RING_SENT, &order, fds) ? order.code : ETIMEDOUT;
}

static void random_records(void)
{
	uint64_t state = 88172645463325252, words[6];
	for (unsigned i = 0; i < 4000; i++) {
		for (unsigned j = 0; j < 6; j++) {
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			words[j] = state >> (state % 64);
		}
		words[0] = i % 8; /* valid and invalid kinds */
		if (words[0] == IPC_IDLE)
			continue; /* tested separately */
		put(words, sizeof(words));
		if (i % 64 == 0)
			drop_orders();
	}
}

/* Writes half a record, which misaligns the complete ones after it. */
static void half_records(void)
{
	for (unsigned i = 0; i < 500; i++)
		put_record(i, 0, 0, 0, 0);
	put("\1\2\3", 3);
	for (unsigned i = 0; i < 500; i++)
		put_record(UINT32_MAX - i, UINT64_MAX, UINT64_MAX, 0, 0);
}

static void request_giant_rings(const struct agent *agent)
{
	static const uint64_t sizes[] = {0,         1,          RING_ACK_SIZE,
					 INT64_MAX, UINT64_MAX, UINT64_MAX - 4095};
	const size_t count = sizeof(sizes) / sizeof(*sizes);
	for (size_t i = 0; i < count * count; i++) {
		uint64_t ring = sizes[i / count], other = sizes[i % count];
		int code = agent_request_ring(i + UINT32_MAX, ring, other, NULL);
		agent_send(agent, "%s a ring of %llu bytes, and %llu other bytes: %s",
			   code == EINVAL || code == EDQUOT ? "ok" : "BAD",
			   (unsigned long long)ring, (unsigned long long)other,
			   strerrorname_np(code < 0 ? -code : code));
	}
}

/* Releases a ring but keeps using it: the ring must still count. */
static void exit_early(const struct agent *agent)
{
	int fds[IPC_FDS_MAX];
	int code = agent_request_ring(UINT64_C(7) << 40, 1 << 20, 1 << 20, fds);
	for (uint64_t feed = 0; feed < 1000; feed++)
		put_record(IPC_RING_DONE, feed << 40, 0, 0, 0);
	agent_send(agent, "%s a ring released and kept: %d", code == 0 ? "ok" : "BAD", code);
}

/*
 * Sends a ring that does not exist, rings to connections of other workers (whose ids are
 * consecutive and below its own), and a ring twice. The second attempt must fail: the worker's own
 * client reads lines of text.
 */
static void send_invalid_rings(const struct agent *agent)
{
	const uint64_t feed = UINT64_C(9) << 40;
	unsigned sent = 0;
	int code = agent_send_ring(feed, 1);
	agent_send(agent, "%s sending a ring that does not exist: %s",
		   code == ENOENT ? "ok" : "BAD", strerrorname_np(code));
	for (uint64_t client = 0; client < agent->client_id; client++) {
		code = agent_request_ring(feed + client, 1 << 20, 0, NULL);
		sent += code == 0 && agent_send_ring(feed + client, client) != ENOTCONN;
		put_record(IPC_RING_DONE, feed + client, 0, 0, 0);
		if (code == EDQUOT)
			sleep_briefly();
	}
	agent_send(agent, "%s sending rings to the connections of others: %u came",
		   sent == 0 ? "ok" : "BAD", sent);
	/* Releases the earlier rings one after the other. */
	for (unsigned i = 0; i < WISHES_MAX; i++) {
		code = agent_request_ring(feed, 1 << 20, 0, NULL);
		if (code != EDQUOT)
			break;
		sleep_briefly();
	}
	(void)agent_send_ring(feed, UINT64_MAX);
	code = code != 0 ? code : agent_send_ring(feed, agent->client_id);
	agent_send(agent, "%s sending a ring twice: %s", code == ENOENT ? "ok" : "BAD",
		   strerrorname_np(code));
}

static void *want_forever(void *argument)
{
	for (uint64_t i = 0;; i++) {
		put_record(IPC_WANT_RING, i, INT64_MAX, 0, 0);
		if (i % 64 == 0)
			drop_orders();
	}
	return argument;
}

void bad_records(const struct agent *agent, const char *arguments)
{
	pthread_t thread;
	if (strcmp(arguments, "random") == 0)
		random_records();
	if (strcmp(arguments, "halves") == 0)
		half_records();
	if (strcmp(arguments, "giants") == 0)
		request_giant_rings(agent);
	if (strcmp(arguments, "ends") == 0)
		exit_early(agent);
	if (strcmp(arguments, "ways") == 0)
		send_invalid_rings(agent);
	for (unsigned i = 0; strcmp(arguments, "flood") == 0 && i < FLOOD; i++) {
		put_record(IPC_WANT_RING, i, INT64_MAX, 0, 0);
		if (i % 64 == 0)
			drop_orders();
	}
	if (strcmp(arguments, "storm") == 0)
		(void)pthread_create(&thread, NULL, want_forever, NULL);
	/*
	 * The worker does not know the supervisor's count of its clients, so it sends every
	 * possible value.
	 */
	for (unsigned i = 0; strcmp(arguments, "idle") == 0 && i < 64; i++)
		put_record(IPC_IDLE, 0, 0, 0, i);
}

void bad_log(const struct agent *agent, const char *arguments)
{
	static const char lines[] = "<3>\033]0;owned\007\033[2J\033[31mtitle\n"
				    "<3><3>2026-01-01 00:00:00.000 loaderd: stopped\r\n"
				    "\302\233 31m C1\n"
				    "2026-01-01 00:00:00.000 loaderd: error: forged\n"
				    "\0\0\0\n<9>x\n<\n\n<3>\n";
	static char long_line[100000];
	(void)!write(2, lines, sizeof(lines) - 1);
	memset(long_line, '\033', sizeof(long_line));
	for (unsigned i = 0; strcmp(arguments, "flood") == 0 && i < 2000; i++) {
		if (write(2, long_line, sizeof(long_line)) < 0)
			sleep_briefly();
	}
}

static void *change_page(void *argument)
{
	struct status_page *page = argument;
	for (uint64_t i = 0;; i++) {
		atomic_store(&page->sequence, i % 3);
		page->feed_count = i % 2 ? UINT32_MAX : 60;
		for (unsigned j = 0; j < STATUS_FEEDS_MAX; j++)
			memset(page->feeds[j].name, i % 2 ? '\033' : 'a', STATUS_TEXT_MAX);
	}
	return NULL;
}

void bad_page(const struct agent *agent, const char *arguments)
{
	struct status_page *page = agent->page;
	pthread_t thread;
	memset(page, 0x9b, STATUS_PAGE_SIZE);
	for (unsigned i = 0; i < STATUS_FEEDS_MAX; i++) {
		memset(page->feeds[i].name, '\033', STATUS_TEXT_MAX);
		memset(page->feeds[i].dataset, '\n', STATUS_TEXT_MAX);
	}
	page->feed_count = UINT32_MAX;
	atomic_store(&page->sequence,
		     1); /* an odd number marks the page as being written, here forever */
	if (strcmp(arguments, "changing") == 0)
		(void)pthread_create(&thread, NULL, change_page, page);
}

/*
 * Enables passing of fds on its client's connection, and leaves the passed fds to the process that
 * closes the connection last.
 */
void abandon_descriptors(const struct agent *agent, const char *arguments)
{
	enum { PASS_RIGHTS = 83 /* SO_PASSRIGHTS, Linux 6.16 */ };
	const int yes = 1;
	struct pollfd p = {.fd = agent->client, .events = POLLIN};
	(void)setsockopt(agent->client, SOL_SOCKET, PASS_RIGHTS, &yes, sizeof(yes));
	agent_send(agent, "ok descriptors may come");
	(void)poll(&p, 1, -1);
}

void exhaust_memory(const struct agent *agent, const char *arguments)
{
	const size_t step = 16 << 20;
	uint64_t most = strtoull(arguments, NULL, 10), got = 0;
	/* Does not touch the memory: only the refusal matters. */
	while (got < most && mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0) != MAP_FAILED)
		got += step;
	agent_send(agent, "%s memory: refused after %llu MiB", got < most ? "ok" : "BAD",
		   (unsigned long long)(got >> 20));
}

static void *sleep_forever(void *argument)
{
	for (;;)
		poll(NULL, 0, -1);
	return argument;
}

void exhaust_threads(const struct agent *agent, const char *arguments)
{
	unsigned count = 0, most = (unsigned)atoi(arguments);
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	while (count < most && pthread_create(&thread, &attributes, sleep_forever, NULL) == 0)
		count++;
	pthread_attr_destroy(&attributes);
	agent_send(agent, "%s threads: refused after %u", count < most ? "ok" : "BAD", count);
}

/* Requests as many rings of minimal size as it can get, and releases none. */
void exhaust_rings(const struct agent *agent, const char *arguments)
{
	unsigned count = 0;
	int fds[IPC_FDS_MAX], code = 0;
	while (count < RINGS_MAX && (code = agent_request_ring((UINT64_C(1) << 50) + count,
							       2 * RING_ACK_SIZE, 0, fds)) == 0)
		count++;
	agent_send(agent, "%s rings: refused after %u with %s", code == EDQUOT ? "ok" : "BAD",
		   count, strerrorname_np(code < 0 ? -code : code));
}

/* Stops reading from the supervisor. */
void hang_silently(const struct agent *agent, const char *arguments)
{
	agent_send(agent, AGENT_END);
	close(agent->client);
	sleep_forever(NULL);
}

static void *spin_forever(void *argument)
{
	for (volatile uint64_t i = 0;; i++)
		;
	return argument;
}

void hang_spinning(const struct agent *agent, const char *arguments)
{
	pthread_t thread;
	for (int i = 0; i < atoi(arguments); i++)
		(void)pthread_create(&thread, NULL, spin_forever, NULL);
}
