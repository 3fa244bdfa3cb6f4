#include "format/base/system/clock.h"
#include "loaderd/supervisor/crew_internal.h"

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

static size_t pack_error(struct crew *crew, uid_t uid, int code, const char *text,
			 uint8_t message[MESSAGE_MAX])
{
	if (log_allowed(&crew->refusal_log_ns))
		log_warning("user %u turned away: %s", (unsigned)uid, text);
	Loaderd__Error error = reply_error(code, text);
	const Loaderd__Reply reply = REPLY(ERROR, error, &error);
	return loaderd__reply__pack(&reply, message);
}

/* Connections of this user, those that have been closed and have unread replies included. */
static unsigned own_connections(const struct crew *crew, const struct crew_user *user)
{
	unsigned own = unread_count(&crew->unread, user->uid);
	for (const struct worker *worker = user->workers; worker; worker = worker->next)
		own += worker->guests.count + worker->waiting_count;
	return own;
}

/*
 * Those of this user that one for somebody else may replace: without a ring, or unread.
 * ret_largest: of its workers the one that has most without a ring.
 */
static unsigned loose_connections(const struct crew *crew, struct crew_user *user,
				  struct guests **ret_largest)
{
	unsigned loose = unread_held(&crew->unread, user->uid);
	struct guests *largest = NULL;
	for (struct worker *worker = user->workers; worker; worker = worker->next) {
		loose += worker->guests.ringless;
		if (!largest || worker->guests.ringless > largest->ringless)
			largest = &worker->guests;
	}
	*ret_largest = largest && largest->ringless > 0 ? largest : NULL;
	return loose;
}

/*
 * Descriptors must be left for rings and workers: whoever has most loose connections, and more than
 * this user, loses the oldest. False: nobody has.
 */
static bool crew_make_room(struct crew *crew, struct crew_user *user)
{
	struct guests *guests, *chosen_guests = NULL;
	const struct crew_user *chosen = NULL;
	/* What it has lost itself is still there, and counts. */
	unsigned most = loose_connections(crew, user, &guests) -
			unread_held(&crew->unread, user->uid) +
			unread_count(&crew->unread, user->uid);
	for (struct crew_user *other = crew->users; other; other = other->next) {
		const unsigned loose = loose_connections(crew, other, &guests);
		if (loose <= most)
			continue;
		most = loose;
		chosen = other;
		chosen_guests = guests;
	}
	uid_t uid;
	if (unread_most(&crew->unread, &uid) > most)
		return unread_drop(&crew->unread, uid);
	if (!chosen)
		return false;
	const unsigned before = crew_connections(crew);
	if (chosen_guests)
		guests_drop_oldest(chosen_guests);
	/* One whose replies are unread is kept, as unread, and has made no room. */
	return crew_connections(crew) < before || unread_drop(&crew->unread, chosen->uid);
}

static bool may_connect(struct crew *crew, struct crew_user *user)
{
	if (own_connections(crew, user) >= crew->connections_most)
		return false;
	return crew_connections(crew) < crew->connections_all || crew_make_room(crew, user);
}

/* What nobody reads is memory of the service's. */
static bool may_be_answered(const struct crew *crew, uid_t uid)
{
	return crew_connections(crew) < crew->connections_all &&
	       unread_count(&crew->unread, uid) < crew->connections_most;
}

void crew_turn_away(struct crew *crew, uid_t uid, int fd, int code, const char *format, ...)
{
	char text[TEXT_MAX];
	uint8_t message[MESSAGE_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	size_t size = pack_error(crew, uid, code, text, message);
	if (may_be_answered(crew, uid))
		(void)frame_send(fd, message, size, NULL, 0, 0);
	unread_add(&crew->unread, uid, fd, crew->arrivals_bring_descriptors);
}

int crew_worker_of(struct crew *crew, uid_t uid, struct worker **ret_worker)
{
	struct crew_user *user = crew_user_of(crew, uid);
	if (!user)
		return -EUSERS;
	int r = 0;
	if (!user->workers || user->workers->retired)
		r = crew_start_worker(crew, user);
	if (r < 0) {
		crew_forget_if_done(crew, user);
		return r;
	}
	*ret_worker = user->workers;
	return 0;
}

bool crew_is_short_of_descriptors(const struct crew *crew, int newest)
{
	return (unsigned)newest + DESCRIPTORS_SPARE > crew->descriptors_most;
}

int crew_start(struct crew *crew, uid_t uid)
{
	struct worker *worker;
	return crew_worker_of(crew, uid, &worker);
}

/*
 * One that has shut its end, or has not taken anything for long, serves its user no more: the next
 * connection gets another one.
 */
static void end_if_deaf(struct worker *worker, int result)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	char who[32];
	if (worker->retired)
		return;
	if (result == 0)
		worker->deaf_since_ns = 0;
	else if (result == -EAGAIN && worker->deaf_since_ns == 0)
		worker->deaf_since_ns = now_ns;
	if (result != -EPIPE &&
	    (result != -EAGAIN || now_ns - worker->deaf_since_ns <= DEAF_MS * MS_NS))
		return;
	crew_whose(worker, who);
	log_warning("%sthe worker (pid %d) takes no connections: it is ended", who,
		    (int)worker->pid);
	/* It may take long to end, where one of its threads hangs in storage. */
	worker->retired = true;
	kill(worker->pid, SIGKILL);
}

