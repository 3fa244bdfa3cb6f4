/*
 * A scripted malicious daemon for tests of libfeed. It runs in a thread of the test and executes
 * one row's play() on every connection, so it can send frames, fds and ring contents that a real
 * worker cannot send unless it has escaped its sandbox. puppet_run_rows() starts and stops the
 * daemon for each row and checks the client's result, its error text, and that it leaks no fd.
 */
#pragma once

#include "tests/unit/proto/testing.h"

#include "proto/client/connection.h"
#include "proto/client/feed.h"
#include "proto/ring.h"

#include <pthread.h>
#include <stdbool.h>

enum {
	BATCH_SIZE = 8,
	SLOTS = 4,
	BATCHES = 10,
	SIDE = 4,
	VALUE_SIZE = 16,
	FDS_MAX = FRAME_FDS_MAX
};

struct puppet {
	char socket[64];
	int listen_fd, fd;
	pthread_t thread;
	void (*play)(struct puppet *puppet);
	unsigned connections;
	struct frame_reader reader;
	/* Current feed: */
	struct ring_geometry geometry;
	struct ring_producer ring;
	Loaderd__FeedOpened opened;
	uint64_t epoch, batch; /* number of the next batch */
};

struct row {
	const char *name;
	void (*play)(struct puppet *puppet);
	int (*client)(const struct puppet *puppet, char *error);
	int code;
	const char *text;
};

/* Receives one request and discards it. Returns false if the client has hung up. */
bool puppet_hear_and_forget(struct puppet *p);
void puppet_hear_to_the_end(struct puppet *p);
void puppet_tell(struct puppet *p, const Loaderd__Reply *reply, const int *fds, unsigned fd_count);
void puppet_ask_for_files(struct puppet *p, uint32_t first, uint32_t most, bool direct);
/*
 * Receives OpenFeed and fills p->opened and p->geometry with the reply of an honest daemon, which
 * the caller may alter before sending it. Returns false if the client has hung up.
 */
bool puppet_hear_wish(struct puppet *p);
void puppet_send_ring(struct puppet *p, const int *fds, unsigned fd_count);
void puppet_send_opened(struct puppet *p);
/* Sends ring and FeedOpened. Returns false if the client rejects the ring. */
bool puppet_grant(struct puppet *p);
/* Publishes `count` batches, at most one per slot. */
void puppet_publish(struct puppet *p, unsigned count);
/* Opens an honest feed and publishes `count` batches. */
bool puppet_begin_feed(struct puppet *p, unsigned count);
void puppet_send_error(struct puppet *p, int code, const char *text);
int puppet_request_status(const struct puppet *p, char *error);
int puppet_request_dataset(const struct puppet *p, char *error);
int puppet_request_feed(const struct puppet *p, char *error);
/*
 * Takes batches until feed_next() fails. Holds the first SLOTS - 1 batches and checks at the end
 * that their pixels have not changed. Returns the result of feed_next().
 */
int puppet_take_batches(const struct puppet *p, char *error);
void puppet_run_rows(const struct row *rows, size_t count);
/*
 * Path of the dataset file that all feeds use. The group setup puppet_make_dataset() creates it,
 * and the group teardown puppet_remove_dataset() removes it.
 */
extern char puppet_dataset[];
int puppet_make_dataset(void **state);
int puppet_remove_dataset(void **state);
