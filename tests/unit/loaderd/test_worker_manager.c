/*
 * Events that the supervisor's epoll set reports for a worker: they do not repeat endlessly, and
 * stop when the worker ends. The test runs the supervisor's iterations. The manager starts the test
 * program itself as the worker; the test selects the worker's behaviour, its "habit".
 */
#include "format/base/system/clock.h"
#include "loaderd/supervisor/worker_manager.h"
#include "tests/test.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define HABIT "MANAGER_TEST_HABIT"

enum {
	/*
	 * More log output than the supervisor reads from a worker per second; the rest fits into
	 * the pipe.
	 */
	LOG_BYTES = (64 << 10) + 1000,
	LOG_LINES = 2048, /* lines of minimal length, which cost more than their bytes */
	RECORDS_READ = 2000,
	RECORDS = RECORDS_READ + 10,
	TURNS_MAX = 2000, /* limit on iterations; fewer are enough to read everything */
	DONE = 2, /* sequence number of the status page once the worker has finished its habit */
	PATIENCE_MS = 60000,
	DESCRIPTORS = 256,
	CONNECTIONS_MAX = 80,
	EVENTS_MAX = 64,
};

/* Simulates a slow close(): fds stay open until late_close(). */
static struct {
	int fds[DESCRIPTORS];
	unsigned count;
} late;

void __wrap_blocking_pool_close(struct blocking_pool *blocking_pool, uint32_t key, int fd);

void __wrap_blocking_pool_close(struct blocking_pool *blocking_pool, uint32_t key, int fd)
{
	assert_true(late.count < DESCRIPTORS);
	late.fds[late.count++] = fd;
}

static void late_close(void)
{
	while (late.count > 0)
		close(late.fds[--late.count]);
}

static void put(int fd, const void *bytes, size_t size)
{
	while (write(fd, bytes, size) < 0) {
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		if (errno != EAGAIN || poll(&p, 1, -1) < 0)
			_exit(EXIT_FAILURE);
	}
}

static void fill_log(void)
{
	char line[100]; /* "<7>" is a level that is not logged */
	memset(line, 'x', sizeof(line));
	memcpy(line, "<7>", 3);
	line[sizeof(line) - 1] = '\n';
	for (size_t size = 0; size < LOG_BYTES; size += sizeof(line))
		put(STDERR_FILENO, line, sizeof(line));
}

static void fill_log_with_lines(void)
{
	static const char line[] = "<7>\n";
	for (unsigned i = 0; i < LOG_LINES; i++)
		put(STDERR_FILENO, line, sizeof(line) - 1);
}

static void fill_pipe(void)
{
	const struct ipc_record record = {.kind = IPC_READY};
	for (unsigned i = 0; i < RECORDS; i++)
		put(IPC_PIPE_FD, &record, sizeof(record));
}

/* Writes single bytes, and waits after each until it has been read, up to RECORDS_READ. */
static void fill_pipe_slowly(void)
{
	for (unsigned i = 0; i < RECORDS; i++) {
		int unread = 1;
		while (i <= RECORDS_READ && unread > 0)
			if (ioctl(IPC_PIPE_FD, FIONREAD, &unread) < 0)
				_exit(EXIT_FAILURE);
		put(IPC_PIPE_FD, "", 1);
	}
}

/* Writes records in an order that a worker never uses, each more than once. */
static void put_unexpected_records(void)
{
	static const enum ipc_record_kind kinds[] = {IPC_IDLE, IPC_READY, IPC_IDLE, IPC_READY};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct ipc_record record = {.kind = kinds[i]};
		put(IPC_PIPE_FD, &record, sizeof(record));
	}
}

