#include "loaderd/supervisor/crew.h"

#include "format/base/copy_once.h"
#include "loaderd/log.h"
#include "loaderd/supervisor/crew_internal.h"
#include "loaderd/supervisor/outfit.h"
#include "proto/feed.pb-c.h"
#include "proto/framing.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t clock_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* Of connections that wait, of all users. */
unsigned crew_waiting_most(unsigned descriptors)
{
	unsigned most = descriptors / ARRIVALS_SHARE;
	return most < ARRIVALS_LEAST ? ARRIVALS_LEAST : most;
}

/*
 * The kernel counts descriptors on their way by user, and the service is one: none may have all
 * because its worker does not take them.
 */
unsigned crew_arrivals_most(unsigned descriptors)
{
	unsigned most = crew_waiting_most(descriptors);
	return most > ARRIVALS_MAX ? ARRIVALS_MAX : most;
}

int crew_init(struct crew *crew, const struct config *config, struct closer *closer, int epoll_fd,
	      uint64_t memory, bool for_one)
{
	uint64_t per_user = config->shared_memory_per_user;
	struct rlimit descriptors = {.rlim_cur = INT32_MAX};
	if (per_user == 0)
		per_user = for_one ? memory : memory / 2;
	getrlimit(RLIMIT_NOFILE, &descriptors);
	unsigned descriptors_most =
		(unsigned)(descriptors.rlim_cur < INT32_MAX ? descriptors.rlim_cur : INT32_MAX);
	*crew = (struct crew){
		.config = config,
		.house = {.epoll_fd = epoll_fd,
			  .closer = closer,
			  .most = descriptors_most / GUESTS_SHARE},
		.descriptors_most = descriptors_most,
		.groups.fd = -1,
		.arrivals_most = crew_arrivals_most(descriptors_most),
		.waiting_most = crew_waiting_most(descriptors_most),
		.closer = closer,
		.epoll_fd = epoll_fd,
		.for_one = for_one,
		.ledger = {.most = memory,
			   .most_per_user = per_user,
			   /* Rings outlive their feeds where clients hold on to batches. */
			   .rings_per_user = 4 * (unsigned)config->feeds_per_user,
			   .closer = closer},
	};
	crew->config_fd = outfit_config(config);
	return crew->config_fd < 0 ? crew->config_fd : 0;
}

/* Has nothing and owes nothing: a debt that was forgotten with the worker would be no limit. */
static bool is_away(const struct crew_user *user, uint64_t now_ns)
{
	return !user->workers && user->account.rings == 0 && now_ns >= user->start_debt_ns;
}

static void forget_user(struct crew *crew, struct crew_user *user)
{
	for (struct crew_user **at = &crew->users; *at; at = &(*at)->next) {
		if (*at != user)
			continue;
		*at = user->next;
		break;
	}
	crew->user_count--;
	if (groups_given(&crew->groups))
		groups_remove(&crew->groups, user->uid);
	free(user);
}

void crew_forget_if_done(struct crew *crew, struct crew_user *user)
{
	uint64_t now_ns = clock_now_ns();
	if (is_away(user, now_ns) && now_ns >= user->remember_until_ns)
		forget_user(crew, user);
}

/* Out of the set altogether: hang-up is told of all that is in it, whatever was asked for. */
void crew_look_away(const struct crew *crew, const struct watched *watched)
{
	epoll_ctl(crew->epoll_fd, EPOLL_CTL_DEL, watched->fd, NULL);
}

/* False: the kernel has no memory for it now. */
bool crew_look_again(const struct crew *crew, struct watched *watched, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watched};
	return watched->fd < 0 ||
	       epoll_ctl(crew->epoll_fd, EPOLL_CTL_ADD, watched->fd, &event) == 0 ||
	       errno == EEXIST;
}

void crew_unwatch(struct crew *crew, struct watched *watched)
{
	if (watched->fd < 0)
		return;
	crew_look_away(crew, watched);
	close(watched->fd);
	watched->fd = -1;
}

void crew_dismiss(struct worker *worker)
{
	struct crew *crew = worker->crew;
	for (struct worker **at = &worker->user->workers; *at; at = &(*at)->next) {
		if (*at != worker)
			continue;
		*at = worker->next;
		break;
	}
	crew_unwatch(crew, &worker->end);
	crew_unwatch(crew, &worker->pipe);
	crew_unwatch(crew, &worker->log);
	if (worker->room.fd >= 0)
		crew_look_away(crew, &worker->room);
	worker->room.fd = -1;
	for (unsigned i = 0; i < worker->waiting_count; i++)
		closer_hang_up(crew->closer, worker->user->uid, worker->waiting[i].fd);
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

static void crew_bury(struct crew *crew)
{
	guests_bury(&crew->house);
	while (crew->dead) {
		struct worker *worker = crew->dead;
		crew->dead = worker->next;
		free(worker);
	}
}

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
}

