#include "format/base/system/clock.h"
#include "loaderd/supervisor/worker_manager_internal.h"

#include "loaderd/log.h"
#include "loaderd/reply.h"
#include "proto/framing.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MESSAGE_MAX = 768, TEXT_MAX = 512 };

static size_t pack_error(struct worker_manager *manager, uid_t uid, int code, const char *text,
			 uint8_t message[MESSAGE_MAX])
{
	if (log_allowed(&manager->refusal_log_ns))
		log_warning("user %u rejected: %s", (unsigned)uid, text);
	Loaderd__Error error = reply_error(code, text);
	const Loaderd__Reply reply = REPLY(ERROR, error, &error);
	return loaderd__reply__pack(&reply, message);
}

/* Returns the number of this user's connections, including closed ones with unread replies. */
static unsigned count_connections(const struct worker_manager *manager, const struct user *user)
{
	unsigned own = unread_count(&manager->unread, user->uid);
	for (const struct worker *worker = user->workers; worker; worker = worker->next)
		own += worker->clients.count + worker->pending_count;
	return own;
}

/*
 * Returns the number of this user's connections that may be evicted: without a ring, or closed with
 * unread replies. *ret_largest: the worker with the most connections without a ring, or NULL.
 */
static unsigned loose_connections(const struct worker_manager *manager, struct user *user,
				  struct clients **ret_largest)
{
	unsigned loose = unread_open(&manager->unread, user->uid);
	struct clients *largest = NULL;
	for (struct worker *worker = user->workers; worker; worker = worker->next) {
		loose += worker->clients.without_ring;
		if (!largest || worker->clients.without_ring > largest->without_ring)
			largest = &worker->clients;
	}
	*ret_largest = largest && largest->without_ring > 0 ? largest : NULL;
	return loose;
}

/*
 * Keeps fds free for rings and workers. Evicts the oldest loose connection of the user that has the
 * most of them (without a ring, or closed with unread replies), if it has more than `user`. Returns
 * false if none was evicted.
 */
static bool manager_evict_connection(struct worker_manager *manager, struct user *user)
{
	struct clients *clients, *chosen_clients = NULL;
	const struct user *chosen = NULL;
	/* Include this user's evicted connections: their replies may still be unread. */
	unsigned most = loose_connections(manager, user, &clients) -
			unread_open(&manager->unread, user->uid) +
			unread_count(&manager->unread, user->uid);
	for (struct user *other = manager->users; other; other = other->next) {
		const unsigned loose = loose_connections(manager, other, &clients);
		if (loose <= most)
			continue;
		most = loose;
		chosen = other;
		chosen_clients = clients;
	}
	uid_t uid;
	if (unread_largest(&manager->unread, &uid) > most)
		return unread_evict(&manager->unread, uid);
	if (!chosen)
		return false;
	const unsigned before = manager_loose_connections(manager);
	if (chosen_clients)
		clients_evict_oldest(chosen_clients);
	/*
	 * A closed connection with unread replies moves to `unread` and frees no fd: evict it from
	 * there.
	 */
	return manager_loose_connections(manager) < before ||
	       unread_evict(&manager->unread, chosen->uid);
}

static bool may_connect(struct worker_manager *manager, struct user *user)
{
	if (count_connections(manager, user) >= manager->connections_per_user_max)
		return false;
	return manager_loose_connections(manager) < manager->connections_max ||
	       manager_evict_connection(manager, user);
}

/*
 * Returns whether an Error may be sent. An unread one uses the service's memory, so it counts
 * against the limits of unread replies.
 */
static bool may_be_answered(const struct worker_manager *manager, uid_t uid)
{
	return manager_loose_connections(manager) < manager->connections_max &&
	       unread_count(&manager->unread, uid) < manager->connections_per_user_max;
}

void manager_reject(struct worker_manager *manager, uid_t uid, int fd, int code, const char *format,
		    ...)
{
	char text[TEXT_MAX];
	uint8_t message[MESSAGE_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	size_t size = pack_error(manager, uid, code, text, message);
	if (may_be_answered(manager, uid))
		(void)frame_send(fd, message, size, NULL, 0, 0);
	unread_add(&manager->unread, uid, fd, manager->clients_may_pass_fds);
}

int manager_get_worker(struct worker_manager *manager, uid_t uid, struct worker **ret_worker)
{
	struct user *user = manager_get_user(manager, uid);
	if (!user)
		return -EUSERS;
	int r = 0;
	if (!user->workers || !worker_takes_connections(user->workers))
		r = manager_start_worker(manager, user);
	if (r < 0) {
		manager_forget_user_if_idle(manager, user);
		return r;
	}
	*ret_worker = user->workers;
	return 0;
}

bool manager_is_short_of_fds(const struct worker_manager *manager, int newest)
{
	return (unsigned)newest + FDS_SPARE > manager->fds_max;
}

int manager_prestart(struct worker_manager *manager, uid_t uid)
{
	struct worker *worker;
	return manager_get_worker(manager, uid, &worker);
}

/*
 * Kills a worker that has shut its end of the socket or left it full for UNRESPONSIVE_MS; the next
 * connection starts another one. result: of ipc_send().
 */
static void kill_if_unresponsive(struct worker *worker, int result)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	char who[32];
	if (result == 0)
		worker->socket_full_since_ns = 0;
	else if (result == -EAGAIN && worker->socket_full_since_ns == 0)
		worker->socket_full_since_ns = now_ns;
	const bool is_full_long = result == -EAGAIN &&
				  now_ns - worker->socket_full_since_ns > UNRESPONSIVE_MS * MS_NS;
	if (!worker_takes_connections(worker) || (result != -EPIPE && !is_full_long))
		return;
	manager_log_prefix(worker, who);
	log_warning("%sthe worker (pid %d) does not accept connections: killing it", who,
		    (int)worker->pid);
	worker_on(worker, WORKER_UNRESPONSIVE);
}

