/*
 * Closed connections whose clients have not read all replies. The kernel keeps unread replies,
 * charged to the service, for as long as the client keeps its end open, even after the service has
 * closed its own. The service therefore keeps an fd of each such connection, which counts against
 * the user, until the client has read everything or closed its end. Supervisor thread only.
 */
#pragma once

#include "loaderd/supervisor/blocking_pool.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { UNREAD_FORGIVE_S = 60 };

struct unread_connection;
struct unread_user;

struct unread_replies {
	int epoll_fd;
	struct blocking_pool *blocking_pool;
	unsigned count;            /* descriptors */
	struct unread_user *users; /* users with unread connections or evictions not yet forgiven */
	unsigned resting;       /* connections in UNREAD_RESTING: removed from epoll for a while */
	uint64_t rest_until_ns; /* when to watch them again, in CLOCK_MONOTONIC */
	struct unread_connection *dead;
};

/*
 * Shuts down a connection and takes over fd. Closes fd at once if nothing is unread or memory is
 * short. may_wait: close() may block because the client could have passed fds (blocking_pool.h).
 */
void unread_add(struct unread_replies *unread, uid_t uid, int fd, bool may_wait);
/* Returns the number of this user's connections kept here. */
unsigned unread_open(const struct unread_replies *unread, uid_t uid);
/* Returns unread_open() plus the user's recent evictions (see unread_evict()). */
unsigned unread_count(const struct unread_replies *unread, uid_t uid);
/* Returns the largest unread_open() of any user and stores that user, or 0 if there are none. */
unsigned unread_largest(const struct unread_replies *unread, uid_t *ret_uid);
/*
 * Closes this user's oldest connection to free an fd. Whether its replies are still unread can then
 * no longer be observed, so unread_count() still counts the connection; one eviction per user is
 * forgiven every UNREAD_FORGIVE_S. Returns false if the user has no connection here.
 */
bool unread_evict(struct unread_replies *unread, uid_t uid);
/* When to call unread_on_time(), in CLOCK_MONOTONIC; UINT64_MAX for never. */
uint64_t unread_due_ns(const struct unread_replies *unread);
/* Rechecks connections that woke the supervisor too often, and watches them again. */
void unread_on_time(struct unread_replies *unread, uint64_t now_ns);
/* Frees closed connections. Call it when no pending event points to them. */
void unread_reap(struct unread_replies *unread);
/* Closes all connections. */
void unread_deinit(struct unread_replies *unread);
