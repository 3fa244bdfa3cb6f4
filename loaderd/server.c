#include "server_internal.h"

#include "guard.h"
#include "log.h"
#include "memory.h"
#include "notify.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	EVENTS_PER_TURN = 64,
	ACCEPTS_PER_TURN = 16,
	CHORE_THREADS = 2,
	PARENT_SIGNAL =
		SIGUSR1, /* sent by the kernel when the thread that started a private daemon ends */
	BAD_LINES_PER_SECOND = 20,
	REFUSALS_PER_SECOND = 5,
	REFUSALS_AT_ONCE = 20,
};
#define SECOND_NS UINT64_C(1000000000)

uint64_t server_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

int server_watch(struct server *server, struct source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};
	return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) < 0 ? -errno : 0;
}

bool server_may_log_refusal(struct server *server)
{
	/* Each line costs its share of a second; the account may be overdrawn by REFUSALS_AT_ONCE of them. */
	const uint64_t cost_ns = SECOND_NS / REFUSALS_PER_SECOND;
	uint64_t now_ns = server_now_ns();
	if (server->refusal_log_ns < now_ns)
		server->refusal_log_ns = now_ns;
	if (server->refusal_log_ns - now_ns >= REFUSALS_AT_ONCE * cost_ns)
		return false;
	server->refusal_log_ns += cost_ns;
	return true;
}

#define SERVER_OF(source, member)                                                                  \
	((struct server *)((char *)(source)-offsetof(struct server, member)))

static void stop_accepting(struct server *server)
{
	if (!server->accepting)
		return;
	server->accepting = false;
	for (unsigned i = 0; i < server->listener_count; i++)
		epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, server->listeners[i].source.fd, NULL);
}

static void begin_drain(struct server *server)
{
	if (server->phase != SERVER_RUNNING) {
		log_info("told to stop again: stopping now");
		server->phase = SERVER_DONE;
		return;
	}
	notify_stopping();
	log_info("stopping: %u feed%s up to %llu ms to take what is finished",
		 server->feed_count, server->feed_count == 1 ? " gets" : "s get", (unsigned long long)server->config->grace_ms);
	server->phase = SERVER_DRAINING;
	server->drain_deadline_ns = server_now_ns() + server->config->grace_ms * 1000000;
	/* Others go on connecting: they may ask for the status, and are told why there is no feed. */
	if (server->activated)
		stop_accepting(server);
	for (struct session *session = server->sessions; session != NULL; session = session->next)
		if (session->in_pool && batcher_drain(session->feed->batcher, RING_REASON_STOPPING))
			outbox_ring(&session->outbox);
}

static void on_signal(struct source *source, uint32_t events)
{
	struct server *server = SERVER_OF(source, signals);
	struct signalfd_siginfo info;
	while (read(source->fd, &info, sizeof info) == sizeof info) {
		if (info.ssi_signo != PARENT_SIGNAL) {
			begin_drain(server);
		} else if (server->parent != 0 && getppid() != server->parent) {
			/* It also comes when only the thread that started us has ended; then the process is still our parent. */
			log_info("the parent has ended: stopping");
			server->phase = SERVER_DONE;
		}
	}
}

static void on_chores(struct source *source, uint32_t events)
{
	chores_finish(SERVER_OF(source, chores_done)->chores);
}

static void on_pool(struct source *source, uint32_t events)
{
	struct server *server = SERVER_OF(source, pool_quiet);
	uint64_t count;
	ssize_t n = read(source->fd, &count, sizeof count);
	(void)n;
	struct batcher *batcher;
	while ((batcher = pool_reap(server->pool)) != NULL)
		session_released(batcher->options.doorbell_user);
}

/* Ends the second in which lines were counted, and says how many were left out. */
static void close_bad_window(struct server *server)
{
	if (server->bad_log_count > BAD_LINES_PER_SECOND)
		log_warning(
			"%llu more samples could not be used; loaderctl status lists the latest",
			(unsigned long long)(server->bad_log_count - BAD_LINES_PER_SECOND));
	server->bad_log_count = 0;
	server->bad_log_end_ns = 0;
}

/* One line per damaged sample, and no more per second than a person could read. */
static void on_bad_news(struct source *source, uint32_t events)
{
	struct server *server = SERVER_OF(source, bad_news);
	struct registry_bad bad;
	uint64_t count, lost;
	ssize_t n = read(source->fd, &count, sizeof count);
	(void)n;
	while (registry_next_bad(&server->registry, &bad, &lost)) {
		if (server->bad_log_end_ns == 0)
			server->bad_log_end_ns = server_now_ns() + SECOND_NS;
		server->bad_log_count += 1 + lost;
		if (server->bad_log_count <= BAD_LINES_PER_SECOND)
			log_warning("%s: %s%s%s%s", bad.dataset, bad.text,
				    bad.source[0] != '\0' ? " (made from " : "", bad.source,
				    bad.source[0] != '\0' ? ")" : "");
	}
}