/*
 * Hands a connection over. 0: it is dealt with; -EAGAIN: the worker has no room for it now;
 * -ETOOMANYREFS: the kernel has not, for anybody's.
 */
static int hand_over(struct worker *worker, const struct arrival *arrival)
{
	const struct link_order order = {
		.kind = LINK_CLIENT, .client = arrival->id, .pid = (uint32_t)arrival->pid};
	const struct link_order drain = {.kind = LINK_DRAIN};
	int r = link_send(worker->socket, &order, &arrival->fd, 1);
	end_if_deaf(worker, r);
	if (r == -EAGAIN || r == -ETOOMANYREFS)
		return r;
	worker->clients += r == 0;
	if (r == 0 && worker->crew->draining && worker->clients == 1)
		(void)link_send(worker->socket, &drain, NULL, 0);
	/* With a worker that has gone, hanging up is the answer. */
	if (r == 0)
		guests_add(&worker->guests, arrival->id, arrival->fd);
	else
		unread_add(&worker->crew->unread, worker->user->uid, arrival->fd, true);
	return 0;
}

static void on_room(struct watched *watched, uint32_t events)
{
	struct worker *worker = OWNER_OF(worker, room, watched);
	struct crew *crew = worker->crew;
	unsigned done = 0;
	int r = 0;
	if (watched->fd < 0)
		return;
	while (done < worker->waiting_count && (r = hand_over(worker, &worker->waiting[done])) == 0)
		done++;
	worker->waiting_count -= done;
	crew->waiting_count -= done;
	memmove(worker->waiting, worker->waiting + done,
		worker->waiting_count * sizeof(*worker->waiting));
	if (r == -ETOOMANYREFS) {
		/* The socket has room all the time. */
		watched_remove(crew->epoll_fd, watched);
		crew->room_due_ns = clock_ns(CLOCK_MONOTONIC) + ROOM_AGAIN_NS;
	}
	if (worker->waiting_count > 0)
		return;
	watched_remove(crew->epoll_fd, watched);
	watched->fd = -1;
}

/*
 * A burst of connections may be more than the socket takes at once: the worker is given the time to
 * read.
 */
static bool queue_up(struct worker *worker, const struct arrival *arrival)
{
	/* It may also be the kernel that takes nothing, and then this worker is not to blame. */
	if (worker->deaf_since_ns != 0)
		end_if_deaf(worker, -EAGAIN);
	if (worker->waiting_count == worker->crew->arrivals_most ||
	    worker->crew->waiting_count >= worker->crew->waiting_most)
		return false;
	worker->crew->waiting_count++;
	worker->waiting[worker->waiting_count++] = *arrival;
	if (worker->room.fd >= 0)
		return true;
	worker->room = (struct watched){worker->socket, on_room};
	crew_look_for_room(worker);
	return true;
}

