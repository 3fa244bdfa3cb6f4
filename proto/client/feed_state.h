/*
 * Private state of a feed. feed.c creates and frees it, subscribe.c subscribes at a daemon,
 * batches.c waits for batches and hands them out, reopen.c reopens it after a lost connection. It
 * belongs to the feed's thread; only feed_release() may run in any thread. feed_release() holds the
 * lock, and so does the feed's thread when it changes the fields that feed_release() reads. After a
 * fork, connection.fd is -1 in the child, which touches nothing else. Internal: not installed.
 */
#pragma once

#include "proto/client/connection.h"
#include "proto/client/feed.h"
#include "proto/client/fetch.h"
#include "proto/client/forks.h"
#include "proto/filling.h"
#include "proto/ring.h"

#include <pthread.h>
#include <stdatomic.h>
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
	unsigned attempts;  /* attempts since the loss */
	unsigned fruitless; /* consecutive connections lost before they delivered a batch */
	struct ring_geometry layout; /* layout of the ring that was put away last */
	char text[FEED_ERROR_MAX];   /* of feed_reconnect_text() */
};

struct kept_order; /* order.h */

struct wanted_batch {
	uint64_t epoch;
	uint32_t count;
	uint8_t *request; /* the encoded Want, owned */
	size_t request_size;
};

/*
 * The batches that a wanted feed has asked for and not returned, oldest first. The daemon accepts a
 * limited number, which the forgotten ones count against until they have come: batches beyond that
 * are sent later. Only wants.c changes them: the list, `first` and `count` with the lock held,
 * since feed_close() frees the list in a forked child, too.
 */
struct wanted_batches {
	struct wanted_batch *list; /* [2 * limit], circular; NULL unless the feed is wanted */
	uint32_t limit;            /* slots + FEED_WANTS_AHEAD */
	uint32_t first, count;
	uint32_t sent;      /* the oldest ones, which the daemon has been asked for */
	uint32_t forgotten; /* the oldest of those, which feed_next() discards */
};

/* What FeedOpened says of one section; owned strings. */
struct section_facts {
	char *name, *schema, *view_name;
	uint32_t role, view;
};

struct feed {
	struct connection connection; /* .fd keeps its number for the life of the feed */
	/* guards the connection's socket, whose fd becomes -1 in a forked child */
	struct fork_guard guard;
	int wake;  /* epoll fd of feed_fd(): watches the socket, or the timer while waiting */
	int timer; /* timerfd, created when a connection is first lost */
	/*
	 * protects base, kept, old, and ring as far as feed_release() uses it; held during a fork,
	 * with what feed_close() frees in the child
	 */
	pthread_mutex_t lock;
	/*
	 * Held while a frame is sent. A release that finds it held sets doorbell_due; whoever holds
	 * it then sends the doorbell.
	 */
	pthread_mutex_t sending;
	_Atomic bool doorbell_due;
	struct ring_consumer ring; /* zero while waiting */
	uint64_t base; /* batches taken on earlier connections; added to the ring's batch numbers */
	bool kept;     /* set by feed_keep_memory() */
	struct old_ring *old; /* newest first */
	/* as passed to feed_open(), with owned copies of the strings */
	struct feed_options options;
	struct reopening reopening;
	bool armed;         /* the ring's waiting word may be set */
	int failed;         /* negative errno once the connection is lost */
	bool shutting_down; /* the daemon has announced that it is shutting down */
	/* negative errno after an invalid batch; final, since the daemon is no longer trusted */
	int broken;
	uint64_t epoch, batch; /* position of the next batch to hand out */
	struct feed_info info;
	struct kept_order *order;    /* owned; NULL unless opened with an order */
	struct feed_filling filling; /* options.filling: own descriptors, -1 without */
	/* by part, or of the only dataset: owned; NULL for files on disk */
	struct fetched **fetched;
	uint32_t fetched_count; /* 0 if no dataset is in a store */
	bool fetched_stale;     /* the files of one were removed: reopen the feed with others */
	struct feed_opened_part *parts; /* [info.part_count], owned; never changes */
	uint64_t *bucket_samples;       /* [order->bucket_count], owned; never changes */
	struct wanted_batches wanted;
	uint32_t field_count;
	char *field_names[RING_FIELDS_MAX];
	/* ring version 2: what FeedOpened says of each section; never changes */
	struct section_facts *sections;
	uint32_t section_count;
	uint32_t target_count;               /* of them, the last so many are targets */
	struct ring_geometry section_layout; /* of the first ring; all have the same sections */
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

/* Returns -ECHILD with its text, for calls in a child process. */
int feed_refuse_in_fork(struct feed *feed);

/* Copies and checks what the daemon says of the sections of a ring of version 2. */
int sections_init(struct feed *feed, const struct feed_options *options,
		  const Loaderd__FeedOpened *opened, char *error);
void sections_deinit(struct feed *feed);
/* Returns true if both feeds have sections of the same names and roles, or one has none. */
bool sections_equal(const struct feed *a, const struct feed *b);
/*
 * The ring that holds the batch; NULL if the batch was released and its ring unmapped. Sets
 * *ret_base to the batches of earlier rings. Call with the lock held.
 */
const struct ring_consumer *feed_ring_of(const struct feed *feed, uint64_t number,
					 uint64_t *ret_base);

/* Sends the daemon a doorbell. Never blocks. Any thread. */
void feed_doorbell(struct feed *feed);
/* Prepares a subscribed feed for feed_want(). Returns 0 or -ENOMEM. */
int wants_init(struct feed *feed);
void wants_deinit(struct feed *feed);
/* The batch that is due; NULL if none is wanted. */
const struct wanted_batch *wants_due(const struct feed *feed);
/* Call when the oldest batch, forgotten or due, has been taken from the ring. */
void wants_pop(struct feed *feed);
/* After a reconnect: asks again for all batches but the forgotten ones. */
void wants_resend(struct feed *feed);

/* Returns true if the feed should be reopened after its loss. */
bool reopen_wanted(const struct feed *feed);
/*
 * Tries to reopen the feed at its position until deadline_ms (of clock_ms(); negative means no
 * limit). Returns 0 when reopened, FEED_END if no batch was left, -ETIMEDOUT at the deadline,
 * -ENOBUFS if the caller holds batches of too many old connections, or another errno when it gives
 * up. The error text is in feed->error.
 */
int feed_reopen(struct feed *feed, int64_t deadline_ms);
/* Add the connection's socket, or that of a fetcher, to the set of feed_fd(). */
int reopen_watch_socket(struct feed *feed);
int reopen_watch_fetcher(struct feed *feed, const struct fetched *fetched);
/*
 * Releases batch `number` of a ring that was put away. -EINVAL if it is not held. Call with the
 * lock held.
 */
int old_ring_release(struct feed *feed, uint64_t number);
void old_rings_free(struct feed *feed);