static void on_lifeline(struct source *source, uint32_t events)
{
	struct server *server = SERVER_OF(source, lifeline);
	char byte;
	ssize_t n = read(source->fd, &byte, 1);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	/* A closed pipe stays readable while feeds are being closed. */
	epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	log_info("the client that started this daemon has gone: stopping");
	server->phase = SERVER_DONE;
}

static void on_connection(struct source *source, uint32_t events)
{
	struct server *server = ((struct listener *)source)->server;
	for (unsigned i = 0; i < ACCEPTS_PER_TURN && server->accepting; i++) {
		int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			session_new(server, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE) {
			/* Level-triggered epoll would spin: look away until a session ends. */
			log_warning("out of file descriptors: no new connections until one ends");
			stop_accepting(server);
		}
		return;
	}
}

static void resume_accepting(struct server *server)
{
	if (server->accepting || server->phase == SERVER_DONE ||
	    (server->phase == SERVER_DRAINING && server->activated))
		return;
	server->accepting = true;
	for (unsigned i = 0; i < server->listener_count; i++)
		server_watch(server, &server->listeners[i].source, EPOLLIN);
}

static void free_dead_sessions(struct server *server)
{
	bool any = server->dead_sessions != NULL;
	while (server->dead_sessions != NULL) {
		struct session *session = server->dead_sessions;
		server->dead_sessions = session->next_dead;
		close(session->source.fd);
		frame_reader_deinit(&session->reader);
		outbox_deinit(&session->outbox);
		free(session);
	}
	if (any)
		resume_accepting(server);
}

static int new_signal_fd(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, PARENT_SIGNAL);
	int r = -pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (r < 0)
		return r;
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static unsigned thread_count(const struct config *config, const struct cpus *cpus)
{
	return config->threads != 0 ? (unsigned)config->threads : cpus->quota;
}

static int start_workers(struct server *server, struct config_error *error)
{
	struct cpus cpus;
	int r = cpus_init(&cpus, server->config->cpus);
	if (r < 0) {
		snprintf(error->text, sizeof error->text,
			 r == -ENODEV ? "[pool] cpus = %.200s: this process may use none of them"
				      : "[pool] cpus = %.200s: expected a list such as 0-3,8",
			 server->config->cpus);
		return r;
	}
	r = pool_new(thread_count(server->config, &cpus), &cpus, &server->pool);
	if (r == 0)
		r = chores_new(CHORE_THREADS, &server->chores);
	if (r < 0)
		snprintf(error->text, sizeof error->text, "cannot start worker threads: %s",
			 strerror(-r));
	return r;
}

static int watch_all(struct server *server, const struct server_options *options)
{
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (server->epoll_fd < 0)
		return -errno;
	int signal_fd = new_signal_fd();
	if (signal_fd < 0)
		return signal_fd;
	server->signals = (struct source){signal_fd, on_signal};
	server->chores_done = (struct source){chores_fd(server->chores), on_chores};
	server->pool_quiet = (struct source){pool_fd(server->pool), on_pool};
	server->bad_news = (struct source){server->registry.event_fd, on_bad_news};
	server->lifeline = (struct source){options->lifeline_fd, on_lifeline};
	int r = server_watch(server, &server->signals, EPOLLIN);
	if (r == 0)
		r = server_watch(server, &server->chores_done, EPOLLIN);
	if (r == 0)
		r = server_watch(server, &server->pool_quiet, EPOLLIN);
	if (r == 0)
		r = server_watch(server, &server->bad_news, EPOLLIN);
	if (r == 0 && options->lifeline_fd >= 0)
		r = server_watch(server, &server->lifeline, EPOLLIN | EPOLLRDHUP);
	return r;
}

static int watch_listeners(struct server *server, const struct server_options *options)
{
	server->listeners = calloc(options->listen_count, sizeof *server->listeners);
	if (server->listeners == NULL && options->listen_count > 0)
		return -ENOMEM;
	for (unsigned i = 0; i < options->listen_count; i++)
		server->listeners[i] = (struct listener){
			.source = {options->listen_fds[i], on_connection},
			.server = server,
		};
	for (unsigned i = 0; i < options->listen_count; i++) {
		int r = server_watch(server, &server->listeners[i].source, EPOLLIN);
		if (r < 0)
			return r;
	}
	server->listener_count = options->listen_count;
	server->accepting = true;
	return 0;
}

