#include "format/base/system/clock.h"
#include "loaderd/supervisor/worker_manager_internal.h"

#include "format/base/copy_once.h"
#include "loaderd/log.h"
#include "loaderd/supervisor/worker_spawn.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void worker_retire(struct worker *worker)
{
	const struct ipc_order order = {.kind = IPC_RETIRE};
	worker->end_due_ns = clock_ns(CLOCK_MONOTONIC) + RETIRE_MS * MS_NS;
	worker->manager->sweep_due_ns = 0;
	(void)ipc_send(worker->socket.fd, &order, NULL, 0);
}

static void worker_kill(struct worker *worker)
{
	kill(worker->pid, SIGKILL);
}

static void worker_release(struct worker *worker)
{
	struct worker_manager *manager = worker->manager;
	struct worker **at = &worker->user->workers;
	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	manager_unwatch(manager, &worker->end);
	manager_unwatch(manager, &worker->pipe);
	manager_unwatch(manager, &worker->log);
	for (unsigned i = 0; i < worker->pending_count; i++)
		unread_add(&manager->unread, worker->user->uid, worker->pending[i].fd, true);
	manager->pending_count -= worker->pending_count;
	worker->pending_count = 0;
	clients_deinit(&worker->clients);
	if (worker->socket.fd >= 0) {
		event_source_remove(manager->epoll_fd, &worker->socket);
		blocking_pool_close(manager->blocking_pool, worker->user->uid, worker->socket.fd);
	}
	if (worker->page)
		munmap(worker->page, STATUS_PAGE_SIZE);
	manager->worker_count--;
	/* Later events of this turn may still point to it. */
	worker->next = manager->dead;
	manager->dead = worker;
}

/*
 * What may happen to a worker in each state, and which state follows. An event that is not listed
 * cannot happen. A worker is untrusted and may send any record at any time, so READY and IDLE are
 * listed in every state of a process.
 */
static const struct {
	bool takes_connections;
	void (*enter)(struct worker *worker);
	enum worker_state next[WORKER_EVENTS];
} worker_states[WORKER_STATES] = {
	[WORKER_NEW] =
		{
			.next = {[WORKER_SPAWNED] = WORKER_STARTING, [WORKER_ENDED] = WORKER_GONE},
		},
	[WORKER_STARTING] =
		{
			.takes_connections = true,
			.next = {[WORKER_READY] = WORKER_SERVING,
				 [WORKER_IDLE] = WORKER_RETIRING,
				 [WORKER_UNRESPONSIVE] = WORKER_KILLED,
				 [WORKER_KILL] = WORKER_KILLED,
				 [WORKER_ENDED] = WORKER_GONE},
		},
	[WORKER_SERVING] =
		{
			.takes_connections = true,
			.next = {[WORKER_READY] = WORKER_SERVING,
				 [WORKER_IDLE] = WORKER_RETIRING,
				 [WORKER_UNRESPONSIVE] = WORKER_KILLED,
				 [WORKER_KILL] = WORKER_KILLED,
				 [WORKER_ENDED] = WORKER_GONE},
		},
	[WORKER_RETIRING] =
		{
			.enter = worker_retire,
			.next = {[WORKER_READY] = WORKER_RETIRING,
				 [WORKER_IDLE] = WORKER_RETIRING,
				 [WORKER_KILL] = WORKER_KILLED,
				 [WORKER_ENDED] = WORKER_GONE},
		},
	[WORKER_KILLED] =
		{
			.enter = worker_kill,
			.next = {[WORKER_READY] = WORKER_KILLED,
				 [WORKER_IDLE] = WORKER_KILLED,
				 [WORKER_KILL] = WORKER_KILLED,
				 [WORKER_ENDED] = WORKER_GONE},
		},
	[WORKER_GONE] = {.enter = worker_release},
};

void worker_on(struct worker *worker, enum worker_event event)
{
	const enum worker_state next = worker_states[worker->state].next[event];
	assert(next != WORKER_NEW); /* 0: the event is not listed */
	if (next == worker->state)
		return;
	worker->state = next;
	if (worker_states[next].enter)
		worker_states[next].enter(worker);
}

bool worker_takes_connections(const struct worker *worker)
{
	return worker_states[worker->state].takes_connections;
}