/*
 * Passes a connection to the worker. Returns 0 if it was passed or closed, -EAGAIN if the worker's
 * socket is full, -ETOOMANYREFS if too many fds of the service are in flight.
 */
static int pass_connection(struct worker *worker, const struct pending_connection *pending)
{
	const struct ipc_order order = {
		.kind = IPC_CLIENT, .client = pending->id, .pid = (uint32_t)pending->pid};
	const struct ipc_order drain = {.kind = IPC_DRAIN};
	int r = ipc_send(worker->socket.fd, &order, &pending->fd, 1);
	kill_if_unresponsive(worker, r);
	if (r == -EAGAIN || r == -ETOOMANYREFS)
		return r;
	worker->connections_passed += r == 0;
	if (r == 0 && worker->manager->draining && worker->connections_passed == 1)
		(void)ipc_send(worker->socket.fd, &drain, NULL, 0);
	/* If the worker is gone, hanging up is the answer. */
	if (r == 0)
		clients_add(&worker->clients, pending->id, pending->fd);
	else
		unread_add(&worker->manager->unread, worker->user->uid, pending->fd, true);
	return 0;
}

void manager_on_writable(struct event_source *source, uint32_t events)
{
	struct worker *worker = CONTAINER_OF(worker, socket, source);
	struct worker_manager *manager = worker->manager;
	unsigned done = 0;
	int r = 0;
	if (worker->state == WORKER_GONE)
		return;
	while (done < worker->pending_count &&
	       (r = pass_connection(worker, &worker->pending[done])) == 0)
		done++;
	worker->pending_count -= done;
	manager->pending_count -= done;
	memmove(worker->pending, worker->pending + done,
		worker->pending_count * sizeof(*worker->pending));
	if (r == -ETOOMANYREFS) {
		/* The socket stays writable: epoll would spin. */
		event_source_remove(manager->epoll_fd, source);
		manager->retry_pending_ns = clock_ns(CLOCK_MONOTONIC) + PENDING_RETRY_NS;
	}
	if (worker->pending_count == 0)
		event_source_remove(manager->epoll_fd, source);
}

/*
 * Queues a connection, as a burst may exceed what the socket holds. Returns false if the queue is
 * full.
 */
static bool queue_connection(struct worker *worker, const struct pending_connection *pending)
{
	/*
	 * ETOOMANYREFS comes from the kernel's limit, not from the worker: blame the worker only if
	 * its socket was full before.
	 */
	if (worker->socket_full_since_ns != 0)
		kill_if_unresponsive(worker, -EAGAIN);
	if (worker->pending_count == worker->manager->pending_per_worker_max ||
	    worker->manager->pending_count >= worker->manager->pending_max)
		return false;
	worker->manager->pending_count++;
	worker->pending[worker->pending_count++] = *pending;
	if (worker->pending_count == 1)
		manager_wait_until_writable(worker);
	return true;
}

