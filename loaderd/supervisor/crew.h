/*
 * The workers: one for each user who has asked for something lately. Starts them, hands connections
 * over, reads what they say and what they log, notices their ends. Believes nothing of it, and
 * waits for none of them. The supervisor's thread alone uses it.
 */
#pragma once

#include "loaderd/config.h"
#include "loaderd/link.h"
#include "loaderd/supervisor/closer.h"
#include "loaderd/supervisor/groups.h"
#include "loaderd/supervisor/guests.h"
#include "loaderd/supervisor/ledger.h"
#include "loaderd/supervisor/unread.h"
#include "loaderd/watched.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct crew_user;

struct crew {
	const struct config *config;
	struct closer *closer;
	struct ledger ledger;
	int epoll_fd;
	int config_fd; /* the configuration as workers read it */
	bool for_one;  /* all belong to one user: log lines need not say whom */
	struct crew_user *users;
	struct worker *dead; /* to be freed after this round of events */
	struct guest_house house;
	struct unread_set unread;
	struct groups groups;
	unsigned descriptors_most; /* that the supervisor may have */
	/* connections of one user, those that have been closed and have unread replies included, */
	unsigned connections_most;
	unsigned connections_all; /* crew_connections(), and then some give way to others */
	unsigned arrivals_most;   /* connections that wait for one worker, */
	unsigned waiting_count, waiting_most; /* and for all */
	unsigned user_count, worker_count;
	uint64_t start_ns;                           /* CLOCK_MONOTONIC */
	uint64_t worker_id, client_id;               /* last ones given */
	struct watched ledger_inodes, ledger_probes; /* ledger_sweep() has something to find out */
	uint64_t sweep_due_ns, renewal_due_ns;
	uint64_t full_sweep_due_ns; /* when a sweep next looks at all rings */
	uint64_t sweep_early_ns;    /* the ledger is not swept before this */
	uint64_t room_due_ns;    /* when connections that wait are tried again; UINT64_MAX: none */
	uint64_t refusal_log_ns; /* log_allowed() */
	bool draining;
	/* The kernel lets clients pass descriptors that nobody asked for, whose closing may wait.
	 */
	bool arrivals_bring_descriptors;
};

/*
 * Whether the descriptors suffice for a user's worker, where `newest` is the number that the next
 * one gets. False: ret_least is the limit that would.
 */
bool crew_has_descriptors(const struct crew *crew, int newest, unsigned *ret_least);
/* -errno. config lives as long as the crew. memory: bytes of all rings. */
int crew_init(struct crew *crew, const struct config *config, struct closer *closer, int epoll_fd,
	      uint64_t memory, bool for_one);
/*
 * Takes another configuration, which the caller copies to crew->config afterwards: its limits and
 * weights hold from now on, and workers are told what they take while they run. memory: as for
 * crew_init(). -errno: nothing has changed.
 */
int crew_reload(struct crew *crew, const struct config *config, uint64_t memory);
/* Every worker has ended, or is left behind. */
void crew_deinit(struct crew *crew);
/*
 * A connection of this user's, taken over: goes to the user's worker, which is started if there is
 * none.
 */
void crew_connection(struct crew *crew, uid_t uid, pid_t pid, int fd);
/*
 * Tells a client why it is not served, as far as its socket takes that at once and its user has
 * read what was sent before, and hangs up. Takes fd over.
 */
__attribute__((format(printf, 5, 6))) void crew_turn_away(struct crew *crew, uid_t uid, int fd,
							  int code, const char *format, ...);
/*
 * Whether few descriptors are left, by the number of the newest: the kernel gives the lowest that
 * is free.
 */
bool crew_is_short_of_descriptors(const struct crew *crew, int newest);
/* Starts a user's worker before anybody asks for it. */
int crew_start(struct crew *crew, uid_t uid);
/* Lets all finish and end. */
void crew_drain(struct crew *crew);
/* Ends them now. */
void crew_kill(struct crew *crew);
/* When crew_on_time() wants to be called. */
uint64_t crew_due_ns(const struct crew *crew);
void crew_on_time(struct crew *crew, uint64_t now_ns);
/*
 * A copy of the pages of all workers: calls visit for each with its user, process and page, whose
 * texts end and whose counts are within bounds; nothing else of it can be relied on.
 */
void crew_visit(const struct crew *crew,
		void (*visit)(void *context, uid_t uid, pid_t pid, const struct link_page *page),
		void *context);