/* "N", or "unlimited". */
static const char *limit_text(__rlimit_resource_t resource, char text[24])
{
	struct rlimit limit;
	if (getrlimit(resource, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return "unlimited";
	snprintf(text, 24, "%llu", (unsigned long long)limit.rlim_cur);
	return text;
}

/*
 * Why there is no worker, by what starting one returned. Limits have a code, which is returned, at
 * which feeds that are opened again try for a while: each of them passes.
 */
static int explain(const struct crew *crew, int r, char text[TEXT_MAX])
{
	char limit[24];
	switch (r) {
	case -EUSERS:
		snprintf(text, TEXT_MAX,
			 "the service has as many users as it may, %llu ([limits] users); try "
			 "again when one of them has no feed any more",
			 (unsigned long long)crew->config->users);
		return EDQUOT;
	case -EDQUOT:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: this user's have ended so often that as many "
			 "have been started as may be, %d at once and then %d a second; try again "
			 "in a second",
			 STARTS_AT_ONCE, STARTS_PER_SECOND);
		return EDQUOT;
	case -EBUSY:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: %d of this user's have not ended yet, and one "
			 "may have no more; try again in some seconds",
			 WORKERS_PER_USER);
		return EDQUOT;
	case -EAGAIN:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: the system lets the service have no more "
			 "processes or threads; try again, or raise RLIMIT_NPROC of the service's "
			 "user, %s (ulimit -u, LimitNPROC=), TasksMax= of its unit, [users] "
			 "threads, RLIMIT_AS or RLIMIT_DATA (ulimit -v, -d), or "
			 "kernel.threads-max",
			 limit_text(RLIMIT_NPROC, limit));
		return EDQUOT;
	case -EMFILE:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: the service has no descriptors left for one; "
			 "try again, or raise its RLIMIT_NOFILE, %s (ulimit -n, LimitNOFILE=)",
			 limit_text(RLIMIT_NOFILE, limit));
		return EDQUOT;
	case -ENFILE:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: the system has no open files left (sysctl "
			 "fs.file-max), or no pipe buffers for the service's user "
			 "(fs.pipe-user-pages-hard); try again, or raise them");
		return EDQUOT;
	case -ENOMEM:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: there is not enough memory; RLIMIT_AS of the "
			 "service (ulimit -v, LimitAS=) is %s, and RLIMIT_DATA (ulimit -d), its "
			 "control group (MemoryMax=) or [users] memory may be too small",
			 limit_text(RLIMIT_AS, limit));
		return ENOMEM;
	case -EFBIG:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: RLIMIT_FSIZE of the service, %s bytes (ulimit "
			 "-f, LimitFSIZE=), is too small; make it unlimited",
			 limit_text(RLIMIT_FSIZE, limit));
		return EFBIG;
	case -WORKER_HAS_NO_GROUP:
		snprintf(text, TEXT_MAX,
			 "no worker can be started: it may not enter this user's control group; "
			 "the log of the service says why ([users] control_group)");
		return EPERM;
	default:
		snprintf(text, TEXT_MAX, "no worker can be started: %s", strerror(-r));
		return -r;
	}
}

static void refuse_worker(struct crew *crew, uid_t uid, int fd, int r)
{
	char text[TEXT_MAX];
	const int code = explain(crew, r, text);
	crew_turn_away(crew, uid, fd, code, "%s", text);
}

void crew_refuse_all(struct worker *worker, int r)
{
	struct crew *crew = worker->crew;
	char text[TEXT_MAX];
	uint8_t message[MESSAGE_MAX];
	if (worker->guests.count == 0 && worker->waiting_count == 0)
		return;
	const int code = explain(crew, r, text);
	const size_t size = pack_error(crew, worker->user->uid, code, text, message);
	guests_refuse(&worker->guests, message, size);
	/* They are hung up on with the worker. */
	for (unsigned i = 0; i < worker->waiting_count; i++)
		(void)frame_send(worker->waiting[i].fd, message, size, NULL, 0, 0);
}

/* There is a worker, but no room for one more connection to it. */
static void refuse_connection(const struct worker *worker, int fd)
{
	struct crew *crew = worker->crew;
	const uid_t uid = worker->user->uid;
	if (own_connections(crew, worker->user) < crew->connections_most &&
	    worker->waiting_count < crew->arrivals_most)
		crew_turn_away(crew, uid, fd, EDQUOT,
			       "the service has few descriptors left for connections, and "
			       "this user has as many as others; connect again, or raise "
			       "LimitNOFILE= of the "
			       "service (ulimit -n)");
	else
		crew_turn_away(
			crew, uid, fd, EDQUOT,
			"this user has as many connections as one may, %llu, and more that wait "
			"or whose replies it has not read ([limits] connections_per_user)",
			(unsigned long long)crew->config->connections_per_user);
}

void crew_connection(struct crew *crew, uid_t uid, pid_t pid, int fd)
{
	const struct arrival arrival = {++crew->client_id, fd, pid};
	struct worker *worker;
	int r = crew_worker_of(crew, uid, &worker);
	if (r < 0)
		refuse_worker(crew, uid, fd, r);
	else if (!may_connect(crew, worker->user) ||
		 ((worker->waiting_count > 0 || hand_over(worker, &arrival) < 0) &&
		  !queue_up(worker, &arrival)))
		refuse_connection(worker, fd);
}

void crew_look_for_room(struct worker *worker)
{
	if (!crew_look_again(worker->crew, &worker->room, EPOLLOUT))
		worker->crew->room_due_ns = clock_ns(CLOCK_MONOTONIC) + ROOM_AGAIN_NS;
}
