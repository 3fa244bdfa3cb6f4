#include "loaderd/supervisor/unread_replies.h"

#include "format/base/system/clock.h"
#include "loaderd/event_source.h"

#include <linux/sockios.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

struct unread_user {
	struct unread_user *next;
	struct unread_connection *first; /* newest first */
	uid_t uid;
	unsigned count;
	unsigned wakeups; /* wake-ups after which replies were still unread, since the last pause */
	uint64_t dropped_until_ns; /* when the last eviction is forgiven */
};
#define FORGIVE_NS (UNREAD_FORGIVE_S * UINT64_C(1000000000))

/*
 * A client wakes the supervisor whenever it shuts down its end, which it can repeat endlessly.
 * After WAKEUPS_MAX wake-ups of a user that left replies unread, each further one removes its
 * connection from epoll for up to REST_NS.
 */
enum { WAKEUPS_MAX = 64 };
#define REST_NS UINT64_C(250000000)

enum unread_state {
	UNREAD_ADDED,   /* just added to epoll; the first event does not count as a wake-up */
	UNREAD_WATCHED, /* in epoll */
	UNREAD_RESTING, /* out of epoll for a while */
	UNREAD_CLOSED,  /* freed by unread_reap() */
};

struct unread_connection {
	enum unread_state state;
	struct event_source source;
	struct unread_replies *unread;
	struct unread_user *user;
	struct unread_connection *next;
	bool may_wait;
};

static struct unread_user *unread_find(const struct unread_replies *unread, uid_t uid)
{
	struct unread_user *user = unread->users;
	while (user && user->uid != uid)
		user = user->next;
	return user;
}

static unsigned unread_evicted(const struct unread_user *user, uint64_t now_ns)
{
	if (user->dropped_until_ns <= now_ns)
		return 0;
	return (unsigned)((user->dropped_until_ns - now_ns + FORGIVE_NS - 1) / FORGIVE_NS);
}

/* Frees users without connections or evictions to forgive. */
static void unread_forget_users(struct unread_replies *unread)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	for (struct unread_user **at = &unread->users; *at;) {
		struct unread_user *user = *at;
		if (user->count > 0 || unread_evicted(user, now_ns) > 0) {
			at = &user->next;
			continue;
		}
		*at = user->next;
		free(user);
	}
}

/*
 * Returns whether the peer has unread data. For a Unix socket, SIOCOUTQ is the memory of buffers
 * queued at the peer. The kernel wakes us before it has uncharged a buffer's last byte; no buffer
 * is smaller than BUFFER_MIN.
 */
static bool has_unread(int fd)
{
	enum { BUFFER_MIN = 128 };
	int unread = 0;
	return ioctl(fd, SIOCOUTQ, &unread) == 0 && unread >= BUFFER_MIN;
}

static void unread_close_fd(struct unread_replies *unread, uid_t uid, int fd, bool may_wait)
{
	if (may_wait)
		blocking_pool_close(unread->blocking_pool, uid, fd);
	else
		close(fd);
}

static void unread_end(struct unread_connection *connection)
{
	struct unread_replies *unread = connection->unread;
	struct unread_user *user = connection->user;
	struct unread_connection **at = &user->first;
	while (*at != connection)
		at = &(*at)->next;
	*at = connection->next;
	unread->count--;
	unread->resting -= connection->state == UNREAD_RESTING;
	connection->state = UNREAD_CLOSED;
	event_source_remove(unread->epoll_fd, &connection->source);
	unread_close_fd(unread, user->uid, connection->source.fd, connection->may_wait);
	connection->next = unread->dead;
	unread->dead = connection;
	user->count--;
}

/* Edge-triggered: epoll reports EPOLLHUP on a shut-down socket all the time. */
static void unread_watch(struct unread_connection *connection)
{
	connection->state = UNREAD_ADDED;
	if (event_source_add(connection->unread->epoll_fd, &connection->source,
			     EPOLLOUT | EPOLLET) < 0)
		unread_end(connection);
}

static void unread_throttle(struct unread_connection *connection)
{
	struct unread_replies *unread = connection->unread;
	event_source_remove(unread->epoll_fd, &connection->source);
	connection->state = UNREAD_RESTING;
	if (unread->resting++ == 0)
		unread->rest_until_ns = clock_ns(CLOCK_MONOTONIC) + REST_NS;
}

