/*
 * Stands in for loaderd-fetch in tests: speaks its protocol (proto/SPEC.md, "Fetcher") and fetches
 * from the local file system: s3://test/FOLDER/FILE is /FOLDER/FILE. Copies as fetcher.h does, with
 * a mirror for each connection, and ends shortly after its last client. Variables say how it fails:
 *
 *   DOUBLE_STARTS=FILE       adds a line with its process to the file
 *   DOUBLE_PACE_US=N         pauses after each sample
 *   DOUBLE_EVICTIONS=N       takes samples away at random after each that was copied
 *   DOUBLE_FAIL_AFTER=N      sends FetchError once so many samples are copied
 *   DOUBLE_REFUSES=SENTENCE  cannot start
 *   DOUBLE_ENDS=1            ends when a client wants to go on
 */
#include "format/base/system/clock.h"
#include "format/base/system/io.h"
#include "proto/fetch.pb-c.h"
#include "proto/framing.h"
#include "proto/socket_path.h"
#include "tests/integration/loaderd/fetcher.h"
#include "tests/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { CLIENTS_MAX = 16, TICK_MS = 20, IDLE_MS = 300 };

struct client {
	int fd; /* -1: none */
	struct frame_reader reader;
	bool opened, fills, failed;
	struct fetcher fetcher;
};

static struct client clients[CLIENTS_MAX];

static unsigned number(const char *variable)
{
	const char *text = getenv(variable);
	return text ? (unsigned)atoi(text) : 0;
}

static void reply(struct client *client, Loaderd__FetchReply *message, const int *fds,
		  unsigned count)
{
	uint8_t data[1024];
	size_t size = loaderd__fetch_reply__pack(message, data);
	frame_send(client->fd, data, size, fds, count, 1000);
}

static void reply_error(struct client *client, int code, const char *text)
{
	Loaderd__FetchError error = LOADERD__FETCH_ERROR__INIT;
	Loaderd__FetchReply message = LOADERD__FETCH_REPLY__INIT;
	error.code = (uint32_t)code;
	error.text = (char *)text;
	message.kind_case = LOADERD__FETCH_REPLY__KIND_ERROR;
	message.error = &error;
	reply(client, &message, NULL, 0);
}

static void reply_progress(struct client *client)
{
	Loaderd__FetchProgress progress = LOADERD__FETCH_PROGRESS__INIT;
	Loaderd__FetchReply message = LOADERD__FETCH_REPLY__INIT;
	progress.done = 12;
	progress.total = 80;
	message.kind_case = LOADERD__FETCH_REPLY__KIND_PROGRESS;
	message.progress = &progress;
	reply(client, &message, NULL, 0);
}

/* With map and page the file comes in a second message, as those that find no room in the first. */
static void reply_opened(struct client *client, bool facts)
{
	Loaderd__FetchOpened opened = LOADERD__FETCH_OPENED__INIT;
	Loaderd__FetchFiles files = LOADERD__FETCH_FILES__INIT;
	Loaderd__FetchReply message = LOADERD__FETCH_REPLY__INIT;
	const int memory[] = {client->fetcher.filling.map, client->fetcher.filling.page};
	int file = open(client->fetcher.mirror, O_RDONLY | O_CLOEXEC);
	opened.files = 1;
	message.kind_case = LOADERD__FETCH_REPLY__KIND_OPENED;
	message.opened = &opened;
	reply(client, &message, facts ? &file : memory, facts ? 1 : 2);
	if (!facts) {
		message.kind_case = LOADERD__FETCH_REPLY__KIND_FILES;
		message.files = &files;
		reply(client, &message, &file, 1);
	}
	close(file);
}

/* By the inode of the map, which stays the same when another double takes over. */
static void name_mirror(const char *source, int map, char ret_path[PATH_MAX])
{
	struct stat status;
	assert_int_equal(fstat(map, &status), 0);
	snprintf(ret_path, PATH_MAX, "%.4000s.mirror-%llu", source,
		 (unsigned long long)status.st_ino);
}

static int adopt(struct client *client, const char *source)
{
	char mirror[PATH_MAX];
	int map = frame_take_fd(&client->reader, 0), page = frame_take_fd(&client->reader, 1);
	assert_true(map >= 0 && page >= 0);
	name_mirror(source, map, mirror);
	if (access(mirror, F_OK) < 0)
		return -ESTALE;
	fetcher_adopt(&client->fetcher, source, mirror, map, page);
	return 0;
}

static void begin(struct client *client, const char *source)
{
	char mirror[PATH_MAX];
	fetcher_init(&client->fetcher, source);
	name_mirror(source, client->fetcher.filling.map, mirror);
	assert_int_equal(rename(client->fetcher.mirror, mirror), 0);
	strcpy(client->fetcher.mirror, mirror);
}

