#include "loaderd/supervisor/crew_internal.h"

#include "loaderd/log.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

void crew_whose(const struct worker *worker, char who[32])
{
	who[0] = '\0';
	if (!worker->crew->for_one)
		snprintf(who, 32, "user %u: ", (unsigned)worker->user->uid);
}

void crew_relay_line(struct worker *worker)
{
	char who[32];
	crew_whose(worker, who);
	worker->line[worker->line_size] = '\0';
	log_relay(who, worker->line);
	worker->line_size = 0;
	worker->log_left -= worker->log_left < LOG_LINE_COST ? worker->log_left : LOG_LINE_COST;
}

/*
 * Takes no more in a second than somebody could read: the rest waits in the pipe, and what does not
 * fit there the worker does not get rid of.
 */
void crew_on_log(struct watched *watched, uint32_t events)
{
	struct worker *worker = WATCHED_IN(worker, log, watched);
	char bytes[LOG_BYTES_PER_TURN];
	size_t room = worker->log_left < sizeof(bytes) ? worker->log_left : sizeof(bytes);
	if (room == 0) {
		watched_remove(worker->crew->epoll_fd, watched);
		return;
	}
	ssize_t n = read(watched->fd, bytes, room);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		crew_unwatch(worker->crew, watched);
		return;
	}
	worker->log_left -= n > 0 ? (size_t)n : 0;
	for (ssize_t i = 0; i < n; i++) {
		if (bytes[i] != '\n')
			worker->line[worker->line_size++] = bytes[i] == '\0' ? '?' : bytes[i];
		if (bytes[i] == '\n' || worker->line_size == sizeof(worker->line) - 1)
			crew_relay_line(worker);
	}
}

void crew_renew_allowances(struct crew *crew)
{
	for (struct crew_user *user = crew->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next) {
			if (worker->log_left > 0 || crew_look_again(crew, &worker->log, EPOLLIN))
				worker->log_left = LOG_BYTES_PER_SECOND;
			if (worker->records_left > 0 ||
			    crew_look_again(crew, &worker->pipe, EPOLLIN))
				worker->records_left = RECORDS_PER_SECOND;
		}
}

bool crew_any_allowance_used(const struct crew *crew)
{
	for (const struct crew_user *user = crew->users; user; user = user->next)
		for (const struct worker *worker = user->workers; worker; worker = worker->next)
			if (worker->log_left < LOG_BYTES_PER_SECOND ||
			    worker->records_left < RECORDS_PER_SECOND)
				return true;
	return false;
}