int server_new(const struct server_options *options, struct server **ret_server,
	       struct config_error *error)
{
	struct server *server = calloc(1, sizeof *server);
	if (server == NULL)
		return -ENOMEM;
	server->config = options->config;
	server->private_only = options->private_only;
	server->activated = options->activated;
	server->epoll_fd = server->signals.fd = -1;
	server->start_ns = server_now_ns();
	server->account.limit = options->config->shared_memory != 0 ? options->config->shared_memory
								    : memory_available() / 2;
	pthread_mutex_init(&server->account.mutex, NULL);
	int r = registry_init(&server->registry);
	if (r < 0) {
		free(server);
		return r;
	}
	r = guard_install();
	if (r == 0)
		r = start_workers(server, error);
	if (r == 0) {
		r = watch_all(server, options);
		if (r == 0)
			r = watch_listeners(server, options);
		if (r < 0)
			snprintf(error->text, sizeof error->text, "cannot watch descriptors: %s",
				 strerror(-r));
	}
	if (r < 0) {
		server_free(server);
		return r;
	}
	if (options->lifeline_fd >= 0) {
		server->parent = getppid();
		prctl(PR_SET_PDEATHSIG, PARENT_SIGNAL);
	}
	server->watchdog_ns = notify_watchdog_ns() / 2;
	*ret_server = server;
	return 0;
}

void server_free(struct server *server)
{
	if (server == NULL)
		return;
	pool_free(server->pool);
	chores_free(server->chores);
	for (unsigned i = 0; i < server->listener_count; i++)
		close(server->listeners[i].source.fd);
	free(server->listeners);
	if (server->signals.fd >= 0)
		close(server->signals.fd);
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	registry_deinit(&server->registry);
	pthread_mutex_destroy(&server->account.mutex);
	free(server);
}

void server_stop(struct server *server)
{
	kill(getpid(), SIGTERM);
}

static int timeout_ms(struct server *server, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;
	if (server->watchdog_ns != 0)
		next_ns = server->watchdog_next_ns;
	if (server->phase == SERVER_DRAINING && server->drain_deadline_ns < next_ns)
		next_ns = server->drain_deadline_ns;
	if (server->bad_log_end_ns != 0 && server->bad_log_end_ns < next_ns)
		next_ns = server->bad_log_end_ns;
	if (next_ns == UINT64_MAX)
		return -1;
	return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / 1000000 + 1);
}

static void on_time(struct server *server, uint64_t now_ns)
{
	if (server->watchdog_ns != 0 && now_ns >= server->watchdog_next_ns) {
		notify_watchdog();
		server->watchdog_next_ns = now_ns + server->watchdog_ns;
	}
	if (server->bad_log_end_ns != 0 && now_ns >= server->bad_log_end_ns)
		close_bad_window(server);
	if (server->phase == SERVER_DRAINING &&
	    (server->feed_count == 0 || now_ns >= server->drain_deadline_ns))
		server->phase = SERVER_DONE;
}

static int turn(struct server *server)
{
	struct epoll_event events[EVENTS_PER_TURN];
	int count = epoll_wait(server->epoll_fd, events, EVENTS_PER_TURN,
			       timeout_ms(server, server_now_ns()));
	if (count < 0 && errno != EINTR)
		return -errno;
	for (int i = 0; i < count; i++) {
		struct source *source = events[i].data.ptr;
		source->ready(source, events[i].events);
	}
	free_dead_sessions(server);
	on_time(server, server_now_ns());
	return 0;
}

/* Every session goes, and everything it had with it. */
static void close_all(struct server *server)
{
	Loaderd__ShuttingDown shutting_down = LOADERD__SHUTTING_DOWN__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	reply.kind_case = LOADERD__REPLY__KIND_SHUTTING_DOWN;
	reply.shutting_down = &shutting_down;
	stop_accepting(server);
	for (struct session *s = server->sessions, *next; s != NULL; s = next) {
		next = s->next;
		session_reply(s, &reply);
	}
	for (struct session *s = server->sessions, *next; s != NULL; s = next) {
		next = s->next;
		session_close(s, "the daemon is shutting down");
	}
	while (server->sessions != NULL && turn(server) == 0)
		;
	free_dead_sessions(server);
}

int server_run(struct server *server)
{
	int r = 0;
	log_info("ready: %u worker threads, %llu MiB of shared memory at most",
		 pool_workers(server->pool), (unsigned long long)(server->account.limit >> 20));
	notify_ready();
	while (r == 0 && server->phase != SERVER_DONE)
		r = turn(server);
	close_all(server);
	log_info("stopped");
	return r;
}
