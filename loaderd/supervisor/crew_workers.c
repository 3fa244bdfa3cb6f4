#include "format/base/system/clock.h"
#include "loaderd/supervisor/crew_internal.h"

#include "format/base/copy_once.h"
#include "loaderd/log.h"
#include "loaderd/supervisor/outfit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void crew_whose(const struct worker *worker, char who[32])
{
	who[0] = '\0';
	if (!worker->crew->for_one)
		snprintf(who, 32, "user %u: ", (unsigned)worker->user->uid);
}

static void crew_relay_line(struct worker *worker)
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
static void crew_on_log(struct watched *watched, uint32_t events)
{
	struct worker *worker = OWNER_OF(worker, log, watched);
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

void crew_dismiss(struct worker *worker)
{
	struct crew *crew = worker->crew;
	struct worker **at = &worker->user->workers;
	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	crew_unwatch(crew, &worker->end);
	crew_unwatch(crew, &worker->pipe);
	crew_unwatch(crew, &worker->log);
	if (worker->room.fd >= 0)
		watched_remove(crew->epoll_fd, &worker->room);
	worker->room.fd = -1;
	for (unsigned i = 0; i < worker->waiting_count; i++)
		unread_add(&crew->unread, worker->user->uid, worker->waiting[i].fd, true);
	crew->waiting_count -= worker->waiting_count;
	worker->waiting_count = 0;
	guests_deinit(&worker->guests);
	if (worker->socket >= 0)
		closer_close(crew->closer, worker->user->uid, worker->socket);
	if (worker->page)
		munmap(worker->page, LINK_PAGE_SIZE);
	crew->worker_count--;
	/* Events that were met together may still name it. */
	worker->next = crew->dead;
	crew->dead = worker;
}

/* Counts one more fault of it. One that was last an hour ago begins anew. */
static const struct suspect *suspects_note(struct suspects *suspects, const uint8_t uuid[16],
					   uint64_t sample, uint64_t now_ns)
{
	struct suspect *oldest = suspects->all;
	struct suspect *end = suspects->all + suspects->count, *at = suspects->all;
	for (; at < end && (at->sample != sample || memcmp(at->uuid, uuid, 16) != 0); at++)
		if (at->last_ns < oldest->last_ns)
			oldest = at;
	if (at == end) {
		if (suspects->count == SUSPECTS_MAX)
			at = oldest;
		else
			suspects->count++;
		*at = (struct suspect){.sample = sample};
		memcpy(at->uuid, uuid, sizeof(at->uuid));
	}
	if (now_ns - at->last_ns > REMEMBER_S * SECOND_NS)
		at->faults = 0;
	at->faults++;
	at->last_ns = now_ns;
	return at;
}

/*
 * The worker's word, which can be of harm to its own user's samples alone. A sample alone does not
 * suffice: in a large file of somebody who wants to do harm as many may fault as there are, and
 * each ends all feeds of the user. A file that changes its UUID each time is not recognised; what
 * bounds how often it ends workers is check_start().
 */
static void blame_sample(struct worker *worker, const char *who)
{
	struct crew_user *user = worker->user;
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct blame blame;
	copy_once(&blame, &worker->page->blame, sizeof(blame));
	if (blame.noted != 2 || blame.sample == LINK_WHOLE_DATASET)
		return;
	unsigned faults = suspects_note(&user->samples, blame.uuid, blame.sample, now_ns)->faults;
	unsigned all =
		suspects_note(&user->datasets, blame.uuid, LINK_WHOLE_DATASET, now_ns)->faults;
	user->remember_until_ns = now_ns + REMEMBER_S * SECOND_NS;
	log_warning("%sit was decoding sample %llu%s%s", who, (unsigned long long)blame.sample,
		    faults == FAULTS_MOST ? ", and not for the first time: that is bad from now on"
					  : "",
		    all == DATASET_FAULTS_MOST ? "; samples of its dataset have ended as many "
						 "workers as may be: the dataset is refused for "
						 "an hour"
					       : "");
}

static void warn_of(const struct worker *worker, const struct suspects *suspects,
		    unsigned faults_most)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < suspects->count; i++) {
		const struct suspect *suspect = &suspects->all[i];
		const uint64_t until_ns = suspect->last_ns + REMEMBER_S * SECOND_NS;
		struct link_order order = {
			.kind = LINK_POISON, .sample = suspect->sample, .faults = suspect->faults};
		if (suspect->faults < faults_most || until_ns <= now_ns)
			continue;
		order.seconds = (uint32_t)((until_ns - now_ns) / SECOND_NS) + 1;
		memcpy(order.uuid, suspect->uuid, sizeof(order.uuid));
		(void)link_send(worker->socket, &order, NULL, 0);
	}
}

