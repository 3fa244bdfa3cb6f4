/*
 * The users' workers: one process for each user with a recent request. Spawns workers, passes them
 * connections, reads their records and logs, reaps them. Everything a worker sends is untrusted,
 * and the manager never blocks on a worker. Supervisor thread only.
 */
#pragma once

#include "loaderd/config.h"
#include "loaderd/event_source.h"
#include "loaderd/supervisor/blocking_pool.h"
#include "loaderd/supervisor/clients.h"
#include "loaderd/supervisor/ring_quota.h"
#include "loaderd/supervisor/unread_replies.h"
#include "loaderd/supervisor/user_cgroups.h"
#include "loaderd/worker_ipc.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct user;

struct worker_manager {
	const struct config *config;
	struct blocking_pool *blocking_pool;
	struct ring_quota ring_quota;
	int epoll_fd;
	int config_fd;    /* the configuration in the form that workers read */
	bool single_user; /* a private daemon: log lines do not name the user */
	struct user *users;
	struct worker *dead; /* freed after this round of events */
	struct client_table client_table;
	struct unread_replies unread;
	struct user_cgroups cgroups;
	unsigned fds_max; /* RLIMIT_NOFILE of the supervisor */
	/* Limit of one user's connections, including closed ones with unread replies. */
	unsigned connections_per_user_max;
	unsigned connections_max;        /* limit of manager_loose_connections(); above it, evict */
	unsigned pending_per_worker_max; /* connections queued for one worker */
	unsigned pending_count, pending_max; /* connections queued for all workers */
	unsigned user_count, worker_count;
	uint64_t start_ns;                              /* CLOCK_MONOTONIC */
	uint64_t worker_id, client_id;                  /* the last numbers assigned */
	struct event_source quota_inodes, quota_probes; /* readable: ring_quota_sweep() has work */
	uint64_t sweep_due_ns, renewal_due_ns;
	uint64_t full_sweep_due_ns; /* when to sweep all rings next */
	uint64_t sweep_early_ns;    /* rings are not swept before this */
	uint64_t retry_pending_ns;  /* when to retry queued connections; UINT64_MAX if none */
	uint64_t refusal_log_ns;    /* log_allowed() */
	bool draining;
	/*
	 * The kernel does not support refusing fds that clients pass unasked (SO_PASSRIGHTS, Linux
	 * 6.16), so closing a connection may block.
	 */
	bool clients_may_pass_fds;
};

/*
 * Returns whether RLIMIT_NOFILE suffices for one user's worker. newest: the lowest free fd number.
 * If it does not, *ret_min is the smallest limit that would.
 */
bool manager_has_fds(const struct worker_manager *manager, int newest, unsigned *ret_min);
/*
 * config must outlive the manager. memory: limit of all rings together, in bytes. Returns 0 or
 * -errno.
 */
int manager_init(struct worker_manager *manager, const struct config *config,
		 struct blocking_pool *blocking_pool, int epoll_fd, uint64_t memory,
		 bool single_user);
/*
 * Applies a new configuration; the caller copies it to *manager->config afterwards. Limits and
 * weights change at once, and workers receive the keys that can change at run time. memory: as for
 * manager_init(). On -errno nothing has changed.
 */
int manager_reload(struct worker_manager *manager, const struct config *config, uint64_t memory);
/* Abandons workers that still run. */
void manager_deinit(struct worker_manager *manager);
/* Passes a connection to its user's worker, spawning it if needed. Takes over fd. */
void manager_add_connection(struct worker_manager *manager, uid_t uid, pid_t pid, int fd);
/*
 * Sends an Error and closes the connection. Drops the Error if the socket is full or the user has
 * left too many replies unread. code: a positive errno. Takes over fd.
 */
__attribute__((format(printf, 5, 6))) void manager_reject(struct worker_manager *manager, uid_t uid,
							  int fd, int code, const char *format,
							  ...);
/*
 * Returns whether the supervisor is short of fds. newest: the fd opened last; as the kernel assigns
 * the lowest free number, it tells how many are open.
 */
bool manager_is_short_of_fds(const struct worker_manager *manager, int newest);
/* Spawns a user's worker before the first connection. Returns 0 or -errno. */
int manager_prestart(struct worker_manager *manager, uid_t uid);
/* Asks all workers to finish their feeds and exit. */
void manager_drain(struct worker_manager *manager);
/* Kills all workers. */
void manager_kill_all(struct worker_manager *manager);
/* When to call manager_on_time(), in CLOCK_MONOTONIC. */
uint64_t manager_due_ns(const struct worker_manager *manager);
void manager_on_time(struct worker_manager *manager, uint64_t now_ns);
/*
 * Calls visit() with a copy of each worker's status page. Texts are terminated and counts within
 * bounds; all other values are untrusted.
 */
void manager_visit_status(const struct worker_manager *manager,
			  void (*visit)(void *context, uid_t uid, pid_t pid,
					const struct status_page *page),
			  void *context);