static void take_open(struct client *client, const Loaderd__FetchOpen *request)
{
	static const char prefix[] = "s3://test";
	const char *source = request->url + sizeof(prefix) - 1;
	assert_int_equal(request->version, 1);
	if (strncmp(request->url, prefix, sizeof(prefix) - 1) != 0 || access(source, R_OK) < 0) {
		reply_error(client, ENOENT, "s3://test: the store has no such object.");
		return;
	}
	if (request->resumed && number("DOUBLE_ENDS"))
		_exit(0);
	reply_progress(client);
	if (request->resumed && adopt(client, source) < 0) {
		reply_error(client, ESTALE, "The cache has been removed.");
		return;
	}
	if (!request->resumed)
		begin(client, source);
	client->opened = true;
	client->fills = !request->facts;
	reply_opened(client, request->facts);
	if (!client->fills)
		return;
	struct fetcher_plan plan = fetcher_plan();
	plan.pace_us = number("DOUBLE_PACE_US");
	plan.evictions = number("DOUBLE_EVICTIONS");
	fetcher_start(&client->fetcher, &plan);
}

static void forget(struct client *client)
{
	close(client->fd);
	client->fd = -1;
	frame_reader_deinit(&client->reader);
	if (client->opened)
		fetcher_deinit(&client->fetcher);
	client->opened = client->fills = client->failed = false;
}

static void serve(struct client *client)
{
	const uint8_t *data;
	size_t size;
	int r;
	while ((r = frame_receive(&client->reader, client->fd, &data, &size)) == 1) {
		Loaderd__FetchRequest *request = loaderd__fetch_request__unpack(NULL, size, data);
		assert_non_null(request);
		assert_int_equal(request->kind_case, LOADERD__FETCH_REQUEST__KIND_OPEN);
		take_open(client, request->open);
		loaderd__fetch_request__free_unpacked(request, NULL);
	}
	if (r < 0)
		forget(client);
}

static void fail_at_will(struct client *client)
{
	unsigned after = number("DOUBLE_FAIL_AFTER");
	if (after == 0 || !client->fills || client->failed ||
	    atomic_load(&client->fetcher.counts->copied) < after)
		return;
	client->failed = true;
	fetcher_kill(&client->fetcher);
	reply_error(client, ESTALE, "s3://test: the dataset was replaced\x1b in the store.");
}

static void accept_client(int listener)
{
	unsigned i = 0;
	while (clients[i].fd >= 0)
		assert_true(++i < CLIENTS_MAX);
	clients[i].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	frame_reader_init(&clients[i].reader);
}

static void serve_all(int listener)
{
	int64_t idle_ms = clock_ms();
	while (clock_ms() - idle_ms < IDLE_MS) {
		struct pollfd polls[CLIENTS_MAX + 1];
		for (unsigned i = 0; i < CLIENTS_MAX; i++)
			polls[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
		polls[CLIENTS_MAX] = (struct pollfd){.fd = listener, .events = POLLIN};
		poll(polls, CLIENTS_MAX + 1, TICK_MS);
		for (unsigned i = 0; i < CLIENTS_MAX; i++) {
			if (polls[i].revents)
				serve(&clients[i]);
			if (clients[i].fd >= 0)
				fail_at_will(&clients[i]);
			if (clients[i].fd >= 0)
				idle_ms = clock_ms();
		}
		if (polls[CLIENTS_MAX].revents)
			accept_client(listener);
	}
}

static int listen_on(const char *path)
{
	struct sockaddr_un address;
	socklen_t size = socket_address(path, &address);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(path);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(fd, CLIENTS_MAX), 0);
	return fd;
}

static void note_start(void)
{
	char line[32];
	int fd = open(getenv("DOUBLE_STARTS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	snprintf(line, sizeof(line), "%d\n", getpid());
	assert_int_equal(io_write(fd, line, strlen(line)), 0);
	close(fd);
}

static void answer_start(int ready, const char *sentence)
{
	dprintf(ready, "%s\n", sentence);
	close(ready);
}

int main(int count, char **arguments)
{
	char lock_path[PATH_MAX];
	assert_int_equal(count, 5);
	assert_string_equal(arguments[1], "--socket");
	assert_string_equal(arguments[3], "--ready-fd");
	const char *path = arguments[2];
	int ready = atoi(arguments[4]);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (getenv("DOUBLE_REFUSES") || flock(lock, LOCK_EX | LOCK_NB) < 0) {
		answer_start(ready, getenv("DOUBLE_REFUSES") ?: "");
		return 0;
	}
	if (fork() > 0)
		_exit(0);
	setsid();
	signal(SIGPIPE, SIG_IGN);
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		clients[i].fd = -1;
	int listener = listen_on(path);
	note_start();
	answer_start(ready, "");
	serve_all(listener);
	unlink(path);
	return 0;
}
