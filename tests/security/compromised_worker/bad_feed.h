/*
 * A compromised worker that sends bad data to clients of its own user: it acts as an honest daemon,
 * except for the change made by one row of a table. The rows are in bad_ring.c, bad_replies.c and
 * bad_sections.c, whose peers are of kind "values" and get a ring of version 2.
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
	BATCHES = 10, /* number of batches per epoch */
	CLASSES = 10,
	SIDE = 8,
	AT = 3, /* number of the wrong batch */
	MANY = 400000,
	MEGABYTE = 1 << 20,
};

struct bad_feed {
	const struct agent *agent;
	const struct row *row;
	int fd;               /* the peer's connection */
	uint64_t client_id;   /* the supervisor's id of that connection */
	unsigned connections; /* number of earlier connections */
	struct frame_reader reader;
	struct ring_geometry geometry;
	struct ring_producer ring;
	Loaderd__FeedOpened opened;
	uint64_t epoch, batch; /* number of the next batch */
	uint64_t published;
	atomic_bool stop;
};

/* The structure in which `value` is stored, or the phase in which that happens. */
enum where { NOWHERE, GEOMETRY, OPENED, HEADER, SLOT, RUNNING };

struct row {
	const char *name;
	enum where where;
	size_t offset, size;
	uint64_t value;
	int expected;     /* result expected of the peer: 0, a positive errno, or AGENT_ANY */
	unsigned batches; /* number of batches that the peer reads; 0 means the default */
	/* timeout of the peer for further data; 0 means the default of peers.c */
	int patience_ms;
	/*
	 * Misbehave only after the client has reconnected: the first connection is honest and ends
	 * at batch AT.
	 */
	bool again;
	const char *kind; /* kind of peer; NULL means a client with a feed */
	/* sends all replies in place of the honest daemon */
	void (*answer)(struct bad_feed *d);
	void (*prepare)(struct bad_feed *d); /* called before the feed is granted */
	/* called before batch AT is published */
	void (*before)(struct bad_feed *d, struct ring_slot *slot);
	void (*after)(struct bad_feed *d); /* called after batch AT is published */
	void *(*thread)(void *d); /* thread started after batch AT, runs until the peer leaves */
};

#define IN(place, type, member, number)                                                            \
	.where = place, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member),     \
	.value = number
#define IN_SLOT(member, number)        IN(SLOT, struct ring_slot, member, number)
#define IN_HEADER(member, number)      IN(HEADER, struct ring_header, member, number)
#define IN_OPENED(member, number)      IN(OPENED, Loaderd__FeedOpened, member, number)
#define IN_GEOMETRY(member, number)    IN(GEOMETRY, struct ring_geometry, member, number)
#define RUNNING_HEADER(member, number) IN(RUNNING, struct ring_header, member, number)

/* Each table ends with a row whose name is NULL. */
extern const struct row bad_ring_rows[], bad_reply_rows[], bad_section_rows[];

/* Adds the sections of a ring of version 2 to d->geometry and d->opened. */
void bad_feed_announce_sections(struct bad_feed *d);
/* Turns a filled slot of version 1 into one of version 2. */
void bad_feed_fill_sections(const struct bad_feed *d, struct ring_slot *slot);
/* Returns false if the peer has disconnected or the commanding client has ended the test. */
bool bad_feed_await(struct bad_feed *d, int timeout_ms);
bool bad_feed_hear_and_forget(struct bad_feed *d);
void bad_feed_read_until_closed(struct bad_feed *d);
/*
 * Returns false if the peer does not read the frame within a second, or has disconnected. Workers
 * may not call sendmsg().
 */
bool bad_feed_send_frame(const struct bad_feed *d, const uint8_t *data, size_t size);
/* Drops the frame if the peer does not read it. */
bool bad_feed_send_reply(struct bad_feed *d, Loaderd__Reply__KindCase kind, void *message);
bool bad_feed_send_doorbell(struct bad_feed *d);
void bad_feed_send_error(struct bad_feed *d, int code, const char *text);
void bad_feed_ask_for_files(struct bad_feed *d, uint32_t first, uint32_t most, bool direct);
