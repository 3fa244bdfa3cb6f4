/*
 * A worker that deceives the clients of its own user: an honest feed and what it says, but for what
 * one row of a table makes of it. The rows are in deceit_ring.c and deceit_replies.c.
 */
#pragma once

#include "tests/security/compromised_worker/taken.h"

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
	AT = 3, /* the batch that is lied about */
	MANY = 400000,
	MEGABYTE = 1 << 20,
};

struct deceit {
	const struct taken *taken;
	const struct row *row;
	int fd;               /* the victim's, */
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
	int expected;     /* of the victim: 0, a positive errno, or TAKEN_ANY */
	unsigned batches; /* that the victim wants; 0: some */
	int patience_ms;  /* of the victim where nothing more comes; 0: all that it takes */
	/*
	 * not before the client has come back: the first connection is honest, and ends at batch AT
	 */
	bool again;
	const char *kind; /* of victim; NULL: a feed */
	/* in the place of all that an honest daemon would answer */
	void (*answer)(struct deceit *d);
	void (*wish)(struct deceit *d); /* before the feed is granted */
	/* before batch AT is published, */
	void (*before)(struct deceit *d, struct ring_slot *slot);
	void (*after)(struct deceit *d); /* and after it */
	void *(*thread)(void *d);        /* from then on, until the victim goes */
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
extern const struct row deceit_ring_rows[], deceit_reply_rows[];

/* False: the victim has gone, or whoever commands says that it is over. */
bool deceit_await(struct deceit *d, int timeout_ms);
bool deceit_hear_and_forget(struct deceit *d);
void deceit_hear_to_the_end(struct deceit *d);
/* False: the victim does not take it within a second, or has gone. A worker has no sendmsg(). */
bool deceit_send_frame(const struct deceit *d, const uint8_t *data, size_t size);
/* Frames that a victim does not read are lost. */
bool deceit_say(struct deceit *d, Loaderd__Reply__KindCase kind, void *message);
bool deceit_say_doorbell(struct deceit *d);
void deceit_say_error(struct deceit *d, int code, const char *text);
void deceit_ask_for_files(struct deceit *d, uint32_t first, uint32_t most, bool direct);
