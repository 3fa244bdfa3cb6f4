/*
 * Closed connections whose clients have not read all replies. Unread replies stay charged to the
 * service for as long as the client keeps its end open, even after the service has closed its own.
 * So the service keeps a descriptor of each, which counts against the user, until the client has
 * read everything or closed its end. Used by the supervisor's thread alone.
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
	struct unread_user *users; /* with such connections */
	unsigned resting;          /* connections that are not source, */
	uint64_t rest_until_ns;    /* until then, in CLOCK_MONOTONIC */
	struct unread_connection *dead;
};

/*
 * Shuts down a user's connection and takes over fd, which it closes at once if nothing is unread or
 * memory is short. may_wait: close() may block, as the client could pass descriptors
 * (blocking_pool.h).
 */
void unread_add(struct unread_replies *unread, uid_t uid, int fd, bool may_wait);
/* Connections of this user that are kept. */
unsigned unread_open(const struct unread_replies *unread, uid_t uid);
/* The same, plus those that unread_evict() closed recently. */
unsigned unread_count(const struct unread_replies *unread, uid_t uid);
/* The largest unread_open() of a user, and that user; 0 if none are kept. */
unsigned unread_largest(const struct unread_replies *unread, uid_t *ret_uid);
/*
 * Closes this user's oldest connection to free a descriptor. Its unread replies remain, and nothing
 * tells when they are read: the connection still counts, and each UNREAD_FORGIVE_S one such count
 * is dropped. Returns false if there is none.
 */
bool unread_evict(struct unread_replies *unread, uid_t uid);
/* When to call unread_on_time(); UINT64_MAX: never. */
uint64_t unread_due_ns(const struct unread_replies *unread);
/* Checks connections that woke the supervisor too often, and watches them again. */
void unread_on_time(struct unread_replies *unread, uint64_t now_ns);
/* Frees closed connections, once no pending event points to one. */
void unread_reap(struct unread_replies *unread);
/* Closes all. */
void unread_deinit(struct unread_replies *unread);
