/*
 * libfeed against a daemon that can do everything: it sends what no worker could, behind the walls that a service puts up. Each row is a refusal with a sentence, or
 * nothing happens. The daemon is a thread of the test, and does what the row says with each connection.
 */
#include "testing.h"

#include "connection.h"
#include "feed.h"
#include "files.h"
#include "own_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BATCH_SIZE = 8, SLOTS = 4, BATCHES = 10, SIDE = 4, FDS_MAX = FRAME_FDS_MAX };

struct puppet {
	char socket[64];
	int listen_fd, fd;
	pthread_t thread;
	void (*play)(struct puppet *puppet);
	unsigned connections;
	struct frame_reader reader;
	struct ring_producer ring;
	/* How a row would have FeedOpened and what comes with it. */
	struct ring_geometry geometry;
	Loaderd__FeedOpened opened;
	int fds[FDS_MAX];
	unsigned fd_count;
};

static char dataset[] = "/tmp/loaderd-hostile-XXXXXX.pimg";

/* ---- the daemon ---- */

/* NULL: the client has hung up. */
static Loaderd__Request *hear(struct puppet *p)
{
	for (;;) {
		const uint8_t *data;
		size_t size;
		int r = frame_receive(&p->reader, p->fd, &data, &size);
		if (r > 0)
			return loaderd__request__unpack(NULL, size, data);
		if (r < 0)
			return NULL;
		struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
		poll(&poll_fd, 1, -1);
	}
}

/* False when the client has hung up. */
static bool hear_and_forget(struct puppet *p)
{
	Loaderd__Request *request = hear(p);
	if (request != NULL)
		loaderd__request__free_unpacked(request, NULL);
	return request != NULL;
}

static void hear_to_the_end(struct puppet *p)
{
	while (hear_and_forget(p))
		;
}

static void tell(struct puppet *p, const Loaderd__Reply *reply, const int *fds, unsigned fd_count)
{
	size_t size = loaderd__reply__get_packed_size(reply);
	uint8_t *data = malloc(size + 1);
	loaderd__reply__pack(reply, data);
	frame_send(p->fd, data, size, fds, fd_count, 1000);
	free(data);
}

static void ask_for_files(struct puppet *p, uint32_t first, uint32_t most, bool direct)
{
	Loaderd__NeedFiles need = LOADERD__NEED_FILES__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	need.first = first;
	need.most = most;
	need.direct = direct;
	reply.kind_case = LOADERD__REPLY__KIND_NEED_FILES;
	reply.need_files = &need;
	tell(p, &reply, NULL, 0);
}

static void play_connection(struct puppet *p)
{
	frame_reader_init(&p->reader);
	p->play(p);
	frame_reader_deinit(&p->reader);
	close(p->fd);
	p->connections++;
}

static void *serve(void *argument)
{
	struct puppet *p = argument;
	while ((p->fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		play_connection(p);
	return NULL;
}

static void start(struct puppet *p, void (*play)(struct puppet *))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	*p = (struct puppet){.play = play};
	int length = snprintf(p->socket, sizeof p->socket, "@loaderd-hostile-%d", (int)getpid());
	memcpy(address.sun_path + 1, p->socket + 1, (size_t)length - 1);
	p->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(p->listen_fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)),
			 0);
	assert_int_equal(listen(p->listen_fd, 16), 0);
	assert_int_equal(pthread_create(&p->thread, NULL, serve, p), 0);
}

static void stop(struct puppet *p)
{
	shutdown(p->listen_fd, SHUT_RDWR);
	pthread_join(p->thread, NULL);
	close(p->listen_fd);
}

/* ---- files that are asked for ---- */

static void ask_beyond(struct puppet *p)
{
	hear_and_forget(p);
	ask_for_files(p, UINT32_MAX, 253, false);
	hear_to_the_end(p);
}

static void ask_for_none(struct puppet *p)
{
	hear_and_forget(p);
	ask_for_files(p, 0, 0, false);
	hear_to_the_end(p);
}

