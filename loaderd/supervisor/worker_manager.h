/*
 * The workers: one for each user who has asked for something lately. Starts them, hands connections
 * over, reads what they say and what they log, notices their ends. Believes nothing of it, and
 * waits for none of them. The supervisor's thread alone uses it.
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
	int config_fd;    /* the configuration as workers read it */
	bool single_user; /* all belong to one user: log lines need not say whom */
	struct user *users;
	struct worker *dead; /* to be freed after this round of events */
	struct client_table client_table;
	struct unread_replies unread;
	struct user_cgroups cgroups;
	unsigned fds_max; /* that the supervisor may have */
	/* connections of one user, those that have been closed and have unread replies included, */
	unsigned connections_per_user_max;
	unsigned
		connections_max; /* manager_loose_connections(), and then some give way to others */
	unsigned pending_per_worker_max;     /* connections that wait for one worker, */
	unsigned pending_count, pending_max; /* and for all */
	unsigned user_count, worker_count;
	uint64_t start_ns;             /* CLOCK_MONOTONIC */
	uint64_t worker_id, client_id; /* last ones given */
	struct event_source quota_inodes,
		quota_probes; /* ring_quota_sweep() has something to find out */
	uint64_t sweep_due_ns, renewal_due_ns;
	uint64_t full_sweep_due_ns; /* when a sweep next looks at all rings */
	uint64_t sweep_early_ns;    /* rings are not swept before this */
	uint64_t
		retry_pending_ns; /* when connections that wait are tried again; UINT64_MAX: none */
	uint64_t refusal_log_ns;  /* log_allowed() */
	bool draining;
	/* The kernel lets clients pass descriptors that nobody asked for, whose closing may wait.
	 */
	bool clients_may_pass_fds;
};

/*
 * Whether the descriptors suffice for a user's worker, where `newest` is the number that the next
 * one gets. False: ret_min is the limit that would.
 */
bool manager_has_fds(const struct worker_manager *manager, int newest, unsigned *ret_min);
/* -errno. config lives as long as the manager. memory: bytes of all rings. */
int manager_init(struct worker_manager *manager, const struct config *config,
		 struct blocking_pool *blocking_pool, int epoll_fd, uint64_t memory,
		 bool single_user);
/*
 * Takes another configuration, which the caller copies to manager->config afterwards: its limits
 * and weights hold from now on, and workers are told what they take while they run. memory: as for
 * manager_init(). -errno: nothing has changed.
 */
int manager_reload(struct worker_manager *manager, const struct config *config, uint64_t memory);
/* Every worker has ended, or is left behind. */
void manager_deinit(struct worker_manager *manager);
/*
 * A connection of this user's, taken over: goes to the user's worker, which is started if there is
 * none.
 */
void manager_add_connection(struct worker_manager *manager, uid_t uid, pid_t pid, int fd);
/*
 * Tells a client why it is not served, as far as its socket takes that at once and its user has
 * read what was sent before, and hangs up. Takes fd over.
 */
__attribute__((format(printf, 5, 6))) void manager_reject(struct worker_manager *manager, uid_t uid,
							  int fd, int code, const char *format,
							  ...);
/*
 * Whether few descriptors are left, by the number of the newest: the kernel gives the lowest that
 * is free.
 */
bool manager_is_short_of_fds(const struct worker_manager *manager, int newest);
/* Starts a user's worker before anybody asks for it. */
int manager_prestart(struct worker_manager *manager, uid_t uid);
/* Lets all finish and end. */
void manager_drain(struct worker_manager *manager);
/* Ends them now. */
void manager_kill_all(struct worker_manager *manager);
/* When manager_on_time() wants to be called. */
uint64_t manager_due_ns(const struct worker_manager *manager);
void manager_on_time(struct worker_manager *manager, uint64_t now_ns);
/*
 * A copy of the pages of all workers: calls visit for each with its user, process and page, whose
 * texts end and whose counts are within bounds; nothing else of it can be relied on.
 */
void manager_visit_status(const struct worker_manager *manager,
			  void (*visit)(void *context, uid_t uid, pid_t pid,
					const struct status_page *page),
			  void *context);