/*
 * Counts another crash of a suspect. The count restarts if the last crash is more than REMEMBER_S
 * ago.
 */
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
 * Records what a crashed worker was decoding. The marker is untrusted, but can only harm the
 * worker's own user. Counting per sample does not suffice: every sample of a malicious file may
 * crash a worker, and each crash ends all feeds of the user. A file that changes its UUID each time
 * is not recognised; check_start() bounds how often it can crash workers.
 */
static void note_suspect(struct worker *worker, const char *who)
{
	struct user *user = worker->user;
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct crash_marker crash;
	copy_once(&crash, &worker->page->crash, sizeof(crash));
	if (crash.noted != 2 || crash.sample == IPC_WHOLE_DATASET)
		return;
	unsigned faults = suspects_note(&user->samples, crash.uuid, crash.sample, now_ns)->faults;
	unsigned all =
		suspects_note(&user->datasets, crash.uuid, IPC_WHOLE_DATASET, now_ns)->faults;
	user->remember_until_ns = now_ns + REMEMBER_S * SECOND_NS;
	log_warning("%sit was decoding sample %llu%s%s", who, (unsigned long long)crash.sample,
		    faults == FAULTS_MAX
			    ? ", and not for the first time: the sample counts as bad from now on"
			    : "",
		    all == DATASET_FAULTS_MAX ? "; samples of its dataset have crashed too many "
						"workers: the dataset is refused for an hour"
					      : "");
}

static void send_suspects(const struct worker *worker, const struct suspects *suspects,
			  unsigned faults_max)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < suspects->count; i++) {
		const struct suspect *suspect = &suspects->all[i];
		const uint64_t until_ns = suspect->last_ns + REMEMBER_S * SECOND_NS;
		struct ipc_order order = {
			.kind = IPC_POISON, .sample = suspect->sample, .faults = suspect->faults};
		if (suspect->faults < faults_max || until_ns <= now_ns)
			continue;
		order.seconds = (uint32_t)((until_ns - now_ns) / SECOND_NS) + 1;
		memcpy(order.uuid, suspect->uuid, sizeof(order.uuid));
		(void)ipc_send(worker->socket.fd, &order, NULL, 0);
	}
}

/* Sends the suspects before the first client. */
static void send_poison(const struct worker *worker)
{
	send_suspects(worker, &worker->user->datasets, DATASET_FAULTS_MAX);
	send_suspects(worker, &worker->user->samples, FAULTS_MAX);
}

static void on_end(struct event_source *source, uint32_t events)
{
	struct worker *worker = CONTAINER_OF(worker, end, source);
	struct user *user = worker->user;
	struct worker_manager *manager = worker->manager;
	char who[32];
	int status;
	if (waitpid(worker->pid, &status, WNOHANG) != worker->pid)
		return;
	manager_log_prefix(worker, who);
	/* Its last log lines may give the reason. */
	manager_drain_log(worker);
	if (WIFSIGNALED(status))
		log_warning("%sthe worker (pid %d) was killed by signal %d; its clients reopen "
			    "their feeds",
			    who, (int)worker->pid, WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		log_warning("%sthe worker (pid %d) exited with status %d", who, (int)worker->pid,
			    WEXITSTATUS(status));
	if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0)
		note_suspect(worker, who);
	/*
	 * The worker has read no user data that could have compromised it, so its exit status is a
	 * trusted errno.
	 */
	if (worker->state == WORKER_STARTING && WIFEXITED(status) && WEXITSTATUS(status) != 0)
		manager_refuse_pending(worker, -WEXITSTATUS(status));
	ring_quota_release(&manager->ring_quota, worker->id, 0);
	worker_on(worker, WORKER_ENDED);
	manager->sweep_due_ns = 0;
	manager_forget_user_if_idle(manager, user);
}

/* Takes over the supervisor's ends, even on error. */
static int manager_take_fds(struct worker *worker, struct worker_fds *worker_fds)
{
	struct worker_manager *manager = worker->manager;
	worker->socket.fd = worker_fds->socket.ours;
	int r = manager_watch(manager, &worker->pipe, worker_fds->pipe.ours, manager_on_records);
	int log_r = manager_watch(manager, &worker->log, worker_fds->log.ours, manager_on_log);
	worker_fds->socket.ours = worker_fds->pipe.ours = worker_fds->log.ours = -1;
	return r < 0 ? r : log_r;
}

/* Charges the user for a spawned process; attempts that fail earlier are free. */
static void charge_start(struct user *user)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (user->start_debt_ns < now_ns)
		user->start_debt_ns = now_ns;
	user->start_debt_ns += START_COST_NS;
}

