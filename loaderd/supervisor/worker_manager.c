#include "loaderd/supervisor/worker_manager.h"

#include "format/base/copy_once.h"
#include "format/base/system/clock.h"
#include "loaderd/log.h"
#include "loaderd/supervisor/worker_manager_internal.h"
#include "loaderd/supervisor/worker_spawn.h"
#include "proto/ring_leases.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/*
 * Returns the limit of queued connections. The kernel counts fds in flight per user, and the whole
 * service is one user: no worker may exhaust the count by not reading.
 */
static unsigned pending_share(unsigned descriptors)
{
	unsigned most = descriptors / PENDING_SHARE;
	return most < PENDING_MIN ? PENDING_MIN : most;
}

bool manager_has_fds(const struct worker_manager *manager, int newest, unsigned *ret_min)
{
	unsigned most = manager->fds_max;
	while ((unsigned)newest + FDS_PER_WORKER + most / CONNECTIONS_SHARE + pending_share(most) +
		       FDS_SPARE >
	       most)
		most++;
	*ret_min = most;
	return most == manager->fds_max;
}

unsigned manager_loose_connections(const struct worker_manager *manager)
{
	return manager->client_table.without_ring + manager->unread.count;
}

static void on_inode(struct event_source *source, uint32_t events)
{
	struct worker_manager *manager = CONTAINER_OF(worker_manager, quota_inodes, source);
	ring_quota_read_events(&manager->ring_quota);
	manager->sweep_due_ns = 0;
}

static void on_probe(struct event_source *source, uint32_t events)
{
	struct worker_manager *manager = CONTAINER_OF(worker_manager, quota_probes, source);
	ring_quota_read_events(&manager->ring_quota);
	manager->sweep_due_ns = 0;
}

static int manager_watch_quota(struct worker_manager *manager)
{
	const struct ring_quota *quota = &manager->ring_quota;
	int r = ring_quota_init(&manager->ring_quota);
	if (r < 0)
		return r;
	if (quota->inotify_fd >= 0) {
		r = manager_watch(manager, &manager->quota_inodes, quota->inotify_fd, on_inode);
		if (r < 0)
			return r;
	}
	return manager_watch(manager, &manager->quota_probes, quota->event_fd, on_probe);
}

/* Derives limits from the configuration. */
static void manager_configure(struct worker_manager *manager, const struct config *config,
			      uint64_t memory)
{
	uint64_t per_user = config->shared_memory_per_user;
	if (per_user == 0)
		per_user = manager->single_user ? memory : memory / 2;
	/* Higher than the worker's limit, so that the worker reports the excess. */
	manager->connections_per_user_max = (unsigned)config->connections_per_user + PENDING_MAX;
	manager->ring_quota.bytes_max = memory;
	manager->ring_quota.bytes_per_user_max = per_user;
	/* A ring outlives its feed while the client holds batches. */
	manager->ring_quota.rings_per_user_max = 4 * (unsigned)config->feeds_per_user;
	/* Each ring uses two fds while any process has it. */
	manager->ring_quota.rings_max = manager->fds_max / CONNECTIONS_SHARE / IPC_FDS_MAX;
	manager->ring_quota.rings_share = manager->single_user ? 0 : RINGS_SHARE;
	manager->ring_quota.writable_rings = config->writable_rings;
}

int manager_init(struct worker_manager *manager, const struct config *config,
		 struct blocking_pool *blocking_pool, int epoll_fd, uint64_t memory,
		 bool single_user)
{
	struct rlimit descriptors = {.rlim_cur = INT32_MAX};
	getrlimit(RLIMIT_NOFILE, &descriptors);
	unsigned fds_max =
		(unsigned)(descriptors.rlim_cur < INT32_MAX ? descriptors.rlim_cur : INT32_MAX);
	unsigned pending_max = pending_share(fds_max);
	*manager = (struct worker_manager){
		.config = config,
		.client_table = {.epoll_fd = epoll_fd, .unread = &manager->unread},
		.unread = {.epoll_fd = epoll_fd, .blocking_pool = blocking_pool},
		.connections_max = fds_max / CONNECTIONS_SHARE,
		.fds_max = fds_max,
		.cgroups.fd = -1,
		.pending_per_worker_max = pending_max > PENDING_MAX ? PENDING_MAX : pending_max,
		.pending_max = pending_max,
		.blocking_pool = blocking_pool,
		.epoll_fd = epoll_fd,
		.single_user = single_user,
		.start_ns = clock_ns(CLOCK_MONOTONIC),
		.ring_quota = {.has_leases = ring_leases_work() > 0,
			       .blocking_pool = blocking_pool},
	};
	manager_configure(manager, config, memory);
	manager->config_fd = worker_config_fd(config);
	if (manager->config_fd < 0)
		return manager->config_fd;
	return manager_watch_quota(manager);
}