/* Before the first client. */
static void warn_of_poison(const struct worker *worker)
{
	warn_of(worker, &worker->user->datasets, DATASET_FAULTS_MOST);
	warn_of(worker, &worker->user->samples, FAULTS_MOST);
}

static void on_end(struct watched *watched, uint32_t events)
{
	struct worker *worker = OWNER_OF(worker, end, watched);
	struct crew_user *user = worker->user;
	struct crew *crew = worker->crew;
	char who[32];
	int status;
	if (waitpid(worker->pid, &status, WNOHANG) != worker->pid)
		return;
	crew_whose(worker, who);
	/* What it said last may be the reason. */
	worker->log_left = LOG_BYTES_PER_SECOND;
	for (int i = 0; worker->log.fd >= 0 && i < LAST_LOG_TURNS; i++)
		crew_on_log(&worker->log, EPOLLIN);
	if (worker->line_size > 0)
		crew_relay_line(worker);
	if (WIFSIGNALED(status))
		log_warning("%sthe worker (pid %d) was ended by signal %d; its clients open their "
			    "feeds again",
			    who, (int)worker->pid, WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		log_warning("%sthe worker (pid %d) ended with status %d", who, (int)worker->pid,
			    WEXITSTATUS(status));
	if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0)
		blame_sample(worker, who);
	/* It has read nothing that could have taken it over: its status is an errno. */
	if (!worker->ready && WIFEXITED(status) && WEXITSTATUS(status) != 0)
		crew_refuse_all(worker, -WEXITSTATUS(status));
	ledger_done(&crew->ledger, worker->id, 0);
	crew_dismiss(worker);
	crew->sweep_due_ns = 0;
	crew_forget_if_done(crew, user);
}

static void make_ring(struct worker *worker, const struct link_record *record)
{
	struct link_order order = {.kind = LINK_RING, .feed = record->feed};
	struct crew *crew = worker->crew;
	int fds[LINK_FDS_MAX];
	struct crew_user *user = worker->user;
	int code = ledger_make(&crew->ledger, &user->account, user->uid, worker->id, record, &order,
			       fds);
	if (code == EDQUOT && order.limit != LINK_LIMIT_NONE && crew_sweep(crew, NULL)) {
		/*
		 * What was held until a moment ago may be free now. A worker that is told otherwise
		 * asks again for a while.
		 */
		order = (struct link_order){.kind = LINK_RING, .feed = record->feed};
		code = ledger_make(&crew->ledger, &user->account, user->uid, worker->id, record,
				   &order, fds);
	}
	int r = link_send(worker->socket, &order, fds, code == 0 ? LINK_FDS_MAX : 0);
	if (code != 0)
		return;
	for (unsigned i = 0; i < LINK_FDS_MAX; i++)
		close(fds[i]);
	if (r == 0)
		return;
	/* It does not know of the ring, and could not give it back. */
	ledger_done(&crew->ledger, worker->id, record->feed);
	order.code = -r;
	(void)link_send(worker->socket, &order, NULL, 0);
}