/*
 * Returns an fd of the cgroup's cgroup.procs. Fails closed: a worker outside its user's cgroup
 * would have no limits.
 */
static int manager_cgroup_of(struct worker_manager *manager, uid_t uid, const int *nice)
{
	int r = user_cgroups_create(&manager->cgroups, uid, nice);
	if (r >= 0)
		return r;
	if (log_allowed(&manager->refusal_log_ns))
		log_warning("user %u: cannot create the control group user-%u or set its limits: "
			    "%s ([users] control_group, memory, threads)",
			    (unsigned)uid, (unsigned)uid, strerror(-r));
	return -WORKER_HAS_NO_GROUP;
}

/*
 * Keeps fds for rings and connections of users who are already here. newest: the highest fd that
 * the worker needs.
 */
static int check_fds_left(const struct worker_manager *manager, int newest)
{
	const unsigned loose = MIN(manager_loose_connections(manager), manager->connections_max);
	const unsigned kept = manager->connections_max - loose + manager->pending_max -
			      manager->pending_count + FDS_SPARE;
	return (unsigned)newest + kept > manager->fds_max ? -EMFILE : 0;
}

/* Call worker_fds_deinit() afterwards, also after an error. */
static int manager_launch(struct worker *worker, struct worker_fds *worker_fds)
{
	struct worker_manager *manager = worker->manager;
	const uid_t uid = worker->user->uid;
	int value, group_fd = -1;
	const int *nice = config_nice(manager->config, uid, &value) ? &value : NULL;
	int r = worker_fds_init(worker_fds, manager->pending_per_worker_max, &worker->page);
	if (r < 0)
		return r;
	r = check_fds_left(manager, worker_fds->log.ours);
	if (r < 0)
		return r;
	r = manager_take_fds(worker, worker_fds);
	if (r < 0)
		return r;
	if (user_cgroups_enabled(&manager->cgroups)) {
		group_fd = manager_cgroup_of(manager, uid, nice);
		if (group_fd < 0)
			return group_fd;
	}
	const struct worker_spawn_options options = {
		.uid = uid,
		.private_only = manager->single_user,
		.nice = manager->cgroups.weights ? NULL : nice,
		.config_fd = manager->config_fd,
		.group_fd = group_fd,
	};
	r = worker_spawn(worker_fds, &options, &worker->pid);
	if (group_fd >= 0)
		close(group_fd);
	if (r < 0)
		return r;
	worker_on(worker, WORKER_SPAWNED);
	charge_start(worker->user);
	int pidfd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
	r = pidfd < 0 ? -errno : manager_watch(manager, &worker->end, pidfd, on_end);
	if (r == 0)
		return 0;
	kill(worker->pid, SIGKILL);
	waitpid(worker->pid, NULL, 0);
	return r;
}

/*
 * Limits starts. A worker that exits at once must not keep the machine busy with restarts, and
 * workers that survive SIGKILL count against their user. Returns 0, -EBUSY if too many are still
 * exiting, or -EDQUOT if too many were started.
 */
static int check_start(const struct user *user)
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

int manager_start_worker(struct worker_manager *manager, struct user *user)
{
	int r = check_start(user);
	if (r < 0)
		return r;
	struct worker *worker = calloc(1, sizeof(*worker));
	struct worker_fds worker_fds;
	if (!worker)
		return -ENOMEM;
	*worker = (struct worker){
		.end.fd = -1,
		.pipe.fd = -1,
		.log.fd = -1,
		.socket = {-1, manager_on_writable},
		.manager = manager,
		.user = user,
		.next = user->workers,
		.id = ++manager->worker_id,
		.log_left = LOG_BYTES_PER_SECOND,
		.records_left = RECORDS_PER_SECOND,
		.clients = {.uid = user->uid, .table = &manager->client_table},
	};
	user->workers = worker;
	manager->worker_count++;
	r = manager_launch(worker, &worker_fds);
	worker_fds_deinit(&worker_fds);
	if (r < 0) {
		worker_on(worker, WORKER_ENDED);
		return r;
	}
	send_poison(worker);
	return 0;
}

bool manager_kill_retired(const struct worker_manager *manager, uint64_t now_ns)
{
	bool any_retiring = false;
	for (struct user *user = manager->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next) {
			if (worker->state == WORKER_RETIRING && worker->end_due_ns <= now_ns)
				worker_on(worker, WORKER_KILL);
			any_retiring |= worker->state == WORKER_RETIRING;
		}
	return any_retiring;
}