static _Noreturn void be_worker(const char *habit)
{
	struct status_page *page =
		mmap(NULL, STATUS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, IPC_PAGE_FD, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (strstr(habit, "log much"))
		fill_log();
	if (strstr(habit, "records much"))
		fill_pipe();
	if (strstr(habit, "log of many lines"))
		fill_log_with_lines();
	if (strstr(habit, "parts of records"))
		fill_pipe_slowly();
	if (strstr(habit, "idle"))
		put_unexpected_records();
	if (strstr(habit, "socket end"))
		close(IPC_SOCKET_FD);
	if (strstr(habit, "log end")) {
		close(STDOUT_FILENO);
		close(STDERR_FILENO);
	}
	if (strstr(habit, "records end"))
		close(IPC_PIPE_FD);
	atomic_store(&page->sequence, DONE);
	for (;;)
		pause();
}

struct scene {
	struct worker_manager manager;
	struct config config;
	struct blocking_pool *blocking_pool;
	int epoll_fd;
};

static void start_with(struct scene *stage, const char *habit, bool single_user)
{
	setenv(HABIT, habit, 1);
	config_init(&stage->config);
	stage->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_true(stage->epoll_fd >= 0);
	assert_int_equal(blocking_pool_new(&stage->blocking_pool), 0);
	assert_int_equal(manager_init(&stage->manager, &stage->config, stage->blocking_pool,
				      stage->epoll_fd, 1 << 30, single_user),
			 0);
	assert_int_equal(manager_prestart(&stage->manager, geteuid()), 0);
}

static void start(struct scene *stage, const char *habit)
{
	start_with(stage, habit, true);
}

/* Runs one iteration of the supervisor, without its timers. Returns the number of events. */
static int run_events_once(struct scene *stage, int patience_ms)
{
	struct epoll_event events[EVENTS_MAX];
	int count = epoll_wait(stage->epoll_fd, events, EVENTS_MAX, patience_ms);
	for (int i = 0; i < count; i++) {
		struct event_source *source = events[i].data.ptr;
		source->ready(source, events[i].events);
	}
	return count;
}

struct exit_record {
	pid_t pid;
	bool done;
};

static void record_status(void *context, uid_t uid, pid_t pid, const struct status_page *page)
{
	*(struct exit_record *)context = (struct exit_record){pid, page->sequence == DONE};
}

/* Waits for the worker to finish its habit; returns its pid. */
static pid_t await_habit(struct scene *stage)
{
	struct exit_record seen = {0};
	const uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + UINT64_C(1000000) * PATIENCE_MS;
	while (!seen.done) {
		assert_true(clock_ns(CLOCK_MONOTONIC) < until_ns);
		run_events_once(stage, 1);
		manager_visit_status(&stage->manager, record_status, &seen);
	}
	return seen.pid;
}

/* Asserts that the events of an inactive worker are handled within a few iterations. */
static void assert_few_events(struct scene *stage)
{
	unsigned turns = 0;
	while (run_events_once(stage, 0) > 0)
		assert_true(turns++ < TURNS_MAX);
}

/* Waits for the process to end, after which its fds are closed and all events are pending. */
static void await_end(pid_t pid)
{
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void finish(struct scene *stage)
{
	manager_kill_all(&stage->manager);
	while (stage->manager.worker_count > 0)
		assert_true(run_events_once(stage, PATIENCE_MS) > 0);
	manager_deinit(&stage->manager);
	assert_int_equal(run_events_once(stage, 0), 0);
	late_close();
	blocking_pool_free(stage->blocking_pool);
	close(stage->epoll_fd);
}

static void worker_with_habit(const char *habit)
{
	struct scene stage;
	start(&stage, habit);
	await_habit(&stage);
	assert_few_events(&stage);
	finish(&stage);
}

TEST(closed_sources_cause_no_events)
{
	worker_with_habit("log end");
	worker_with_habit("records end");
}

TEST(muted_sources_cause_no_events)
{
	worker_with_habit("log much");
	worker_with_habit("records much");
	worker_with_habit("log of many lines");
	worker_with_habit("parts of records");
}

TEST(muted_closed_sources_cause_no_events)
{
	worker_with_habit("log much, log end");
	worker_with_habit("records much, records end");
}

TEST(muted_sources_are_read_later)
{
	static const char *const habits[] = {
		"log much",          "records much",
		"log much, log end", "records much, records end",
		"log of many lines", "parts of records",
	};
	for (unsigned i = 0; i < sizeof(habits) / sizeof(*habits); i++) {
		struct scene stage;
		start(&stage, habits[i]);
		await_habit(&stage);
		assert_few_events(&stage);
		manager_on_time(&stage.manager, clock_ns(CLOCK_MONOTONIC));
		assert_int_equal(run_events_once(&stage, 0), 1);
		assert_few_events(&stage);
		finish(&stage);
	}
}

/* Adds a connection; returns the test's end. */
static int connect_one(struct scene *stage)
{
	int ends[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
			 0);
	manager_add_connection(&stage->manager, geteuid(), getpid(), ends[1]);
	return ends[0];
}

/* Like connect_one(), with an unread reply unless the connection is refused. */
static int connect_and_be_answered(struct scene *stage, uid_t uid)
{
	int ends[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
			 0);
	int servers = fcntl(ends[1], F_DUPFD_CLOEXEC, 0);
	manager_add_connection(&stage->manager, uid, getpid(), ends[1]);
	(void)send(servers, "a reply", 7, MSG_NOSIGNAL);
	close(servers);
	return ends[0];
}

/*
 * Adds connections until some are pending, because the worker accepts none. Returns their number.
 */
static unsigned connect_many(struct scene *stage, int clients[CONNECTIONS_MAX])
{
	unsigned count = 0;
	while (stage->manager.pending_count < 3) {
		assert_true(count < CONNECTIONS_MAX);
		clients[count++] = connect_one(stage);
	}
	return count;
}

static bool is_hung_up_on(int client)
{
	struct pollfd p = {.fd = client};
	return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) != 0;
}

/*
 * A worker that accepts no connections is killed, which may take long. Meanwhile the next
 * connection gets another worker.
 */
TEST(unresponsive_worker_is_replaced)
{
	struct scene stage;
	start(&stage, "socket end");
	await_habit(&stage);
	setenv(HABIT, "nothing", 1); /* habit of the next worker */
	int first = connect_one(&stage), second = connect_one(&stage);
	assert_true(is_hung_up_on(first));
	assert_false(is_hung_up_on(second));
	assert_int_equal(stage.manager.worker_count, 2);
	finish(&stage);
	close(first);
	close(second);
}

/*
 * A worker that has reported to be idle gets no more connections, and is killed if it does not
 * exit. Records that it sends later have no effect.
 */
TEST(idle_worker_is_replaced_and_must_exit)
{
	struct scene stage;
	const uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + UINT64_C(1000000) * PATIENCE_MS;
	start_with(&stage, "idle", false);
	await_habit(&stage);
	assert_few_events(&stage);
	setenv(HABIT, "nothing", 1); /* habit of the next worker */
	int client = connect_one(&stage);
	assert_int_equal(stage.manager.worker_count, 2);
	while (stage.manager.worker_count > 1) {
		const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
		assert_true(now_ns < until_ns);
		manager_on_time(&stage.manager, now_ns + UINT64_C(1000000) * PATIENCE_MS);
		run_events_once(&stage, 1);
	}
	assert_false(is_hung_up_on(client));
	finish(&stage);
	close(client);
}

/*
 * The end of a worker causes several events. Whichever is handled first, the next ones still find
 * the worker, and afterwards no event refers to it.
 */
TEST(worker_end_leaves_no_events)
{
	enum { WATCHED = 4 }; /* event sources: process, pipe, log and socket */
	for (unsigned first = 0; first < WATCHED; first++) {
		struct scene stage;
		struct epoll_event events[EVENTS_MAX];
		int clients[CONNECTIONS_MAX];
		start(&stage, "nothing");
		pid_t pid = await_habit(&stage);
		unsigned count = connect_many(&stage, clients);
		manager_kill_all(&stage.manager);
		await_end(pid);
		assert_int_equal(epoll_wait(stage.epoll_fd, events, EVENTS_MAX, 0), WATCHED);
		for (unsigned i = 0; i < WATCHED; i++) {
			struct epoll_event *event = &events[(first + i) % WATCHED];
			struct event_source *source = event->data.ptr;
			source->ready(source, event->events);
		}
		assert_int_equal(stage.manager.worker_count, 0);
		manager_on_time(&stage.manager, clock_ns(CLOCK_MONOTONIC));
		assert_int_equal(epoll_wait(stage.epoll_fd, events, EVENTS_MAX, 0), 0);
		finish(&stage);
		for (unsigned i = 0; i < count; i++)
			close(clients[i]);
	}
}

/* Evicted connections with unread replies use no more resources. */
TEST(unread_connections_are_evicted)
{
	enum { ALL = 4 };
	struct scene stage;
	int clients[2 * ALL];
	start(&stage, "nothing");
	stage.manager.connections_max = ALL;
	for (unsigned i = 0; i < 2 * ALL; i++) {
		clients[i] = connect_and_be_answered(&stage, geteuid() + i / ALL);
		assert_true(stage.manager.client_table.without_ring + stage.manager.unread.count <=
			    ALL);
	}
	assert_true(is_hung_up_on(clients[0]));
	assert_false(is_hung_up_on(clients[ALL - 1]));
	assert_false(is_hung_up_on(clients[ALL]));
	finish(&stage);
	for (unsigned i = 0; i < 2 * ALL; i++)
		close(clients[i]);
}

int main(int argc, char **argv)
{
	const struct rlimit descriptors = {DESCRIPTORS, DESCRIPTORS};
	if (argc > 1 && strcmp(argv[1], "--worker") == 0)
		be_worker(getenv(HABIT));
	/* With this limit few connections suffice to exhaust the fds. */
	if (setrlimit(RLIMIT_NOFILE, &descriptors) < 0)
		return EXIT_FAILURE;
	/* Freed memory is overwritten, to detect its use without a sanitizer too. */
	mallopt(M_PERTURB, 0xa5);
	return test_run(NULL, NULL);
}
