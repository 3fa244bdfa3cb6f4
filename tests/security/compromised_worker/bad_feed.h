/*
 * A worker that sends bad data to the clients of its own user: an honest feed and what it says, but
 * for what one row of a table makes of it. The rows are in bad_ring.c and bad_replies.c.
 */
#pragma once

#include "tests/security/compromised_worker/agent.h"

#include "proto/feed.pb-c.h"
#include "proto/framing.h"
#include "proto/ring.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BATCHES = 10, /* per epoch */
	CLASSES = 10,
	SIDE = 8,
	AT = 3, /* the batch that is wrong */
	MANY = 400000,
	MEGABYTE = 1 << 20,
};

struct bad_feed {
	const struct agent *agent;
	const struct row *row;
	int fd;               /* the peer's, */
	uint64_t client_id;   /* and that connection's number */
	unsigned connections; /* before this one */
	struct frame_reader reader;
	struct ring_geometry geometry;
	struct ring_producer ring;
	Loaderd__FeedOpened opened;
	uint64_t epoch, batch; /* the next one's */
	uint64_t published;
	atomic_bool stop;
};

/* Where a row's value goes. */
enum where { NOWHERE, GEOMETRY, OPENED, HEADER, SLOT, RUNNING };

struct row {
	const char *name;
	enum where where;
	size_t offset, size;
	uint64_t value;
	int expected;     /* of the peer: 0, a positive errno, or AGENT_ANY */
	unsigned batches; /* that the peer wants; 0: some */
	int patience_ms;  /* of the peer where nothing more comes; 0: all that it takes */
	/*
	 * not before the client has come back: the first connection is honest, and ends at batch AT
	 */
	bool again;
	const char *kind; /* of peer; NULL: a feed */
	/* in the place of all that an honest daemon would answer */
	void (*answer)(struct bad_feed *d);
	void (*wish)(struct bad_feed *d); /* before the feed is granted */
	/* before batch AT is published, */
	void (*before)(struct bad_feed *d, struct ring_slot *slot);
	void (*after)(struct bad_feed *d); /* and after it */
	void *(*thread)(void *d);          /* from then on, until the peer goes */
};

#define IN(place, type, member, number)                                                            \
	.where = place, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member),     \
	.value = number
#define IN_SLOT(member, number)        IN(SLOT, struct ring_slot, member, number)
#define IN_HEADER(member, number)      IN(HEADER, struct ring_header, member, number)
#define IN_OPENED(member, number)      IN(OPENED, Loaderd__FeedOpened, member, number)
#define IN_GEOMETRY(member, number)    IN(GEOMETRY, struct ring_geometry, member, number)
#define RUNNING_HEADER(member, number) IN(RUNNING, struct ring_header, member, number)

/* Both tables end with a row without a name. */
extern const struct row bad_ring_rows[], bad_reply_rows[];

/* False: the peer has gone, or whoever commands says that it is over. */
bool bad_feed_await(struct bad_feed *d, int timeout_ms);
bool bad_feed_hear_and_forget(struct bad_feed *d);
void bad_feed_hear_to_the_end(struct bad_feed *d);
/* False: the peer does not take it within a second, or has gone. A worker has no sendmsg(). */
bool bad_feed_send_frame(const struct bad_feed *d, const uint8_t *data, size_t size);
/* Frames that a peer does not read are lost. */
bool bad_feed_say(struct bad_feed *d, Loaderd__Reply__KindCase kind, void *message);
bool bad_feed_say_doorbell(struct bad_feed *d);
void bad_feed_say_error(struct bad_feed *d, int code, const char *text);
void bad_feed_ask_for_files(struct bad_feed *d, uint32_t first, uint32_t most, bool direct);