/*
 * Takes no more in a second than somebody could read: the rest waits in the pipe, and what does not
 * fit there the worker does not get rid of.
 */
void crew_on_log(struct watched *watched, uint32_t events)
{
	struct worker *worker = WORKER_OF(watched, log);
	char bytes[4096];
	size_t room = worker->log_left < sizeof(bytes) ? worker->log_left : sizeof(bytes);
	if (room == 0) {
		crew_look_away(worker->crew, watched);
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

/* The worker's word, which can be of harm to its own user's samples alone. */
static void blame_sample(struct worker *worker, const char *who)
{
	struct crew_user *user = worker->user;
	struct blame blame;
	copy_once(&blame, &worker->page->blame, sizeof(blame));
	if (blame.noted != 2)
		return;
	struct suspect *suspect = user->suspects;
	struct suspect *end = user->suspects + user->suspect_count;
	while (suspect < end && (suspect->sample != blame.sample ||
				 memcmp(suspect->uuid, blame.uuid, sizeof(blame.uuid)) != 0))
		suspect++;
	if (suspect == end && user->suspect_count == SUSPECTS_MAX)
		return;
	if (suspect == end) {
		*suspect = (struct suspect){.sample = blame.sample};
		memcpy(suspect->uuid, blame.uuid, sizeof(blame.uuid));
		user->suspect_count++;
	}
	suspect->faults++;
	user->remember_until_ns = clock_now_ns() + REMEMBER_S * SECOND_NS;
	log_warning("%sit was decoding sample %llu%s", who, (unsigned long long)blame.sample,
		    suspect->faults == FAULTS_MOST
			    ? ", and not for the first time: that is bad from now on"
			    : "");
}

/* Before the first client. */
static void warn_of_poison(struct worker *worker)
{
	const struct crew_user *user = worker->user;
	for (unsigned i = 0; i < user->suspect_count; i++) {
		struct link_order order = {.kind = LINK_POISON, .sample = user->suspects[i].sample};
		memcpy(order.uuid, user->suspects[i].uuid, sizeof(order.uuid));
		if (user->suspects[i].faults >= FAULTS_MOST)
			(void)link_send(worker->socket, &order, NULL, 0);
	}
}

static void on_end(struct watched *watched, uint32_t events)
{
	struct worker *worker = WORKER_OF(watched, end);
	struct crew_user *user = worker->user;
	struct crew *crew = worker->crew;
	char who[32];
	int status;
	if (waitpid(worker->pid, &status, WNOHANG) != worker->pid)
		return;
	crew_whose(worker, who);
	/* What it said last may be the reason. */
	worker->log_left = LOG_BYTES_PER_SECOND;
	for (int i = 0; worker->log.fd >= 0 && i < 4; i++)
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
	uint64_t now_ns = clock_now_ns();
	if (code == EDQUOT && order.limit != LINK_LIMIT_NONE &&
	    now_ns - crew->swept_ns >= SWEEP_AGAIN_NS) {
		/*
		 * What was held until a moment ago may be free now. A worker that is told otherwise
		 * asks again later than this is done again.
		 */
		crew->swept_ns = now_ns;
		ledger_sweep(&crew->ledger);
		order = (struct link_order){.kind = LINK_RING, .feed = record->feed};
		code = ledger_make(&crew->ledger, &user->account, user->uid, worker->id, record,
				   &order, fds);
	}
	int r = link_send(worker->socket, &order, fds, code == 0 ? LINK_FDS_MAX : 0);
	if (r == 0 || code != 0)
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
		order.code = guests_send_ring(&worker->guests, record->client, fds);
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
	worker->end_due_ns = clock_now_ns() + RETIRE_MS * MS_NS;
	worker->crew->sweep_due_ns = 0;
	(void)link_send(worker->socket, &order, NULL, 0);
}

static void on_records(struct watched *watched, uint32_t events)
{
	struct worker *worker = WORKER_OF(watched, pipe);
	for (unsigned i = 0; i < RECORDS_PER_TURN; i++) {
		struct link_record record;
		if (worker->records_left == 0) {
			crew_look_away(worker->crew, watched);
			return;
		}
		ssize_t n = read(watched->fd, &record, sizeof(record));
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			crew_unwatch(worker->crew, watched);
		/*
		 * Written whole by a worker that is itself; what else comes is read as what it then
		 * is.
		 */
		if (n != sizeof(record))
			return;
		worker->records_left--;
		switch (record.kind) {
		case LINK_WANT_RING:
			make_ring(worker, &record);
			break;
		case LINK_SEND_RING:
			send_ring(worker, &record);
			break;
		case LINK_RING_DONE:
			ledger_done(&worker->crew->ledger, worker->id, record.feed);
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

int crew_watch(struct crew *crew, struct watched *watched, int fd,
	       void (*ready)(struct watched *, uint32_t))
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watched};
	*watched = (struct watched){fd, ready};
	return epoll_ctl(crew->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
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
	uint64_t now_ns = clock_now_ns();
	if (user->start_debt_ns < now_ns)
		user->start_debt_ns = now_ns;
	user->start_debt_ns += START_COST_NS;
}

static int crew_launch(struct worker *worker, struct outfit *outfit)
{
	struct crew *crew = worker->crew;
	const uid_t uid = worker->user->uid;
	int value;
	const int *nice = config_nice(crew->config, uid, &value) ? &value : NULL;
	const bool grouped = groups_given(&crew->groups);
	int r = crew_take_over(worker, outfit);
	if (r == 0)
		r = outfit_spawn(outfit, crew->config_fd, uid, grouped ? NULL : nice, &worker->pid);
	if (r < 0)
		return r;
	charge_start(worker->user);
	r = grouped ? groups_enter(&crew->groups, uid, nice, worker->pid) : 0;
	if (r < 0)
		log_warning(
			"user %u: the worker cannot be put into a control group of the user's, and "
			"has the weight of the service: %s",
			(unsigned)uid, strerror(-r));
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
	return user->start_debt_ns > clock_now_ns() + (STARTS_AT_ONCE - 1) * START_COST_NS ? -EDQUOT
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
		.guests = {.most = (unsigned)crew->config->connections_per_user + ARRIVALS_MAX,
			   .uid = user->uid,
			   .house = &crew->house},
	};
	user->workers = worker;
	crew->worker_count++;
	r = outfit_init(&outfit, crew->arrivals_most, &worker->page);
	/* Those who are here already need some for rings, and connections to come. */
	if (r == 0 && (unsigned)outfit.log.ours + (crew->house.most - crew->house.count) +
				      (crew->waiting_most - crew->waiting_count) +
				      DESCRIPTORS_SPARE >
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

/*
 * What is kept of users who are away is for their own good, and gives way to somebody who has come.
 * False: nobody is away.
 */
static bool forget_somebody(struct crew *crew)
{
	const uint64_t now_ns = clock_now_ns();
	struct crew_user *chosen = NULL;
	for (struct crew_user *user = crew->users; user; user = user->next)
		if (is_away(user, now_ns) &&
		    (!chosen || user->remember_until_ns < chosen->remember_until_ns))
			chosen = user;
	if (!chosen)
		return false;
	forget_user(crew, chosen);
	return true;
}

struct crew_user *crew_user_of(struct crew *crew, uid_t uid)
{
	struct crew_user *user = crew->users;
	while (user && user->uid != uid)
		user = user->next;
	if (user)
		return user;
	if (crew->user_count >= crew->config->users && !forget_somebody(crew))
		return NULL;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	*user = (struct crew_user){.next = crew->users, .uid = uid};
	crew->users = user;
	crew->user_count++;
	return user;
}

void crew_turn_away(struct crew *crew, uid_t uid, int fd, int code, const char *format, ...)
{
	Loaderd__Error error = LOADERD__ERROR__INIT;
	Loaderd__Reply reply = LOADERD__REPLY__INIT;
	char text[256];
	uint8_t message[512];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (log_allowed(&crew->refusal_log_ns))
		log_warning("user %u turned away: %s", (unsigned)uid, text);
	error.code = code;
	error.text = text;
	error.position = -1;
	reply.kind_case = LOADERD__REPLY__KIND_ERROR;
	reply.error = &error;
	size_t size = loaderd__reply__pack(&reply, message);
	(void)frame_send(fd, message, size, NULL, 0, 0);
	closer_hang_up(crew->closer, uid, fd);
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
	uint64_t now_ns = clock_now_ns();
	char who[32];
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
	kill(worker->pid, SIGKILL);
}

/*
 * Descriptors must be left for rings and workers: whose user has most of such connections loses the
 * oldest.
 */
static void crew_make_room(struct crew *crew)
{
	struct guests *chosen = NULL;
	unsigned most = 0;
	for (struct crew_user *user = crew->users; user; user = user->next) {
		struct guests *largest = NULL;
		unsigned count = 0;
		for (struct worker *worker = user->workers; worker; worker = worker->next) {
			count += worker->guests.count;
			if (!largest || worker->guests.count > largest->count)
				largest = &worker->guests;
		}
		if (count <= most)
			continue;
		most = count;
		chosen = largest;
	}
	if (chosen)
		guests_drop_oldest(chosen);
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
		closer_hang_up(worker->crew->closer, worker->user->uid, arrival->fd);
	if (worker->crew->house.count > worker->crew->house.most)
		crew_make_room(worker->crew);
	return 0;
}

static void on_room(struct watched *watched, uint32_t events)
{
	struct worker *worker = WORKER_OF(watched, room);
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
		crew_look_away(crew, watched);
		crew->room_due_ns = clock_now_ns() + ROOM_AGAIN_NS;
	}
	if (worker->waiting_count > 0)
		return;
	crew_look_away(crew, watched);
	watched->fd = -1;
}

/*
 * A burst of connections may be more than the socket takes at once: the worker is given the time to
 * read.
 */
static bool queue_up(struct worker *worker, const struct arrival *arrival)
{
	struct epoll_event event = {.events = EPOLLOUT, .data.ptr = &worker->room};
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
	epoll_ctl(worker->crew->epoll_fd, EPOLL_CTL_ADD, worker->socket, &event);
	return true;
}

/* Limits have a code at which feeds that are opened again try for a while: each of them passes. */
static void refuse_worker(struct crew *crew, uid_t uid, int fd, int r)
{
	switch (r) {
	case -EUSERS:
		crew_turn_away(
			crew, uid, fd, EDQUOT,
			"the service has as many users as it may, %llu ([limits] users); try "
			"again when one of them has no feed any more",
			(unsigned long long)crew->config->users);
		break;
	case -EDQUOT:
		crew_turn_away(
			crew, uid, fd, EDQUOT,
			"no worker can be started: this user's have ended so often that as many "
			"have been started as may be, %d at once and then %d a second; try again "
			"in a second",
			STARTS_AT_ONCE, STARTS_PER_SECOND);
		break;
	case -EBUSY:
		crew_turn_away(
			crew, uid, fd, EDQUOT,
			"no worker can be started: %d of this user's have not ended yet, and one "
			"may have no more; try again in some seconds",
			WORKERS_PER_USER);
		break;
	case -EAGAIN:
		crew_turn_away(
			crew, uid, fd, EDQUOT,
			"no worker can be started: the system lets the service have no more "
			"processes; try again, or raise TasksMax= or LimitNPROC= of the service");
		break;
	default:
		crew_turn_away(crew, uid, fd, -r, "no worker can be started: %s", strerror(-r));
		break;
	}
}

/* There is a worker, but no room for one more connection to it. */
static void refuse_connection(const struct worker *worker, int fd)
{
	struct crew *crew = worker->crew;
	const uid_t uid = worker->user->uid;
	if (!guests_full(&worker->guests) && worker->waiting_count < crew->arrivals_most)
		crew_turn_away(crew, uid, fd, EDQUOT,
			       "too many connections of all users wait for their workers; connect "
			       "again, or raise LimitNOFILE= of the service (ulimit -n)");
	else
		crew_turn_away(
			crew, uid, fd, EDQUOT,
			"this user has as many connections as one may, %llu, and more that wait "
			"([limits] connections_per_user)",
			(unsigned long long)crew->config->connections_per_user);
}

void crew_connection(struct crew *crew, uid_t uid, pid_t pid, int fd)
{
	const struct arrival arrival = {++crew->client_id, fd, pid};
	struct worker *worker;
	int r = crew_worker_of(crew, uid, &worker);
	if (r < 0)
		refuse_worker(crew, uid, fd, r);
	else if (guests_full(&worker->guests) ||
		 ((worker->waiting_count > 0 || hand_over(worker, &arrival) < 0) &&
		  !queue_up(worker, &arrival)))
		refuse_connection(worker, fd);
}

static void for_all(struct crew *crew, void (*act)(struct worker *worker))
{
	for (struct crew_user *user = crew->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next)
			act(worker);
}

static void crew_drain_worker(struct worker *worker)
{
	const struct link_order order = {.kind = LINK_DRAIN};
	if (link_send(worker->socket, &order, NULL, 0) < 0)
		kill(worker->pid, SIGKILL);
}

void crew_drain(struct crew *crew)
{
	crew->draining = true;
	for_all(crew, crew_drain_worker);
}

void crew_end_worker(struct worker *worker)
{
	kill(worker->pid, SIGKILL);
}

void crew_kill(struct crew *crew)
{
	for_all(crew, crew_end_worker);
}

uint64_t crew_due_ns(const struct crew *crew)
{
	if (!crew->users)
		return UINT64_MAX;
	uint64_t due_ns = crew->sweep_due_ns < crew->renewal_due_ns ? crew->sweep_due_ns
								    : crew->renewal_due_ns;
	return crew->room_due_ns < due_ns ? crew->room_due_ns : due_ns;
}

void crew_look_for_room(struct worker *worker)
{
	if (!crew_look_again(worker->crew, &worker->room, EPOLLOUT))
		worker->crew->room_due_ns = clock_now_ns() + ROOM_AGAIN_NS;
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

static void forget_users(struct crew *crew)
{
	for (struct crew_user *user = crew->users, *next; user; user = next) {
		next = user->next;
		crew_forget_if_done(crew, user);
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

void crew_on_time(struct crew *crew, uint64_t now_ns)
{
	crew_bury(crew);
	if (now_ns >= crew->room_due_ns) {
		crew->room_due_ns = UINT64_MAX;
		for_all(crew, crew_look_for_room);
	}
	if (now_ns >= crew->sweep_due_ns) {
		bool soon = ledger_sweep(&crew->ledger);
		soon |= crew_end_retired(crew, now_ns);
		crew->sweep_due_ns = now_ns + (soon ? SWEEP_SOON_NS : SWEEP_LATER_NS);
		forget_users(crew);
	}
	if (now_ns >= crew->renewal_due_ns) {
		crew_renew_allowances(crew);
		crew->renewal_due_ns = UINT64_MAX;
	}
	if (crew->renewal_due_ns == UINT64_MAX && crew_any_allowance_used(crew))
		crew->renewal_due_ns = now_ns + SECOND_NS;
}

/*
 * A copy that nobody changes any more; taken again while the worker is writing, though not for
 * ever.
 */
static void copy_page(const struct worker *worker, struct link_page *ret_page)
{
	for (unsigned i = 0; i < 100; i++) {
		uint64_t before = atomic_load(&worker->page->sequence);
		copy_once(ret_page, worker->page, sizeof(*ret_page));
		if (before % 2 == 0 && atomic_load(&worker->page->sequence) == before)
			break;
	}
	if (ret_page->feed_count > LINK_FEEDS_MAX)
		ret_page->feed_count = LINK_FEEDS_MAX;
	for (uint32_t i = 0; i < ret_page->feed_count; i++) {
		struct link_feed *feed = &ret_page->feeds[i];
		feed->name[LINK_NAME_MAX - 1] = '\0';
		feed->dataset[LINK_NAME_MAX - 1] = '\0';
		feed->pipeline[LINK_NAME_MAX - 1] = '\0';
	}
}

void crew_visit(const struct crew *crew,
		void (*visit)(void *context, uid_t uid, pid_t pid, const struct link_page *page),
		void *context)
{
	static struct link_page page;
	for (const struct crew_user *user = crew->users; user; user = user->next)
		for (const struct worker *worker = user->workers; worker; worker = worker->next) {
			copy_page(worker, &page);
			visit(context, user->uid, worker->pid, &page);
		}
}

void crew_deinit(struct crew *crew)
{
	for (struct crew_user *user = crew->users, *next_user; user; user = next_user) {
		next_user = user->next;
		for (struct worker *worker = user->workers, *next; worker; worker = next) {
			next = worker->next;
			crew_dismiss(worker);
		}
		if (groups_given(&crew->groups))
			groups_remove(&crew->groups, user->uid);
		free(user);
	}
	crew->users = NULL;
	crew_bury(crew);
	ledger_deinit(&crew->ledger);
	groups_close(&crew->groups);
	if (crew->config_fd >= 0)
		close(crew->config_fd);
}
