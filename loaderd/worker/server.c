#include "format/base/system/clock.h"
#include "loaderd/worker/server_internal.h"

#include "loaderd/cpus.h"
#include "loaderd/io/sigbus_guard.h"
#include "loaderd/log.h"
#include "loaderd/reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
	ORDERS_PER_TURN = 16,
	ASYNC_JOBS_AT_ONCE = 2,
	PAGE_EVERY_S = 1,
	WATCH_EVERY_MS = 250,
	RINGS_RESERVED = 16, /* maximum of concurrent feeds in IO_URING mode */
	BAD_LINES_PER_SECOND = 20,
};
#define SECOND_NS UINT64_C(1000000000)

static void server_begin_drain(struct server *server)
{
	if (server->phase != SERVER_RUNNING)
		return;
	log_info("stopping: %u feed%s up to %llu ms to take finished batches", server->feed_count,
		 server->feed_count == 1 ? " gets" : "s get",
		 (unsigned long long)server->config->grace_ms);
	server->phase = SERVER_DRAINING;
	server->drain_deadline_ns = clock_ns(CLOCK_MONOTONIC) + server->config->grace_ms * 1000000;
	for (struct session *session = server->sessions; session; session = session->next)
		if (session->feed_state == SESSION_FEED_SERVED &&
		    batcher_drain(session->feed->batcher, RING_REASON_STOPPING))
			send_queue_doorbell(&session->send_queue);
}

static void on_jobs_done(struct event_source *source, uint32_t events)
{
	async_jobs_finish(CONTAINER_OF(server, jobs_done, source)->jobs);
}

static void on_pool(struct event_source *source, uint32_t events)
{
	struct server *server = CONTAINER_OF(server, pool_quiet, source);
	uint64_t count;
	ssize_t n = read(source->fd, &count, sizeof(count));
	(void)n;
	struct batcher *batcher;
	while ((batcher = pool_reap(server->pool)))
		session_released(batcher->options.doorbell_user);
}

/* Ends the current one-second window and logs how many lines were suppressed in it. */
static void close_bad_window(struct server *server)
{
	if (server->bad_log_count > BAD_LINES_PER_SECOND)
		log_warning(
			"%llu more samples could not be used; loaderctl status lists the latest",
			(unsigned long long)(server->bad_log_count - BAD_LINES_PER_SECOND));
	server->bad_log_count = 0;
	server->bad_log_end_ns = 0;
}

/* Logs one line per damaged sample, and at most BAD_LINES_PER_SECOND. */
static void on_bad_samples(struct event_source *source, uint32_t events)
{
	struct server *server = CONTAINER_OF(server, bad_samples, source);
	struct registry_bad bad;
	uint64_t count, lost;
	ssize_t n = read(source->fd, &count, sizeof(count));
	(void)n;
	while (registry_next_bad(&server->registry, &bad, &lost)) {
		if (server->bad_log_end_ns == 0)
			server->bad_log_end_ns = clock_ns(CLOCK_MONOTONIC) + SECOND_NS;
		server->bad_log_count += 1 + lost;
		if (server->bad_log_count <= BAD_LINES_PER_SECOND)
			log_warning("%s: %s%s%s%s", bad.dataset, bad.text,
				    bad.source[0] != '\0' ? " (made from " : "", bad.source,
				    bad.source[0] != '\0' ? ")" : "");
	}
}

void server_copy_config(struct server *server, struct config *ret_config)
{
	pthread_mutex_lock(&server->config_lock);
	*ret_config = *server->config;
	pthread_mutex_unlock(&server->config_lock);
}

static void set_key(struct server *server, const struct ipc_order *order)
{
	pthread_mutex_lock(&server->config_lock);
	config_put(server->config, (unsigned)order->key, order->value);
	pthread_mutex_unlock(&server->config_lock);
	log_set_level((enum log_level)server->config->log_level);
}

static void server_on_order(struct server *server, const struct ipc_order *order,
			    int fds[IPC_FDS_MAX])
{
	const struct ipc_record lost = {.kind = IPC_LOST, .client = order->client};
	switch (order->kind) {
	case IPC_CLIENT:
		server->clients++;
		/*
		 * Report the loss: the supervisor keeps an fd of the connection, so the client
		 * would wait forever.
		 */
		if (fds[0] < 0)
			(void)ipc_report(IPC_PIPE_FD, &lost);
		else
			session_new(server, fds[0], (pid_t)order->pid, order->client);
		fds[0] = -1;
		break;
	case IPC_RING:
	case IPC_RING_SENT:
		ring_allocator_answer(&server->ring_allocator, order, fds);
		fds[0] = fds[1] = -1;
		break;
	case IPC_DRAIN:
		server_begin_drain(server);
		break;
	case IPC_POISON:
		if (order->sample == IPC_WHOLE_DATASET)
			registry_ban(&server->registry, order->uuid, order->faults, order->seconds);
		else
			registry_poison(&server->registry, order->uuid, order->sample);
		break;
	case IPC_RETIRE:
		server->phase = SERVER_DONE;
		break;
	case IPC_SET:
		set_key(server, order);
		break;
	}
	for (unsigned i = 0; i < IPC_FDS_MAX; i++)
		if (fds[i] >= 0)
			async_jobs_close(server->jobs, fds[i]);
}

