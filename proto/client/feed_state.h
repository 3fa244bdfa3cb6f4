/*
 * Private state of a feed. feed.c creates and frees it, subscribe.c opens it at a daemon, batches.c
 * waits for batches and hands them out, reopen.c reopens it after a lost connection. It belongs to
 * the feed's thread; only feed_release() may run in any thread. feed_release() holds the lock, and
 * so does the feed's thread when it changes the fields that feed_release() reads. After a fork,
 * connection.fd is -1 in the child, which touches nothing else. Internal: not installed.
 */
#pragma once

#include "proto/client/connection.h"
#include "proto/client/feed.h"
#include "proto/client/forks.h"
#include "proto/ring.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The ring of a lost connection, kept mapped while the caller holds batches in it or a device has
 * it registered.
 */
struct old_ring {
	struct old_ring *next; /* next older ring */
	struct ring_consumer ring;
	uint64_t base; /* as in struct feed */
	bool kept;
};

/* State of reopening the feed. Only reopen.c changes it. */
struct reopening {
	/* the connection is lost, its ring put away, and the next one not established */
	bool waiting;
	bool given_up;   /* feed->failed is final */
	int64_t lost_ms; /* time of the loss, clock_ms() */
	int64_t next_ms; /* time of the next attempt, clock_ms() */
	/* since when the daemon's limits have refused the feed; 0 if they have not */
	int64_t refused_ms;
	unsigned attempts;         /* attempts since the loss */
	unsigned fruitless;        /* consecutive connections lost before they delivered a batch */
	struct ring_header layout; /* layout of the ring that was put away last */
	char said[FEED_ERROR_MAX]; /* text of feed_reconnect_text() */
};

struct feed {
	struct connection connection; /* .fd keeps its number for the life of the feed */
	/* guards the connection's socket, whose fd becomes -1 in a forked child */
	struct fork_guard guard;
	int wake;  /* epoll fd of feed_fd(): watches the socket, or the timer while waiting */
	int timer; /* timerfd, created when a connection is first lost */
	/* protects base, kept, old, and ring as far as feed_release() uses it */
	pthread_mutex_t lock;
	struct ring_consumer ring; /* zero while waiting */
	uint64_t base; /* batches taken on earlier connections; added to the ring's batch numbers */
	bool kept;     /* set by feed_keep_memory() */
	struct old_ring *old; /* newest first */
	/* as passed to feed_open(), with owned copies of the strings */
	struct feed_options options;
	struct reopening again;
	bool armed;         /* the ring's waiting word may be set */
	int failed;         /* negative errno once the connection is lost */
	bool shutting_down; /* the daemon has announced that it is shutting down */
	/* negative errno after an invalid batch; final, since the daemon is no longer trusted */
	int broken;
	uint64_t epoch, batch; /* position of the next batch to hand out */
	struct feed_info info;
	uint32_t field_count;
	char *field_names[RING_FIELDS_MAX];
	char error[FEED_ERROR_MAX];
};

/* Size of feed_options in releases without FEED_TEXT. */
enum { FEED_OPTIONS_SIZE_1 = offsetof(struct feed_options, cut_values) };

/*
 * Number of bytes of a versioned structure known to caller and library; callers 0 means the first
 * release.
 */
size_t feed_known_size(size_t callers, size_t first, size_t ours);
/*
 * Sets the position of the next batch. The last batch of an epoch is followed by the next epoch's
 * first.
 */
void feed_set_position(struct feed *feed, uint64_t epoch, uint64_t batch, bool ended);

/* Allocates an unopened feed, or returns NULL if out of memory. feed_close() frees it. */
struct feed *feed_new(void);
/*
 * Connects, subscribes and maps the ring; fills in connection, ring, info, position and field
 * names.
 */
int feed_subscribe(struct feed *feed, const struct feed_options *options, char *error);

/* Returns true if the feed should be reopened after its loss. */
bool reopen_wanted(const struct feed *feed);
/*
 * Tries to reopen the feed at its position until deadline_ms (of clock_ms(); negative means no
 * limit). Returns 0 when reopened, FEED_END if no batch was left, -ETIMEDOUT at the deadline,
 * -ENOBUFS if the caller holds batches of too many old connections, or another errno when it gives
 * up. The error text is in feed->error.
 */
int feed_reopen(struct feed *feed, int64_t deadline_ms);
/* Adds the connection's socket to the epoll set of feed_fd(). */
int reopen_watch_socket(struct feed *feed);
/*
 * Releases batch `number` of a ring that was put away. -EINVAL if it is not held. Call with the
 * lock held.
 */
int old_ring_release(struct feed *feed, uint64_t number);
void old_rings_free(struct feed *feed);