static void ask_again_for_ever(struct puppet *p)
{
	hear_and_forget(p);
	do {
		ask_for_files(p, 0, UINT32_MAX, false);
	} while (hear_and_forget(p));
}

/* Once is what a daemon may do. */
static void ask_directly_in_turn(struct puppet *p)
{
	hear_and_forget(p);
	for (unsigned i = 0;; i++) {
		ask_for_files(p, 0, 1, i % 2 == 1);
		if (!hear_and_forget(p))
			break;
	}
}

static int request_status(const struct puppet *p, char *error)
{
	struct connection connection = {.fd = -1};
	int64_t deadline_ms = clock_ms() + SOON_MS;
	int r = connection_open(&connection, p->socket, deadline_ms, error);
	assert_int_equal(r, 0);
	Loaderd__GetStatus get = LOADERD__GET_STATUS__INIT;
	Loaderd__Request request = LOADERD__REQUEST__INIT;
	request.kind_case = LOADERD__REQUEST__KIND_GET_STATUS;
	request.get_status = &get;
	Loaderd__Reply *reply = NULL;
	r = files_request(&connection, &request, NULL, NULL, deadline_ms, &reply, error);
	if (r == 0)
		loaderd__reply__free_unpacked(reply, NULL);
	connection_close(&connection);
	return r;
}

static int request_dataset(const struct puppet *p, char *error)
{
	struct feed_dataset *facts;
	int r = feed_dataset(p->socket, dataset, &facts, error);
	if (r == 0)
		feed_dataset_free(facts);
	return r;
}

static int request_feed(const struct puppet *p, char *error)
{
	struct feed_options options;
	struct feed *feed;
	feed_options_init(&options);
	options.socket = p->socket;
	options.dataset = dataset;
	options.batch_size = BATCH_SIZE;
	options.reconnect_timeout_ms = 2000;
	int r = feed_open(&options, &feed, error);
	if (r == 0)
		feed_close(feed);
	return r;
}

struct row {
	const char *name;
	void (*play)(struct puppet *puppet);
	int (*client)(const struct puppet *puppet, char *error);
	int code;
	const char *text;
};

static void run_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct puppet puppet;
		char error[FEED_ERROR_MAX] = "";
		unsigned fds = count_open_fds();
		start(&puppet, rows[i].play);
		int64_t start_ms = now_ms();
		int r = rows[i].client(&puppet, error);
		print_message("%s: %d, %s\n", rows[i].name, r, error);
		assert_int_equal(r, rows[i].code);
		assert_true(now_ms() - start_ms < SOON_MS);
		if (rows[i].text != NULL)
			assert_non_null(strstr(error, rows[i].text));
		stop(&puppet);
		assert_int_equal(count_open_fds(), fds);
	}
}

static void files_are_asked_for_in_order(void **state)
{
	static const struct row rows[] = {
		{"a file beyond the last", ask_beyond, request_feed, -EPROTO, "asks for file"},
		{"no file at a time", ask_for_none, request_feed, -EPROTO, "asks for file"},
		{"the same file for ever", ask_again_for_ever, request_feed, -EPROTO, "asks for file"},
		{"past the page cache and not, in turn", ask_directly_in_turn, request_feed, -EPROTO,
		 "asks for file"},
		{"the same file of GetDataset for ever", ask_again_for_ever, request_dataset, -EPROTO,
		 "asks for file"},
		{"files of a request for status", ask_again_for_ever, request_status, -EPROTO,
		 "where none belong to the request"},
	};
	run_rows(rows, sizeof rows / sizeof *rows);
}

static int make_dataset(void **state)
{
	int fd = mkstemps(dataset, strlen(".pimg"));
	return fd < 0 ? -1 : close(fd);
}

static int remove_dataset(void **state)
{
	return unlink(dataset);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_asked_for_in_order),
	};
	return cmocka_run_group_tests_name("feed hostile", tests, make_dataset, remove_dataset);
}
