#include "loaderd/supervisor/crew.h"

#include "format/base/copy_once.h"
#include "format/base/system/clock.h"
#include "loaderd/log.h"
#include "loaderd/supervisor/crew_internal.h"
#include "loaderd/supervisor/outfit.h"
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
 * The kernel counts descriptors on their way by user, and the service is one: none may have all
 * because its worker does not take them.
 */
static unsigned waiting_share(unsigned descriptors)
{
	unsigned most = descriptors / ARRIVALS_SHARE;
	return most < ARRIVALS_LEAST ? ARRIVALS_LEAST : most;
}

bool crew_has_descriptors(const struct crew *crew, int newest, unsigned *ret_least)
{
	unsigned most = crew->descriptors_most;
	while ((unsigned)newest + DESCRIPTORS_FIRST + most / CONNECTIONS_SHARE +
		       waiting_share(most) + DESCRIPTORS_SPARE >
	       most)
		most++;
	*ret_least = most;
	return most == crew->descriptors_most;
}

unsigned crew_connections(const struct crew *crew)
{
	return crew->house.ringless + crew->unread.count;
}

static void on_inode(struct watched *watched, uint32_t events)
{
	struct crew *crew = OWNER_OF(crew, ledger_inodes, watched);
	ledger_read_events(&crew->ledger);
	crew->sweep_due_ns = 0;
}

static void on_probe(struct watched *watched, uint32_t events)
{
	struct crew *crew = OWNER_OF(crew, ledger_probes, watched);
	ledger_read_events(&crew->ledger);
	crew->sweep_due_ns = 0;
}

static int crew_watch_ledger(struct crew *crew)
{
	int r = ledger_init(&crew->ledger);
	if (r == 0 && crew->ledger.inotify_fd >= 0)
		r = crew_watch(crew, &crew->ledger_inodes, crew->ledger.inotify_fd, on_inode);
	return r < 0 ? r : crew_watch(crew, &crew->ledger_probes, crew->ledger.event_fd, on_probe);
}

/* What follows from the configuration alone. */
static void crew_configure(struct crew *crew, const struct config *config, uint64_t memory)
{
	uint64_t per_user = config->shared_memory_per_user;
	if (per_user == 0)
		per_user = crew->for_one ? memory : memory / 2;
	/* More than a worker serves, which tells those beyond its own limit. */
	crew->connections_most = (unsigned)config->connections_per_user + ARRIVALS_MAX;
	crew->ledger.most = memory;
	crew->ledger.most_per_user = per_user;
	/* Rings outlive their feeds where clients hold on to batches. */
	crew->ledger.rings_per_user = 4 * (unsigned)config->feeds_per_user;
	/* Each takes two descriptors for as long as anybody keeps it. */
	crew->ledger.rings_all = crew->descriptors_most / CONNECTIONS_SHARE / LINK_FDS_MAX;
	crew->ledger.rings_share = crew->for_one ? 0 : RINGS_SHARE;
	crew->ledger.writable_rings = config->writable_rings;
}

int crew_init(struct crew *crew, const struct config *config, struct closer *closer, int epoll_fd,
	      uint64_t memory, bool for_one)
{
	struct rlimit descriptors = {.rlim_cur = INT32_MAX};
	getrlimit(RLIMIT_NOFILE, &descriptors);
	unsigned descriptors_most =
		(unsigned)(descriptors.rlim_cur < INT32_MAX ? descriptors.rlim_cur : INT32_MAX);
	unsigned waiting_most = waiting_share(descriptors_most);
	*crew = (struct crew){
		.config = config,
		.house = {.epoll_fd = epoll_fd, .unread = &crew->unread},
		.unread = {.epoll_fd = epoll_fd, .closer = closer},
		.connections_all = descriptors_most / CONNECTIONS_SHARE,
		.descriptors_most = descriptors_most,
		.groups.fd = -1,
		.arrivals_most = waiting_most > ARRIVALS_MAX ? ARRIVALS_MAX : waiting_most,
		.waiting_most = waiting_most,
		.closer = closer,
		.epoll_fd = epoll_fd,
		.for_one = for_one,
		.start_ns = clock_ns(CLOCK_MONOTONIC),
		.ledger = {.has_leases = ring_leases_work() > 0, .closer = closer},
	};
	crew_configure(crew, config, memory);
	crew->config_fd = outfit_config(config);
	if (crew->config_fd < 0)
		return crew->config_fd;
	return crew_watch_ledger(crew);
}

/* Has nothing and owes nothing: a debt that was forgotten with the worker would be no limit. */
static bool is_away(const struct crew_user *user, uint64_t now_ns)
{
	return !user->workers && user->account.rings == 0 && now_ns >= user->start_debt_ns;
}

static void forget_user(struct crew *crew, struct crew_user *user)
{
	struct crew_user **at = &crew->users;
	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
	crew->user_count--;
	if (groups_given(&crew->groups))
		groups_remove(&crew->groups, user->uid);
	free(user);
}

void crew_forget_if_done(struct crew *crew, struct crew_user *user)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	if (is_away(user, now_ns) && now_ns >= user->remember_until_ns)
		forget_user(crew, user);
}