/* The client has read something, or shut down or closed its end. */
static void on_read(struct event_source *source, uint32_t events)
{
	struct unread_connection *connection = CONTAINER_OF(unread_connection, source, source);
	if (connection->state == UNREAD_CLOSED || connection->state == UNREAD_RESTING)
		return;
	if (!has_unread(source->fd))
		unread_end(connection);
	else if (connection->state == UNREAD_ADDED)
		connection->state = UNREAD_WATCHED;
	else if (++connection->user->wakeups > WAKEUPS_MAX)
		unread_throttle(connection);
}

static struct unread_user *unread_user_of(struct unread_replies *unread, uid_t uid)
{
	struct unread_user *user = unread_find(unread, uid);
	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	*user = (struct unread_user){.next = unread->users, .uid = uid};
	unread->users = user;
	return user;
}

static bool unread_keep(struct unread_replies *unread, uid_t uid, int fd, bool may_wait)
{
	struct unread_connection *connection = malloc(sizeof(*connection));
	struct unread_user *user = connection ? unread_user_of(unread, uid) : NULL;
	if (!user) {
		free(connection);
		return false;
	}
	*connection = (struct unread_connection){
		.source = {fd, on_read},
		.unread = unread,
		.user = user,
		.next = user->first,
		.may_wait = may_wait,
	};
	user->first = connection;
	user->count++;
	unread->count++;
	unread_watch(connection);
	return true;
}

void unread_add(struct unread_replies *unread, uid_t uid, int fd, bool may_wait)
{
	shutdown(fd, SHUT_RDWR);
	if (!has_unread(fd) || !unread_keep(unread, uid, fd, may_wait))
		unread_close_fd(unread, uid, fd, may_wait);
}

unsigned unread_open(const struct unread_replies *unread, uid_t uid)
{
	const struct unread_user *user = unread_find(unread, uid);
	return user ? user->count : 0;
}

unsigned unread_count(const struct unread_replies *unread, uid_t uid)
{
	const struct unread_user *user = unread_find(unread, uid);
	return user ? user->count + unread_evicted(user, clock_ns(CLOCK_MONOTONIC)) : 0;
}

unsigned unread_largest(const struct unread_replies *unread, uid_t *ret_uid)
{
	unsigned most = 0;
	for (const struct unread_user *user = unread->users; user; user = user->next) {
		if (user->count <= most)
			continue;
		most = user->count;
		*ret_uid = user->uid;
	}
	return most;
}

bool unread_evict(struct unread_replies *unread, uid_t uid)
{
	const uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct unread_user *user = unread_find(unread, uid);
	if (!user || !user->first)
		return false;
	struct unread_connection *oldest = user->first;
	while (oldest->next)
		oldest = oldest->next;
	user->dropped_until_ns = MAX(user->dropped_until_ns, now_ns) + FORGIVE_NS;
	unread_end(oldest);
	return true;
}

uint64_t unread_due_ns(const struct unread_replies *unread)
{
	return unread->resting > 0 ? unread->rest_until_ns : UINT64_MAX;
}

static void unread_wake(struct unread_user *user)
{
	user->wakeups = 0;
	for (struct unread_connection *connection = user->first, *next; connection;
	     connection = next) {
		next = connection->next;
		if (connection->state != UNREAD_RESTING)
			continue;
		connection->state = UNREAD_WATCHED;
		connection->unread->resting--;
		if (has_unread(connection->source.fd))
			unread_watch(connection);
		else
			unread_end(connection);
	}
}

void unread_on_time(struct unread_replies *unread, uint64_t now_ns)
{
	if (now_ns < unread_due_ns(unread))
		return;
	for (struct unread_user *user = unread->users; user; user = user->next)
		unread_wake(user);
}

void unread_reap(struct unread_replies *unread)
{
	while (unread->dead) {
		struct unread_connection *connection = unread->dead;
		unread->dead = connection->next;
		free(connection);
	}
	unread_forget_users(unread);
}

void unread_deinit(struct unread_replies *unread)
{
	for (struct unread_user *user = unread->users; user; user = user->next) {
		user->dropped_until_ns = 0;
		while (user->first)
			unread_end(user->first);
	}
	unread_reap(unread);
}
