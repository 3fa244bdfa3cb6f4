/*
 * A feed as libfeed's own files see it: feed.c is its life, subscribe.c asks a daemon for it,
 * batches.c waits for batches and hands them out, reopen.c opens it again when a daemon has gone.
 * All of it belongs to the feed's thread but for feed_release(), which any thread may call: the
 * lock is held there, and wherever what it looks at changes. After a fork connection.fd is -1 in
 * the child, which touches nothing else. Internal: not installed.
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

/* The ring of a connection that was lost, for as long as batches of it are held or a device knows
 * of it. */
struct old_ring {
	struct old_ring *next; /* older */
	struct ring_consumer ring;
	uint64_t base; /* as in struct feed */
	bool kept;
};

/* How the feed is opened again. reopen.c alone changes it. */
struct reopening {
	bool waiting;    /* the connection is lost, its ring put away, the next one not there yet */
	bool given_up;   /* feed->failed is final */
	int64_t lost_ms; /* when */
	int64_t next_ms; /* the next attempt; clock_ms() */
	int64_t refused_ms; /* since when a limit of the daemon's is in the way; 0: it is not */
	unsigned attempts;  /* since it was lost */
	unsigned fruitless; /* connections in a row that were lost before they brought a batch */
	struct ring_header layout; /* of the ring that was put away last */
	char said[FEED_ERROR_MAX]; /* what feed_reconnect_text() tells */
};

struct feed {
	struct connection connection; /* .fd keeps its number for good */
	struct fork_guard guard; /* of the connection's socket; -1 there means that we are a fork */
	int wake;                /* epoll: the socket, or timer while waiting; feed_fd() */
	int timer;               /* timerfd, once a connection was lost */
	pthread_mutex_t lock;    /* of ring where feed_release() is concerned, base, kept and old */
	struct ring_consumer ring; /* zeros while waiting */
	uint64_t base; /* batches of connections before: a batch's number is this and the ring's */
	bool kept;     /* feed_keep_memory() */
	struct old_ring *old;        /* newest first */
	struct feed_options options; /* as the feed was opened; the texts are its own */
	struct reopening again;
	bool armed;         /* the waiting word may be set */
	int failed;         /* negative errno once the connection is lost */
	bool shutting_down; /* the daemon has said so */
	/* negative errno: a batch made no sense, and nothing that follows is believed */
	int broken;
	uint64_t epoch, batch; /* position after the last batch handed out */
	struct feed_info info;
	uint32_t field_count;
	char *field_names[RING_FIELDS_MAX];
	char error[FEED_ERROR_MAX];
};

/* Up to here, programs do not know of text. */
enum { FEED_OPTIONS_SIZE_1 = offsetof(struct feed_options, cut_values) };

/* Bytes of a versioned structure that both sides know; callers 0: those of the first release. */
size_t feed_known_size(size_t callers, size_t first, size_t ours);
/* Position of the next batch. The one after an epoch's last is the next epoch's first. */
void feed_set_position(struct feed *feed, uint64_t epoch, uint64_t batch, bool ended);

/* An empty one, to be opened; NULL: no memory. feed_close() frees it. */
struct feed *feed_new(void);
/* Connects, subscribes and maps: fills in connection, ring, info, position and field names. */
int feed_subscribe(struct feed *feed, const struct feed_options *options, char *error);

/* Whether a loss is to be made good. */
bool reopen_wanted(const struct feed *feed);
/*
 * Tries to open the feed again at its position until deadline_ms (of clock_ms(); negative: for
 * ever). 0: done; FEED_END: nothing was left to come; -ETIMEDOUT: not yet; -ENOBUFS: batches of too
 * many connections are held; others: given up. Errors are in feed->error.
 */
int feed_reopen(struct feed *feed, int64_t deadline_ms);
/* Makes feed_fd()'s descriptor look at the connection's socket. */
int reopen_watch_socket(struct feed *feed);
/* Gives back batch `number`, of a ring that was put away. -EINVAL: not held. Under the lock. */
int old_ring_release(struct feed *feed, uint64_t number);
void old_rings_free(struct feed *feed);