/* False: the kernel has no memory for it now. */
bool crew_look_again(const struct crew *crew, struct watched *watched, uint32_t events)
{
	int r = watched->fd < 0 ? 0 : watched_add(crew->epoll_fd, watched, events);
	return r == 0 || r == -EEXIST;
}

void crew_unwatch(struct crew *crew, struct watched *watched)
{
	if (watched->fd < 0)
		return;
	watched_remove(crew->epoll_fd, watched);
	close(watched->fd);
	watched->fd = -1;
}

static void crew_bury(struct crew *crew)
{
	guests_bury(&crew->house);
	unread_bury(&crew->unread);
	while (crew->dead) {
		struct worker *worker = crew->dead;
		crew->dead = worker->next;
		free(worker);
	}
}

int crew_watch(struct crew *crew, struct watched *watched, int fd,
	       void (*ready)(struct watched *, uint32_t))
{
	*watched = (struct watched){fd, ready};
	return watched_add(crew->epoll_fd, watched, EPOLLIN);
}

/*
 * What is kept of users who are away is for their own good, and gives way to somebody who has come.
 * False: nobody is away.
 */
static bool forget_somebody(struct crew *crew)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
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

static void tell_worker(struct worker *worker, const struct link_order *order)
{
	char who[32];
	int r = link_send(worker->socket, order, NULL, 0);
	if (r == 0)
		return;
	crew_whose(worker, who);
	log_warning("%sthe worker (pid %d) could not be told of the new configuration: %s; the "
		    "next one has it",
		    who, (int)worker->pid, strerror(-r));
}

/* Workers are told numbers alone: what else they would take at once is said of single users. */
static void tell_workers(void *context, const struct config_change *change)
{
	const struct crew *crew = context;
	const struct link_order order = {
		.kind = LINK_SET, .key = change->key, .value = change->value};
	if (change->takes != CONFIG_TAKES_NOW || !change->is_number)
		return;
	for (struct crew_user *user = crew->users; user; user = user->next)
		for (struct worker *worker = user->workers; worker; worker = worker->next)
			tell_worker(worker, &order);
}

static void weigh_users(const struct crew *crew, const struct config *config)
{
	for (const struct crew_user *user = crew->users; user; user = user->next) {
		int value;
		const int *nice = config_nice(config, user->uid, &value) ? &value : NULL;
		int r = groups_weigh(&crew->groups, user->uid, nice);
		if (r < 0)
			log_warning("[users] nice: the control group of user %u keeps its weight: "
				    "%s",
				    (unsigned)user->uid, strerror(-r));
	}
}

int crew_reload(struct crew *crew, const struct config *config, uint64_t memory)
{
	int fd = outfit_config(config);
	if (fd < 0)
		return fd;
	close(crew->config_fd);
	crew->config_fd = fd;
	crew_configure(crew, config, memory);
	config_compare(crew->config, config, tell_workers, crew);
	weigh_users(crew, config);
	return 0;
}

void crew_drain(struct crew *crew)
{
	crew->draining = true;
	for_all(crew, crew_drain_worker);
}

void crew_kill(struct crew *crew)
{
	for_all(crew, crew_end_worker);
}

/* Those who say that they are done with a ring have it swept soon, but not each of them. */
static uint64_t sweep_due_ns(const struct crew *crew)
{
	return MAX(crew->sweep_due_ns, crew->sweep_early_ns);
}

uint64_t crew_due_ns(const struct crew *crew)
{
	const uint64_t unread_ns = unread_due_ns(&crew->unread);
	if (!crew->users)
		return unread_ns;
	return MIN(MIN(unread_ns, MIN(sweep_due_ns(crew), crew->renewal_due_ns)),
		   crew->room_due_ns);
}

bool crew_sweep(struct crew *crew, bool *ret_soon)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	const uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (now_ns < crew->sweep_early_ns)
		return false;
	const bool all = now_ns >= crew->full_sweep_due_ns;
	if (all)
		crew->full_sweep_due_ns = now_ns + SWEEP_LATER_NS;
	const bool soon = ledger_sweep(&crew->ledger, all);
	const uint64_t took_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
	crew->sweep_early_ns = now_ns + took_ns + MAX(SWEEP_AGAIN_NS, SWEEP_REST * took_ns);
	if (ret_soon)
		*ret_soon = soon;
	return true;
}

static void forget_users(struct crew *crew)
{
	for (struct crew_user *user = crew->users, *next; user; user = next) {
		next = user->next;
		crew_forget_if_done(crew, user);
	}
}

void crew_on_time(struct crew *crew, uint64_t now_ns)
{
	unread_on_time(&crew->unread, now_ns);
	crew_bury(crew);
	if (now_ns >= crew->room_due_ns) {
		crew->room_due_ns = UINT64_MAX;
		for_all(crew, crew_look_for_room);
	}
	bool soon;
	if (now_ns >= crew->sweep_due_ns && crew_sweep(crew, &soon)) {
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
	unread_deinit(&crew->unread);
	ledger_deinit(&crew->ledger);
	groups_close(&crew->groups);
	if (crew->config_fd >= 0)
		close(crew->config_fd);
}