static void on_ipc(struct event_source *source, uint32_t events)
{
	struct server *server = CONTAINER_OF(server, ipc, source);
	for (unsigned i = 0; i < ORDERS_PER_TURN; i++) {
		struct ipc_order order;
		int fds[IPC_FDS_MAX];
		int r = ipc_receive(source->fd, &order, fds);
		if (r == -EAGAIN)
			return;
		if (r < 0) {
			/* The supervisor is gone, and without it nothing can be served. */
			event_source_remove(server->epoll_fd, source);
			server->phase = SERVER_ABANDONED;
			return;
		}
		server_on_order(server, &order, fds);
	}
}

static void free_dead_sessions(struct server *server)
{
	while (server->dead_sessions) {
		struct session *session = server->dead_sessions;
		server->dead_sessions = session->next_dead;
		session_free(session);
	}
}

static unsigned thread_count(const struct config *config, const struct cpus *cpus)
{
	return config->threads != 0 ? (unsigned)config->threads : cpus->quota;
}

static int start_threads(struct server *server, struct config_error *error)
{
	struct cpus cpus;
	int r = config_cpus(server->config, &cpus, error);
	if (r < 0)
		return r;
	r = pool_new(thread_count(server->config, &cpus), &cpus, &server->pool);
	if (r == 0) {
		pool_limit_decode_memory(server->pool, server->config->decode_bytes);
		r = async_jobs_new(ASYNC_JOBS_AT_ONCE, &server->jobs);
	}
	if (r < 0)
		config_say(error, "cannot start the worker's threads: %s", strerror(-r));
	return r;
}

static int server_watch_all(struct server *server)
{
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (server->epoll_fd < 0)
		return -errno;
	server->ipc = (struct event_source){IPC_SOCKET_FD, on_ipc};
	server->jobs_done = (struct event_source){async_jobs_fd(server->jobs), on_jobs_done};
	server->pool_quiet = (struct event_source){pool_fd(server->pool), on_pool};
	server->bad_samples = (struct event_source){server->registry.event_fd, on_bad_samples};
	struct event_source *const sources[] = {&server->ipc, &server->jobs_done,
						&server->pool_quiet, &server->bad_samples};
	int r = 0;
	for (unsigned i = 0; r == 0 && i < sizeof(sources) / sizeof(*sources); i++)
		r = event_source_add(server->epoll_fd, sources[i], EPOLLIN);
	return r;
}

static int map_page(struct server *server)
{
	void *page =
		mmap(NULL, STATUS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, IPC_PAGE_FD, 0);
	if (page == MAP_FAILED)
		return -errno;
	server->page = page;
	return 0;
}

static void reserve_rings(const struct config *config)
{
	if (config->io == CONFIG_IO_MMAP)
		return;
	int r = io_reserve(RINGS_RESERVED, (unsigned)config->queue_depth);
	if (r < 0 && config->io == CONFIG_IO_URING)
		log_warning("[io] mode = uring: io_uring is not available (%s), so feeds use mmap; "
			    "a container's system call filter, kernel.io_uring_disabled or "
			    "RLIMIT_MEMLOCK may forbid it",
			    strerror(-r));
}

/* Opens and starts all that the server needs. server_free() undoes it, half made or whole. */
static int server_start(struct server *server, struct config_error *error)
{
	reserve_rings(server->config);
	int r = sigbus_guard_install();
	if (r < 0)
		return r;
	r = start_threads(server, error);
	if (r < 0)
		return r;
	r = map_page(server);
	if (r < 0)
		return config_fail(error, r, "cannot map the status page: %s", strerror(-r));
	r = crash_marker_install(&server->page->crash);
	if (r < 0)
		return config_fail(error, r, "cannot handle crashes: %s", strerror(-r));
	r = server_watch_all(server);
	if (r < 0)
		return config_fail(error, r, "cannot watch descriptors: %s", strerror(-r));
	return 0;
}