/*
 * Returns whether the user has no worker, no ring and no start debt: forgetting a debt would lift
 * the limit on starts.
 */
static bool is_forgettable(const struct user *user, uint64_t now_ns)
{
	return !user->workers && user->ring_usage.rings == 0 && now_ns >= user->start_debt_ns;
}

static void forget_user(struct worker_manager *manager, struct user *user)
{
	struct user **at = &manager->users;
	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
	manager->user_count--;
	if (user_cgroups_enabled(&manager->cgroups))
		user_cgroups_remove(&manager->cgroups, user->uid);
	free(user);
}

void manager_forget_user_if_idle(struct worker_manager *manager, struct user *user)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (is_forgettable(user, now_ns) && now_ns >= user->remember_until_ns)
		forget_user(manager, user);
}

bool manager_rewatch(const struct worker_manager *manager, struct event_source *source,
		     uint32_t events)
{
	int r = source->fd < 0 ? 0 : event_source_add(manager->epoll_fd, source, events);
	return r == 0 || r == -EEXIST;
}

void manager_unwatch(struct worker_manager *manager, struct event_source *source)
{
	if (source->fd < 0)
		return;
	event_source_remove(manager->epoll_fd, source);
	close(source->fd);
	source->fd = -1;
}

static void manager_reap(struct worker_manager *manager)
{
	clients_reap(&manager->client_table);
	unread_reap(&manager->unread);
	while (manager->dead) {
		struct worker *worker = manager->dead;
		manager->dead = worker->next;
		free(worker);
	}
}

int manager_watch(struct worker_manager *manager, struct event_source *source, int fd,
		  void (*ready)(struct event_source *, uint32_t))
{
	*source = (struct event_source){fd, ready};
	return event_source_add(manager->epoll_fd, source, EPOLLIN);
}

/*
 * Forgets the idle user whose suspects expire first, to make room for another. Suspects only
 * protect the user itself. Returns false if no user is idle.
 */
static bool forget_somebody(struct worker_manager *manager)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct user *chosen = NULL;
	for (struct user *user = manager->users; user; user = user->next)
		if (is_forgettable(user, now_ns) &&
		    (!chosen || user->remember_until_ns < chosen->remember_until_ns))
			chosen = user;
	if (!chosen)
		return false;
	forget_user(manager, chosen);
	return true;
}

struct user *manager_get_user(struct worker_manager *manager, uid_t uid)
{
	struct user *user = manager->users;
	while (user && user->uid != uid)
		user = user->next;
	if (user)
		return user;
	if (manager->user_count >= manager->config->users && !forget_somebody(manager))
		return NULL;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	*user = (struct user){.next = manager->users, .uid = uid};
	manager->users = user;
	manager->user_count++;
	return user;
}

static void for_all(struct worker_manager *manager, void (*act)(struct worker *worker))
{
	for (struct user *user = manager->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next)
			act(worker);
}

static void manager_drain_worker(struct worker *worker)
{
	const struct ipc_order order = {.kind = IPC_DRAIN};
	if (ipc_send(worker->socket.fd, &order, NULL, 0) < 0)
		worker_on(worker, WORKER_KILL);
}

static void send_change_to(struct worker *worker, const struct ipc_order *order)
{
	char who[32];
	int r = ipc_send(worker->socket.fd, order, NULL, 0);
	if (r == 0)
		return;
	manager_log_prefix(worker, who);
	log_warning(
		"%sthe worker (pid %d) did not get the new configuration: %s; the next worker will",
		who, (int)worker->pid, strerror(-r));
}

/*
 * Sends changed numeric keys to workers; the one other key that changes at once, [users] nice,
 * concerns the supervisor only.
 */
static void send_change(void *context, const struct config_change *change)
{
	const struct worker_manager *manager = context;
	const struct ipc_order order = {
		.kind = IPC_SET, .key = change->key, .value = change->value};
	if (change->takes != CONFIG_TAKES_NOW || !change->is_number)
		return;
	for (struct user *user = manager->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next)
			send_change_to(worker, &order);
}

static void weigh_users(const struct worker_manager *manager, const struct config *config)
{
	for (const struct user *user = manager->users; user; user = user->next) {
		int value;
		const int *nice = config_nice(config, user->uid, &value) ? &value : NULL;
		int r = user_cgroups_set_weight(&manager->cgroups, user->uid, nice);
		if (r < 0)
			log_warning("[users] nice: the control group of user %u keeps its weight: "
				    "%s",
				    (unsigned)user->uid, strerror(-r));
	}
}

int manager_reload(struct worker_manager *manager, const struct config *config, uint64_t memory)
{
	int fd = worker_config_fd(config);
	if (fd < 0)
		return fd;
	close(manager->config_fd);
	manager->config_fd = fd;
	manager_configure(manager, config, memory);
	config_compare(manager->config, config, send_change, manager);
	weigh_users(manager, config);
	return 0;
}