/* Returns a resource limit as "N" or "unlimited". */
static const char *limit_text(__rlimit_resource_t resource, char text[24])
{
	struct rlimit limit;
	if (getrlimit(resource, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return "unlimited";
	snprintf(text, 24, "%llu", (unsigned long long)limit.rlim_cur);
	return text;
}

/*
 * Explains why a worker could not be started. r: error of manager_get_worker(). Returns the errno
 * for the client. Temporary limits map to EDQUOT, for which libfeed retries when it reopens a feed.
 */
static int explain(const struct worker_manager *manager, int r, char text[TEXT_MAX])
{
	char limit[24];
	switch (r) {
	case -EUSERS:
		snprintf(text, TEXT_MAX,
			 "the service already has %llu users, its limit ([limits] users); try "
			 "again when one of them has closed its feeds",
			 (unsigned long long)manager->config->users);
		return EDQUOT;
	case -EDQUOT:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: this user's workers have exited too often (the "
			 "limit is %d starts at once, then %d per second); try again in a second",
			 STARTS_AT_ONCE, STARTS_PER_SECOND);
		return EDQUOT;
	case -EBUSY:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: %d of this user's workers are still exiting, "
			 "which is the limit; try again in a few seconds",
			 WORKERS_PER_USER);
		return EDQUOT;
	case -EAGAIN:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: the system allows the service no more processes "
			 "or threads; try again, or raise RLIMIT_NPROC of the service's user, %s "
			 "(ulimit -u, LimitNPROC=), TasksMax= of its unit, [users] threads, "
			 "RLIMIT_AS or RLIMIT_DATA (ulimit -v, -d), or kernel.threads-max",
			 limit_text(RLIMIT_NPROC, limit));
		return EDQUOT;
	case -EMFILE:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: the service has no file descriptors left for one; "
			 "try again, or raise its RLIMIT_NOFILE, %s (ulimit -n, LimitNOFILE=)",
			 limit_text(RLIMIT_NOFILE, limit));
		return EDQUOT;
	case -ENFILE:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: the system has no free open files (sysctl "
			 "fs.file-max), or no pipe buffers for the service's user "
			 "(fs.pipe-user-pages-hard); try again, or raise these limits");
		return EDQUOT;
	case -ENOMEM:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: out of memory; RLIMIT_AS of the service (ulimit "
			 "-v, LimitAS=) is %s, and RLIMIT_DATA (ulimit -d), its control group "
			 "(MemoryMax=) or [users] memory may be too small",
			 limit_text(RLIMIT_AS, limit));
		return ENOMEM;
	case -EFBIG:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: RLIMIT_FSIZE of the service, %s bytes (ulimit -f, "
			 "LimitFSIZE=), is too small; make it unlimited",
			 limit_text(RLIMIT_FSIZE, limit));
		return EFBIG;
	case -WORKER_HAS_NO_GROUP:
		snprintf(text, TEXT_MAX,
			 "cannot start a worker: it may not enter this user's control group; the "
			 "service's log gives the reason ([users] control_group)");
		return EPERM;
	default:
		snprintf(text, TEXT_MAX, "cannot start a worker: %s", strerror(-r));
		return -r;
	}
}

static void refuse_worker(struct worker_manager *manager, uid_t uid, int fd, int r)
{
	char text[TEXT_MAX];
	const int code = explain(manager, r, text);
	manager_reject(manager, uid, fd, code, "%s", text);
}

void manager_refuse_pending(struct worker *worker, int r)
{
	struct worker_manager *manager = worker->manager;
	char text[TEXT_MAX];
	uint8_t message[MESSAGE_MAX];
	if (worker->clients.count == 0 && worker->pending_count == 0)
		return;
	const int code = explain(manager, r, text);
	const size_t size = pack_error(manager, worker->user->uid, code, text, message);
	clients_refuse_all(&worker->clients, message, size);
	/* The connections are closed together with the worker. */
	for (unsigned i = 0; i < worker->pending_count; i++)
		(void)frame_send(worker->pending[i].fd, message, size, NULL, 0, 0);
}

/* Refuses a connection that exceeds a limit of connections. */
static void refuse_connection(const struct worker *worker, int fd)
{
	struct worker_manager *manager = worker->manager;
	const uid_t uid = worker->user->uid;
	if (count_connections(manager, worker->user) < manager->connections_per_user_max &&
	    worker->pending_count < manager->pending_per_worker_max)
		manager_reject(manager, uid, fd, EDQUOT,
			       "the service is short of descriptors for connections, and no other "
			       "user has more of them than this one; connect again, or raise "
			       "LimitNOFILE= of the service (ulimit -n)");
	else
		manager_reject(
			manager, uid, fd, EDQUOT,
			"this user has reached the limit of %llu connections, and has others that "
			"are queued or have unread replies ([limits] connections_per_user)",
			(unsigned long long)manager->config->connections_per_user);
}

void manager_add_connection(struct worker_manager *manager, uid_t uid, pid_t pid, int fd)
{
	const struct pending_connection pending = {++manager->client_id, fd, pid};
	struct worker *worker;
	int r = manager_get_worker(manager, uid, &worker);
	if (r < 0) {
		refuse_worker(manager, uid, fd, r);
		return;
	}
	if (!may_connect(manager, worker->user)) {
		refuse_connection(worker, fd);
		return;
	}
	/* Connections that are queued come first. */
	if (worker->pending_count == 0 && pass_connection(worker, &pending) == 0)
		return;
	if (!queue_connection(worker, &pending))
		refuse_connection(worker, fd);
}

void manager_wait_until_writable(struct worker *worker)
{
	if (worker->pending_count > 0 &&
	    !manager_rewatch(worker->manager, &worker->socket, EPOLLOUT))
		worker->manager->retry_pending_ns = clock_ns(CLOCK_MONOTONIC) + PENDING_RETRY_NS;
}
