/* Which requests begin, and whose replies are read first, against a server that answers all at
 * once. */
#include "format/base/system/clock.h"
#include "tests/test.h"
#include "tools/store/store.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* A reply has room in the buffers of its socket, and libcurl reads it at once. */
enum { REQUESTS = 48, BYTES = 1 << 17, HEADERS_MAX = 4096 };

/* Answers requests with zeros, from when it has `expected` of them. */
struct server {
	int listen_fd;
	unsigned expected;
	unsigned refused;        /* requests, the first ones, by a busy server */
	unsigned pause_ms;       /* before each answer */
	unsigned dripping;       /* requests, the first ones, that get their replies byte by byte */
	_Atomic bool flows;      /* these get the rest */
	_Atomic unsigned rounds; /* in which each of them got a byte */
	_Atomic unsigned answered; /* requests, whose replies are in the sockets */
	pthread_t thread;
};

struct connection {
	int fd;
	char headers[HEADERS_MAX];
	size_t received;
	size_t left; /* bytes of a reply that drips */
};

/* Returns true if the request is complete. */
static bool receive(struct connection *connection)
{
	ssize_t size = recv(connection->fd, connection->headers + connection->received,
			    HEADERS_MAX - 1 - connection->received, MSG_DONTWAIT);

	if (size > 0)
		connection->received += (size_t)size;
	connection->headers[connection->received] = '\0';
	return strstr(connection->headers, "\r\n\r\n");
}

static void refuse(struct connection *connection)
{
	static const char reply[] = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";
	const ssize_t size = sizeof(reply) - 1;

	assert_int_equal(send(connection->fd, reply, (size_t)size, MSG_NOSIGNAL), size);
	connection->received = 0;
}

static const uint8_t zeros[BYTES];

static void answer(const struct server *server, struct connection *connection)
{
	const char *range = strstr(connection->headers, "bytes=");
	unsigned long long first = 0, last = 0;
	char headers[256];

	assert_non_null(range);
	assert_int_equal(sscanf(range, "bytes=%llu-%llu", &first, &last), 2);
	assert_int_equal(last - first + 1, BYTES);
	int size = snprintf(headers, sizeof(headers),
			    "HTTP/1.1 206 Partial Content\r\nContent-Length: %u\r\n"
			    "Content-Range: bytes %llu-%llu/%u\r\nETag: \"1\"\r\n\r\n",
			    BYTES, first, last, REQUESTS * BYTES);
	assert_int_equal(send(connection->fd, headers, (size_t)size, MSG_NOSIGNAL), size);
	if (first / BYTES < server->dripping)
		connection->left = BYTES;
	else
		assert_int_equal(send(connection->fd, zeros, BYTES, MSG_NOSIGNAL), BYTES);
	connection->received = 0;
}

/* Sends a byte, but not the last one; or all that is left. */
static void drip(const struct server *server, struct connection *connection)
{
	const size_t size = server->flows ? connection->left : connection->left > 1;

	if (size == 0)
		return;
	assert_int_equal(send(connection->fd, zeros, size, MSG_NOSIGNAL), size);
	connection->left -= size;
}