int server_new(struct config *config, uid_t uid, struct server **ret_server,
	       struct config_error *error)
{
	struct server *server = calloc(1, sizeof(*server));
	if (!server)
		return -ENOMEM;
	server->config = config;
	pthread_mutex_init(&server->config_lock, NULL);
	server->uid = uid;
	server->epoll_fd = -1;
	struct rlimit descriptors;
	if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0)
		server->fds_max = descriptors.rlim_cur;
	server->start_ns = server->idle_since_ns = clock_ns(CLOCK_MONOTONIC);
	ring_allocator_init(&server->ring_allocator, IPC_PIPE_FD);
	int r = registry_init(&server->registry);
	if (r < 0) {
		free(server);
		return r;
	}
	r = server_start(server, error);
	if (r < 0) {
		server_free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

unsigned server_threads_max(const struct server *server)
{
	enum { CONTROL = 1 };
	/* pool_thread_indices() includes the threads that replace those blocked in storage. */
	/* Each feed has a thread for read-ahead, and may have a watcher (filling.h). */
	return CONTROL + pool_thread_indices(server->pool) + ASYNC_JOBS_THREADS_MAX +
	       2 * (unsigned)server->config->feeds_per_user;
}

void server_free(struct server *server)
{
	if (!server)
		return;
	pool_free(server->pool);
	async_jobs_free(server->jobs);
	if (server->page)
		munmap(server->page, STATUS_PAGE_SIZE);
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	registry_deinit(&server->registry);
	ring_allocator_deinit(&server->ring_allocator);
	free(server);
}

static uint64_t server_due_ns(const struct server *server)
{
	uint64_t next_ns = UINT64_MAX;
	if (server->session_count > 0)
		next_ns = server->page_due_ns;
	else if (server->activity == SERVER_IDLE)
		next_ns = server->idle_since_ns + server->config->idle_ms * 1000000;
	if (server->feed_count > 1)
		next_ns = MIN(next_ns, server->watch_due_ns);
	next_ns = MIN(next_ns, async_jobs_due_ns(server->jobs));
	if (server->phase == SERVER_DRAINING)
		next_ns = MIN(next_ns, server->drain_deadline_ns);
	if (server->bad_log_end_ns != 0)
		next_ns = MIN(next_ns, server->bad_log_end_ns);
	return next_ns;
}

/*
 * Reports once that there have been no connections for idle_ms. The report carries the number of
 * connections received, so that the supervisor ignores it if it has sent another one meanwhile.
 */
static void watch_idleness(struct server *server, uint64_t now_ns)
{
	const struct ipc_record idle = {.kind = IPC_IDLE, .count = server->clients};
	if (server->session_count > 0) {
		server->activity = SERVER_BUSY;
		return;
	}
	if (server->activity == SERVER_BUSY) {
		server->activity = SERVER_IDLE;
		server->page_due_ns = now_ns; /* publish a status page without feeds */
		server->idle_since_ns = now_ns;
	}
	if (server->activity != SERVER_IDLE ||
	    now_ns < server->idle_since_ns + server->config->idle_ms * 1000000)
		return;
	server->activity = SERVER_IDLE_REPORTED;
	(void)ipc_report(IPC_PIPE_FD, &idle);
}

static void server_on_time(struct server *server, uint64_t now_ns)
{
	watch_idleness(server, now_ns);
	if (now_ns >= async_jobs_due_ns(server->jobs))
		async_jobs_replace_blocked(server->jobs, now_ns);
	/* A stuck feed matters only if it can delay another. */
	if (server->feed_count > 1 && now_ns >= server->watch_due_ns) {
		pool_replace_blocked(server->pool);
		server->watch_due_ns = now_ns + WATCH_EVERY_MS * (SECOND_NS / 1000);
	}
	if (now_ns >= server->page_due_ns) {
		status_publish(server);
		for (struct session *next, *session = server->sessions; session; session = next) {
			next = session->next;
			opening_tell_progress(session);
		}
		server->page_due_ns = now_ns + PAGE_EVERY_S * SECOND_NS;
	}
	if (server->bad_log_end_ns != 0 && now_ns >= server->bad_log_end_ns)
		close_bad_window(server);
	if (server->phase == SERVER_DRAINING &&
	    (server->feed_count == 0 || now_ns >= server->drain_deadline_ns))
		server->phase = SERVER_DONE;
}

static int server_turn(struct server *server)
{
	int r = event_loop_run_once(server->epoll_fd, server_due_ns(server));
	if (r < 0)
		return r;
	free_dead_sessions(server);
	server_on_time(server, clock_ns(CLOCK_MONOTONIC));
	return 0;
}

/* Closes all sessions and waits until they are freed. */
static void close_all(struct server *server)
{
	Loaderd__ShuttingDown shutting_down = LOADERD__SHUTTING_DOWN__INIT;
	const Loaderd__Reply reply = REPLY(SHUTTING_DOWN, shutting_down, &shutting_down);
	for (struct session *s = server->sessions, *next; s && server->phase != SERVER_ABANDONED;
	     s = next) {
		next = s->next;
		if (!opening_blocks_requests(s))
			session_reply(s, &reply);
	}
	for (struct session *s = server->sessions, *next; s; s = next) {
		next = s->next;
		session_close(s, "the daemon is shutting down");
	}
	while (server->sessions && server_turn(server) == 0)
		;
	free_dead_sessions(server);
}

int server_run(struct server *server)
{
	const struct ipc_record ready = {.kind = IPC_READY};
	int r = 0;
	(void)ipc_report(IPC_PIPE_FD, &ready);
	while (r == 0 && server->phase < SERVER_DONE)
		r = server_turn(server);
	close_all(server);
	return r;
}
