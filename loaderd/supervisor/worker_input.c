#include "format/base/system/clock.h"
#include "loaderd/supervisor/worker_manager_internal.h"

#include "loaderd/log.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

void manager_log_prefix(const struct worker *worker, char who[32])
{
	who[0] = '\0';
	if (!worker->manager->single_user)
		snprintf(who, 32, "user %u: ", (unsigned)worker->user->uid);
}

static void manager_relay_log_line(struct worker *worker)
{
	char who[32];
	manager_log_prefix(worker, who);
	worker->line[worker->line_size] = '\0';
	log_relay(who, worker->line);
	worker->line_size = 0;
	worker->log_left -= worker->log_left < LOG_LINE_COST ? worker->log_left : LOG_LINE_COST;
}

/*
 * Relays log lines up to LOG_BYTES_PER_SECOND. The rest stays in the pipe, and the worker drops
 * lines that do not fit there.
 */
void manager_on_log(struct event_source *source, uint32_t events)
{
	struct worker *worker = CONTAINER_OF(worker, log, source);
	if (worker->state == WORKER_GONE)
		return;
	char bytes[LOG_BYTES_PER_TURN];
	size_t room = worker->log_left < sizeof(bytes) ? worker->log_left : sizeof(bytes);
	if (room == 0) {
		event_source_remove(worker->manager->epoll_fd, source);
		return;
	}
	ssize_t n = read(source->fd, bytes, room);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		manager_unwatch(worker->manager, source);
		return;
	}
	worker->log_left -= n > 0 ? (size_t)n : 0;
	for (ssize_t i = 0; i < n; i++) {
		if (bytes[i] != '\n')
			worker->line[worker->line_size++] = bytes[i] == '\0' ? '?' : bytes[i];
		if (bytes[i] == '\n' || worker->line_size == sizeof(worker->line) - 1)
			manager_relay_log_line(worker);
	}
}

void manager_drain_log(struct worker *worker)
{
	worker->log_left = LOG_BYTES_PER_SECOND;
	for (int i = 0; worker->log.fd >= 0 && i < LAST_LOG_TURNS; i++)
		manager_on_log(&worker->log, EPOLLIN);
	if (worker->line_size > 0)
		manager_relay_log_line(worker);
}

void manager_renew_allowances(struct worker_manager *manager)
{
	for (struct user *user = manager->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next) {
			if (worker->log_left > 0 || manager_rewatch(manager, &worker->log, EPOLLIN))
				worker->log_left = LOG_BYTES_PER_SECOND;
			if (worker->records_left > 0 ||
			    manager_rewatch(manager, &worker->pipe, EPOLLIN))
				worker->records_left = RECORDS_PER_SECOND;
		}
}

bool manager_any_allowance_used(const struct worker_manager *manager)
{
	for (const struct user *user = manager->users; user; user = user->next)
		for (const struct worker *worker = user->workers; worker; worker = worker->next)
			if (worker->log_left < LOG_BYTES_PER_SECOND ||
			    worker->records_left < RECORDS_PER_SECOND)
				return true;
	return false;
}

static void make_ring(struct worker *worker, const struct ipc_record *record)
{
	struct ipc_order order = {.kind = IPC_RING, .feed = record->feed};
	struct worker_manager *manager = worker->manager;
	int fds[IPC_FDS_MAX];
	struct user *user = worker->user;
	int code = ring_quota_allocate(&manager->ring_quota, &user->ring_usage, user->uid,
				       worker->id, record, &order, fds);
	if (code == EDQUOT && order.limit != IPC_LIMIT_NONE && manager_sweep(manager, NULL)) {
		/*
		 * Memory held a moment ago may be free now. A worker that is refused retries for a
		 * while.
		 */
		order = (struct ipc_order){.kind = IPC_RING, .feed = record->feed};
		code = ring_quota_allocate(&manager->ring_quota, &user->ring_usage, user->uid,
					   worker->id, record, &order, fds);
	}
	int r = ipc_send(worker->socket.fd, &order, fds, code == 0 ? IPC_FDS_MAX : 0);
	if (code != 0)
		return;
	for (unsigned i = 0; i < IPC_FDS_MAX; i++)
		close(fds[i]);
	if (r == 0)
		return;
	/* The worker does not know of the ring and cannot release it. */
	ring_quota_release(&manager->ring_quota, worker->id, record->feed);
	order.code = -r;
	(void)ipc_send(worker->socket.fd, &order, NULL, 0);
}

static void send_ring(struct worker *worker, const struct ipc_record *record)
{
	struct ipc_order order = {.kind = IPC_RING_SENT, .feed = record->feed, .code = ENOENT};
	int fds[IPC_FDS_MAX];
	if (ring_quota_take_fds(&worker->manager->ring_quota, worker->id, record->feed, fds)) {
		order.code = clients_send_ring(&worker->clients, record->client, record->feed, fds);
		close(fds[0]);
		close(fds[1]);
	}
	(void)ipc_send(worker->socket.fd, &order, NULL, 0);
}

static void retire_if_idle(struct worker *worker, uint64_t clients)
{
	/* A private daemon keeps its worker warm for the next client. */
	if (!worker->manager->single_user && clients == worker->connections_passed &&
	    worker->pending_count == 0)
		worker_on(worker, WORKER_IDLE);
}

void manager_on_records(struct event_source *source, uint32_t events)
{
	struct worker *worker = CONTAINER_OF(worker, pipe, source);
	if (worker->state == WORKER_GONE)
		return;
	for (unsigned i = 0; i < RECORDS_PER_TURN; i++) {
		struct ipc_record record;
		if (worker->records_left == 0) {
			event_source_remove(worker->manager->epoll_fd, source);
			return;
		}
		ssize_t n = read(source->fd, &record, sizeof(record));
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			manager_unwatch(worker->manager, source);
		/* Partial records count too: they take as long to read. */
		worker->records_left -= n > 0;
		/*
		 * A worker that is not compromised writes whole records. A partial one is ignored;
		 * later reads may then be misaligned.
		 */
		if (n != sizeof(record))
			return;
		switch (record.kind) {
		case IPC_READY:
			worker_on(worker, WORKER_READY);
			break;
		case IPC_WANT_RING:
			make_ring(worker, &record);
			break;
		case IPC_SEND_RING:
			send_ring(worker, &record);
			break;
		case IPC_RING_DONE:
			/* Feed 0 would mean all feeds. */
			if (record.feed == 0)
				break;
			ring_quota_release(&worker->manager->ring_quota, worker->id, record.feed);
			clients_ring_done(&worker->clients, record.feed);
			worker->manager->sweep_due_ns = 0;
			break;
		case IPC_IDLE:
			retire_if_idle(worker, record.count);
			break;
		case IPC_LOST:
			clients_disconnect(&worker->clients, record.client);
			break;
		default:
			break;
		}
	}
}