/* Until the test has shut the listening socket down. */
static void *serve(void *context)
{
	struct server *server = context;
	struct connection *connections = calloc(REQUESTS, sizeof(*connections));
	struct pollfd fds[REQUESTS + 1];
	bool complete[REQUESTS] = {false};
	unsigned count = 0, requests = 0;

	for (;;) {
		for (unsigned i = 0; i < count; i++)
			fds[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
		fds[count] = (struct pollfd){.fd = server->listen_fd, .events = POLLIN};
		poll(fds, count + 1, server->dripping ? 0 : -1);
		for (unsigned i = 0; i < count; i++)
			if (fds[i].revents && !complete[i] && receive(&connections[i])) {
				complete[i] = true;
				requests++;
			}
		if (fds[count].revents) {
			int fd = accept(server->listen_fd, NULL, NULL);

			if (fd < 0)
				break;
			assert_true(count < REQUESTS);
			connections[count++] = (struct connection){.fd = fd};
		}
		for (unsigned i = 0; i < count && requests >= server->expected; i++)
			if (complete[i]) {
				usleep(server->pause_ms * 1000);
				if (server->answered < server->refused)
					refuse(&connections[i]);
				else
					answer(server, &connections[i]);
				complete[i] = false;
				server->answered++;
			}
		for (unsigned i = 0; i < count; i++)
			drip(server, &connections[i]);
		server->rounds++;
	}
	while (count--)
		close(connections[count].fd);
	free(connections);
	return NULL;
}

/* Returns the address of its file. */
static const char *server_start(struct server *server, unsigned expected)
{
	static char address[64];
	struct sockaddr_in name = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(name);

	server->expected = expected;
	server->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(server->listen_fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(server->listen_fd, REQUESTS), 0);
	assert_int_equal(getsockname(server->listen_fd, (struct sockaddr *)&name, &size), 0);
	assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
	snprintf(address, sizeof(address), "http://127.0.0.1:%u/a.pimg", ntohs(name.sin_port));
	return address;
}

static void server_stop(struct server *server)
{
	shutdown(server->listen_fd, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	close(server->listen_fd);
}

/* What has come of all requests, and in which order they have ended. */
struct progress {
	uint64_t received, received_at_first;
	unsigned ended;
	unsigned order[REQUESTS];
};

struct asked {
	struct progress *progress;
	unsigned number;
};

static int take(void *context, const void *bytes, size_t size)
{
	const struct asked *asked = context;

	(void)bytes;
	asked->progress->received += size;
	return 0;
}

static void done(void *context, const struct store_result *result)
{
	const struct asked *asked = context;
	struct progress *progress = asked->progress;

	assert_int_equal(result->status, 0);
	if (!progress->ended)
		progress->received_at_first = progress->received;
	progress->order[progress->ended++] = asked->number;
}

static void submit(struct store *store, struct store_object *object, struct asked *asked,
		   bool urgent)
{
	const struct store_request request = {
		.object = object,
		.offset = (uint64_t)asked->number * BYTES,
		.size = BYTES,
		.urgent = urgent,
		.take = take,
		.done = done,
		.context = asked,
	};

	assert_int_equal(store_submit(store, &request), 0);
}

/* A client, and the server whose file it asks for. */
struct stage {
	struct server server;
	struct store *store;
	struct store_object object;
	struct progress progress;
	struct asked asked[REQUESTS];
};

/* The server, with its faults, is set; it answers from `expected` requests on. */
static void stage_open(struct stage *stage, unsigned expected)
{
	const struct store_options options = {.connections = REQUESTS};
	const char *address = server_start(&stage->server, expected);
	struct packimg_error error;

	setenv("no_proxy", "127.0.0.1", 1);
	if (store_open(&options, &stage->store, &error) ||
	    store_object_init(&stage->object, address, &error))
		fail_msg("%s", error.text);
}

static void stage_close(struct stage *stage)
{
	store_close(stage->store);
	store_object_deinit(&stage->object);
	server_stop(&stage->server);
}

/* Submits the first requests. urgent: the number of one that is; `count`: none is. */
static void submit_first(struct stage *stage, unsigned count, unsigned urgent)
{
	for (unsigned i = 0; i < count; i++) {
		stage->asked[i] = (struct asked){&stage->progress, i};
		submit(stage->store, &stage->object, &stage->asked[i], i == urgent);
	}
}

static void run(struct stage *stage)
{
	while (store_run(stage->store, -1))
		;
}

/* Waits until all replies are in the sockets; none is read before. */
static void await_answers(struct stage *stage)
{
	while (stage->server.answered == 0)
		store_poll(stage->store, NULL, 0, 0);
	while (stage->server.answered < REQUESTS)
		sched_yield();
}

TEST(old_and_urgent_replies_are_read_first)
{
	enum { READ_AT_ONCE = 8, URGENT = REQUESTS - 1 };
	struct stage stage = {0};
	const struct progress *progress = &stage.progress;

	stage_open(&stage, REQUESTS);
	submit_first(&stage, REQUESTS, URGENT);
	await_answers(&stage);
	run(&stage);
	assert_int_equal(progress->ended, REQUESTS);
	/* were all sockets read in turn, all replies would end at about the same time */
	assert_in_range(progress->received_at_first, BYTES, 2 * READ_AT_ONCE * BYTES);
	for (unsigned i = 0; i < REQUESTS; i++)
		if (progress->order[i] == URGENT)
			assert_in_range(i, 0, READ_AT_ONCE);
		else
			assert_in_range(progress->order[i], i < READ_AT_ONCE ? 0 : i - READ_AT_ONCE,
					i + READ_AT_ONCE);
	stage_close(&stage);
}

TEST(requests_begin_while_the_limits_allow)
{
	enum { AT_ONCE = STORE_CONNECTIONS_FEW + 4 };
	struct stage stage = {0};

	stage_open(&stage, AT_ONCE);
	store_set_limits(stage.store, REQUESTS, (AT_ONCE - 1) * BYTES + 1);
	submit_first(&stage, 2 * AT_ONCE, 2 * AT_ONCE);
	while (!stage.progress.ended) {
		store_poll(stage.store, NULL, 0, 100);
		assert_true(store_counters(stage.store).requests <= AT_ONCE + stage.progress.ended);
	}
	assert_true(store_counters(stage.store).requests >= AT_ONCE);
	store_set_limits(stage.store, 1, UINT64_MAX);
	while (store_run(stage.store, -1))
		assert_true(store_counters(stage.store).requests <= AT_ONCE + stage.progress.ended);
	assert_int_equal(stage.progress.ended, 2 * AT_ONCE);
	stage_close(&stage);
}

/* Urgent requests of which there is always one more, until another one has ended. */
struct endless {
	struct store *store;
	struct store_object *object;
	const struct progress *until;
};

static void submit_urgent(struct endless *endless);

static void urgent_done(void *context, const struct store_result *result)
{
	assert_int_equal(result->status, 0);
	submit_urgent(context);
}

static int urgent_take(void *context, const void *bytes, size_t size)
{
	(void)context, (void)bytes, (void)size;
	return 0;
}

static void submit_urgent(struct endless *endless)
{
	const struct store_request request = {
		.object = endless->object,
		.size = BYTES,
		.urgent = true,
		.take = urgent_take,
		.done = urgent_done,
		.context = endless,
	};

	if (!endless->until->ended)
		assert_int_equal(store_submit(endless->store, &request), 0);
}

TEST(urgent_requests_do_not_starve_others)
{
	enum { PATIENCE_MS = 20000 };
	struct stage stage = {0};
	struct endless endless;
	const int64_t start_ms = clock_ms();

	stage_open(&stage, 1);
	endless = (struct endless){stage.store, &stage.object, &stage.progress};
	store_set_limits(stage.store, 1, UINT64_MAX);
	submit_urgent(&endless);
	submit_urgent(&endless);
	submit_first(&stage, 1, 1);
	while (store_run(stage.store, -1))
		assert_true(clock_ms() - start_ms < PATIENCE_MS);
	assert_int_equal(stage.progress.ended, 1);
	stage_close(&stage);
}

TEST(requests_that_fail_are_repeated_before_later_ones)
{
	/* the delay before it is repeated is 50 ms at most */
	struct stage stage = {.server = {.refused = 1, .pause_ms = 10}};
	unsigned place = 0;

	stage_open(&stage, 1);
	store_set_limits(stage.store, 1, UINT64_MAX);
	submit_first(&stage, REQUESTS, REQUESTS);
	run(&stage);
	assert_int_equal(stage.progress.ended, REQUESTS);
	while (stage.progress.order[place] != 0)
		place++;
	assert_in_range(place, 0, REQUESTS / 2);
	stage_close(&stage);
}

TEST(replies_that_drip_do_not_starve_others)
{
	enum { DRIPPING = REQUESTS - 1, POLLS_MAX = 64 };
	struct stage stage = {.server = {.dripping = DRIPPING}};
	struct server *server = &stage.server;

	stage_open(&stage, REQUESTS);
	submit_first(&stage, REQUESTS, REQUESTS);
	await_answers(&stage);
	for (unsigned i = 0; i < POLLS_MAX && !stage.progress.ended; i++) {
		const unsigned rounds = server->rounds;

		/* all sockets have something to read */
		while (server->rounds < rounds + 2)
			sched_yield();
		store_poll(stage.store, NULL, 0, 0);
	}
	assert_int_equal(stage.progress.ended, 1);
	assert_int_equal(stage.progress.order[0], DRIPPING);
	server->flows = true;
	run(&stage);
	assert_int_equal(stage.progress.ended, REQUESTS);
	stage_close(&stage);
}

TEST(the_farthest_host_limits_requests)
{
	enum { FAR_MS = 50 };
	struct stage stage = {.server = {.pause_ms = FAR_MS}};
	struct server near = {0};
	struct store_object object;
	struct packimg_error error;

	stage_open(&stage, 1);
	submit_first(&stage, 1, 1);
	run(&stage);
	assert_int_equal(store_object_init(&object, server_start(&near, 1), &error), 0);
	submit(stage.store, &object, &stage.asked[0], false);
	run(&stage);
	assert_int_equal(stage.progress.ended, 2);
	assert_true(store_counters(stage.store).least_ms >= FAR_MS);
	stage_close(&stage);
	store_object_deinit(&object);
	server_stop(&near);
}