static void send_ring(struct worker *worker, const struct link_record *record)
{
	struct link_order order = {.kind = LINK_RING_SENT, .feed = record->feed, .code = ENOENT};
	int fds[LINK_FDS_MAX];
	if (ledger_take_fds(&worker->crew->ledger, worker->id, record->feed, fds)) {
		order.code = guests_send_ring(&worker->guests, record->client, record->feed, fds);
		close(fds[0]);
		close(fds[1]);
	}
	(void)link_send(worker->socket, &order, NULL, 0);
}

static void retire_if_idle(struct worker *worker, uint64_t clients)
{
	const struct link_order order = {.kind = LINK_RETIRE};
	/* In a private daemon the next client should find it warm. */
	if (worker->crew->for_one || clients != worker->clients || worker->waiting_count > 0)
		return;
	if (worker->retired)
		return;
	worker->retired = true;
	worker->end_due_ns = clock_ns(CLOCK_MONOTONIC) + RETIRE_MS * MS_NS;
	worker->crew->sweep_due_ns = 0;
	(void)link_send(worker->socket, &order, NULL, 0);
}

static void on_records(struct watched *watched, uint32_t events)
{
	struct worker *worker = OWNER_OF(worker, pipe, watched);
	for (unsigned i = 0; i < RECORDS_PER_TURN; i++) {
		struct link_record record;
		if (worker->records_left == 0) {
			watched_remove(worker->crew->epoll_fd, watched);
			return;
		}
		ssize_t n = read(watched->fd, &record, sizeof(record));
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			crew_unwatch(worker->crew, watched);
		/* Parts of one count as well: reading them takes as long. */
		worker->records_left -= n > 0;
		/*
		 * Written whole by a worker that is itself; what else comes is read as what it then
		 * is.
		 */
		if (n != sizeof(record))
			return;
		switch (record.kind) {
		case LINK_READY:
			worker->ready = true;
			break;
		case LINK_WANT_RING:
			make_ring(worker, &record);
			break;
		case LINK_SEND_RING:
			send_ring(worker, &record);
			break;
		case LINK_RING_DONE:
			/* Feed 0 would be all of them. */
			if (record.feed == 0)
				break;
			ledger_done(&worker->crew->ledger, worker->id, record.feed);
			guests_ring_done(&worker->guests, record.feed);
			worker->crew->sweep_due_ns = 0;
			break;
		case LINK_IDLE:
			retire_if_idle(worker, record.count);
			break;
		case LINK_LOST:
			guests_hang_up(&worker->guests, record.client);
			break;
		default:
			break;
		}
	}
}

/* Whatever becomes of it, the worker has its ends. */
static int crew_take_over(struct worker *worker, struct outfit *outfit)
{
	struct crew *crew = worker->crew;
	worker->socket = outfit->socket.ours;
	int r = crew_watch(crew, &worker->pipe, outfit->pipe.ours, on_records);
	int log_r = crew_watch(crew, &worker->log, outfit->log.ours, crew_on_log);
	outfit->socket.ours = outfit->pipe.ours = outfit->log.ours = -1;
	return r < 0 ? r : log_r;
}

/* A process is what costs: an attempt that ends before there is one owes nothing. */
static void charge_start(struct crew_user *user)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (user->start_debt_ns < now_ns)
		user->start_debt_ns = now_ns;
	user->start_debt_ns += START_COST_NS;
}

/* Fails closed: a worker outside of its user's group would have no limits. */
static int crew_group_of(struct crew *crew, uid_t uid, const int *nice)
{
	int r = groups_make(&crew->groups, uid, nice);
	if (r >= 0)
		return r;
	if (log_allowed(&crew->refusal_log_ns))
		log_warning(
			"user %u: the control group user-%u cannot be made or given its limits: "
			"%s ([users] control_group, memory, threads)",
			(unsigned)uid, (unsigned)uid, strerror(-r));
	return -WORKER_HAS_NO_GROUP;
}

