/*
 * Connections that have been shut down and whose clients have not read all that they were sent.
 * What is unread stays charged to the service for as long as the client keeps its end, whoever
 * closes the service's. So a descriptor of each is kept, and counts against its user, until the
 * client has read everything or closed its end. The supervisor's thread alone uses it.
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
	struct unread_user *users; /* those who have any */
	unsigned resting;          /* connections that are not source, */
	uint64_t rest_until_ns;    /* of CLOCK_MONOTONIC, until when */
	struct unread_connection *dead;
};

/*
 * Shuts a user's connection down and takes fd over: it is closed at once if nothing is unread, or
 * if there is no memory to keep it. may_wait: closing it may, because the client could put
 * descriptors into it (blocking_pool.h).
 */
void unread_add(struct unread_replies *unread, uid_t uid, int fd, bool may_wait);
/* Connections that this user has here. */
unsigned unread_open(const struct unread_replies *unread, uid_t uid);
/* These, and those that unread_evict() has closed lately. */
unsigned unread_count(const struct unread_replies *unread, uid_t uid);
/* The largest count of connections that are here, and whose they are; 0: there are none. */
unsigned unread_largest(const struct unread_replies *unread, uid_t *ret_uid);
/*
 * Closes a connection of this user's, the oldest, where descriptors are short. What is unread
 * stays, and nothing tells any more when it has been read: it counts on, and each UNREAD_FORGIVE_S
 * one such connection is forgotten. False: there is none.
 */
bool unread_evict(struct unread_replies *unread, uid_t uid);
/* When unread_on_time() has something to do; UINT64_MAX: never. */
uint64_t unread_due_ns(const struct unread_replies *unread);
/* Looks at connections that have woken the supervisor too often, and watches them again. */
void unread_on_time(struct unread_replies *unread, uint64_t now_ns);
/* Frees those that have been closed, when no event can name them any more. */
void unread_reap(struct unread_replies *unread);
/* Closes all. */
void unread_deinit(struct unread_replies *unread);
