/*
 * A daemon that can do everything: a thread of the test, which does with each connection what a row
 * says, and sends what no worker could, behind the walls that a service puts up.
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
	/* Of the feed: */
	struct ring_geometry geometry;
	struct ring_producer ring;
	Loaderd__FeedOpened opened;
	uint64_t epoch, batch; /* the next one's */
};

struct row {
	const char *name;
	void (*play)(struct puppet *puppet);
	int (*client)(const struct puppet *puppet, char *error);
	int code;
	const char *text;
};

/* False when the client has hung up. */
bool puppet_hear_and_forget(struct puppet *p);
void puppet_hear_to_the_end(struct puppet *p);
void puppet_ask_for_files(struct puppet *p, uint32_t first, uint32_t most, bool direct);
/*
 * What an honest daemon would answer to OpenFeed, to be changed before it is. False: the client has
 * hung up.
 */
bool puppet_hear_wish(struct puppet *p);
void puppet_send_ring(struct puppet *p, const int *fds, unsigned fd_count);
void puppet_send_opened(struct puppet *p);
/* False: the client did not want it. */
bool puppet_grant(struct puppet *p);
/* At most as many as there are slots. */
void puppet_publish(struct puppet *p, unsigned count);
/* An honest feed of so many batches. */
bool puppet_begin_feed(struct puppet *p, unsigned count);
void puppet_send_error(struct puppet *p, int code, const char *text);
int puppet_request_status(const struct puppet *p, char *error);
int puppet_request_dataset(const struct puppet *p, char *error);
int puppet_request_feed(const struct puppet *p, char *error);
/*
 * Takes batches until none come, and sees that those before the last stay what they were while they
 * are held.
 */
int puppet_take_batches(const struct puppet *p, char *error);
void puppet_run_rows(const struct row *rows, size_t count);
/* The file that feeds ask for, there between the two that a group of tests begins and ends with. */
extern char puppet_dataset[];
int puppet_make_dataset(void **state);
int puppet_remove_dataset(void **state);