static int crew_launch(struct worker *worker, struct outfit *outfit)
{
	struct crew *crew = worker->crew;
	const uid_t uid = worker->user->uid;
	int value;
	const int *nice = config_nice(crew->config, uid, &value) ? &value : NULL;
	int group_fd = -1, r = crew_take_over(worker, outfit);
	if (r == 0 && groups_given(&crew->groups))
		r = group_fd = crew_group_of(crew, uid, nice);
	if (r < 0)
		return r;
	const struct outfit_options options = {
		.uid = uid,
		.private_only = crew->for_one,
		.nice = crew->groups.weights ? NULL : nice,
		.config_fd = crew->config_fd,
		.group_fd = group_fd,
	};
	r = outfit_spawn(outfit, &options, &worker->pid);
	if (group_fd >= 0)
		close(group_fd);
	if (r < 0)
		return r;
	charge_start(worker->user);
	int pidfd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
	r = pidfd < 0 ? -errno : crew_watch(crew, &worker->end, pidfd, on_end);
	if (r == 0)
		return 0;
	kill(worker->pid, SIGKILL);
	waitpid(worker->pid, NULL, 0);
	return r;
}

/*
 * A worker that ends as soon as it is started must not keep the machine busy with starting it, nor
 * may those that do not end become many: what SIGKILL does not end counts against its user. 0, or
 * -EBUSY: too many are on their way out; -EDQUOT: too many have been started.
 */
static int check_start(const struct crew_user *user)
{
	unsigned count = 0;
	for (const struct worker *worker = user->workers; worker; worker = worker->next)
		count++;
	if (count >= WORKERS_PER_USER)
		return -EBUSY;
	return user->start_debt_ns >
			       clock_ns(CLOCK_MONOTONIC) + (STARTS_AT_ONCE - 1) * START_COST_NS
		       ? -EDQUOT
		       : 0;
}

int crew_start_worker(struct crew *crew, struct crew_user *user)
{
	int r = check_start(user);
	if (r < 0)
		return r;
	struct worker *worker = calloc(1, sizeof(*worker));
	struct outfit outfit;
	if (!worker)
		return -ENOMEM;
	*worker = (struct worker){
		.end.fd = -1,
		.pipe.fd = -1,
		.log.fd = -1,
		.room.fd = -1,
		.socket = -1,
		.crew = crew,
		.user = user,
		.next = user->workers,
		.id = ++crew->worker_id,
		.log_left = LOG_BYTES_PER_SECOND,
		.records_left = RECORDS_PER_SECOND,
		.guests = {.uid = user->uid, .house = &crew->house},
	};
	user->workers = worker;
	crew->worker_count++;
	r = outfit_init(&outfit, crew->arrivals_most, &worker->page);
	/* Those who are here already need some for rings, and connections to come. */
	const unsigned connections = crew_connections(crew);
	if (r == 0 &&
	    (unsigned)outfit.log.ours +
			    (crew->connections_all - MIN(connections, crew->connections_all)) +
			    (crew->waiting_most - crew->waiting_count) + DESCRIPTORS_SPARE >
		    crew->descriptors_most)
		r = -EMFILE;
	if (r == 0)
		r = crew_launch(worker, &outfit);
	outfit_deinit(&outfit);
	if (r < 0)
		crew_dismiss(worker);
	else
		warn_of_poison(worker);
	return r;
}

void crew_end_worker(struct worker *worker)
{
	kill(worker->pid, SIGKILL);
}

/* A retired worker ends at once, unless it is not itself any more. */
bool crew_end_retired(const struct crew *crew, uint64_t now_ns)
{
	bool waits = false;
	for (struct crew_user *user = crew->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next) {
			if (worker->end_due_ns == 0)
				continue;
			waits |= worker->end_due_ns > now_ns;
			if (worker->end_due_ns > now_ns)
				continue;
			worker->end_due_ns = 0;
			crew_end_worker(worker);
		}
	return waits;
}