void manager_drain(struct worker_manager *manager)
{
	manager->draining = true;
	for_all(manager, manager_drain_worker);
}

static void manager_kill_worker(struct worker *worker)
{
	worker_on(worker, WORKER_KILL);
}

void manager_kill_all(struct worker_manager *manager)
{
	for_all(manager, manager_kill_worker);
}

/* Rings reported as done are swept soon, but not each one separately. */
static uint64_t sweep_due_ns(const struct worker_manager *manager)
{
	return MAX(manager->sweep_due_ns, manager->sweep_early_ns);
}

uint64_t manager_due_ns(const struct worker_manager *manager)
{
	const uint64_t unread_ns = unread_due_ns(&manager->unread);
	if (!manager->users)
		return unread_ns;
	return MIN(MIN(unread_ns, MIN(sweep_due_ns(manager), manager->renewal_due_ns)),
		   manager->retry_pending_ns);
}

bool manager_sweep(struct worker_manager *manager, bool *ret_soon)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	const uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (now_ns < manager->sweep_early_ns)
		return false;
	const bool all = now_ns >= manager->full_sweep_due_ns;
	if (all)
		manager->full_sweep_due_ns = now_ns + SWEEP_LATER_NS;
	const bool soon = ring_quota_sweep(&manager->ring_quota, all);
	const uint64_t took_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
	manager->sweep_early_ns = now_ns + took_ns + MAX(SWEEP_AGAIN_NS, SWEEP_REST * took_ns);
	if (ret_soon)
		*ret_soon = soon;
	return true;
}

static void forget_users(struct worker_manager *manager)
{
	for (struct user *user = manager->users, *next; user; user = next) {
		next = user->next;
		manager_forget_user_if_idle(manager, user);
	}
}

void manager_on_time(struct worker_manager *manager, uint64_t now_ns)
{
	unread_on_time(&manager->unread, now_ns);
	manager_reap(manager);
	if (now_ns >= manager->retry_pending_ns) {
		manager->retry_pending_ns = UINT64_MAX;
		for_all(manager, manager_wait_until_writable);
	}
	bool soon;
	if (now_ns >= manager->sweep_due_ns && manager_sweep(manager, &soon)) {
		soon |= manager_kill_retired(manager, now_ns);
		manager->sweep_due_ns = now_ns + (soon ? SWEEP_SOON_NS : SWEEP_LATER_NS);
		forget_users(manager);
	}
	if (now_ns >= manager->renewal_due_ns) {
		manager_renew_allowances(manager);
		manager->renewal_due_ns = UINT64_MAX;
	}
	if (manager->renewal_due_ns == UINT64_MAX && manager_any_allowance_used(manager))
		manager->renewal_due_ns = now_ns + SECOND_NS;
}

/*
 * Copies a status page that the worker may be writing. Retries while it changes, 100 times at most.
 */
static void copy_page(const struct worker *worker, struct status_page *ret_page)
{
	for (unsigned i = 0; i < 100; i++) {
		uint64_t before = atomic_load(&worker->page->sequence);
		copy_once(ret_page, worker->page, sizeof(*ret_page));
		if (before % 2 == 0 && atomic_load(&worker->page->sequence) == before)
			break;
	}
	if (ret_page->feed_count > STATUS_FEEDS_MAX)
		ret_page->feed_count = STATUS_FEEDS_MAX;
	for (uint32_t i = 0; i < ret_page->feed_count; i++) {
		struct status_feed *feed = &ret_page->feeds[i];
		feed->name[STATUS_TEXT_MAX - 1] = '\0';
		feed->dataset[STATUS_TEXT_MAX - 1] = '\0';
		feed->pipeline[STATUS_TEXT_MAX - 1] = '\0';
	}
}

void manager_visit_status(const struct worker_manager *manager,
			  void (*visit)(void *context, uid_t uid, pid_t pid,
					const struct status_page *page),
			  void *context)
{
	static struct status_page page;
	for (const struct user *user = manager->users; user; user = user->next)
		for (const struct worker *worker = user->workers; worker; worker = worker->next) {
			copy_page(worker, &page);
			visit(context, user->uid, worker->pid, &page);
		}
}

void manager_deinit(struct worker_manager *manager)
{
	for (struct user *user = manager->users, *next_user; user; user = next_user) {
		next_user = user->next;
		for (struct worker *worker = user->workers, *next; worker; worker = next) {
			next = worker->next;
			worker_on(worker, WORKER_ENDED);
		}
		if (user_cgroups_enabled(&manager->cgroups))
			user_cgroups_remove(&manager->cgroups, user->uid);
		free(user);
	}
	manager->users = NULL;
	manager_reap(manager);
	unread_deinit(&manager->unread);
	ring_quota_deinit(&manager->ring_quota);
	user_cgroups_close(&manager->cgroups);
	if (manager->config_fd >= 0)
		close(manager->config_fd);
}
