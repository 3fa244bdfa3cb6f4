/*
 * What supervisor and worker say to each other. The supervisor starts a worker with four
 * descriptors: a socket on which it sends messages with descriptors and which is shut down in the
 * other direction, a pipe on which the worker answers with records of fixed size, a page that the
 * worker writes for those who ask for the status of all, and the configuration as a file. Nothing
 * that comes from a worker is believed: it may have been taken over by whoever wrote a file.
 * loaderd(1), ISOLATION.
 */
#pragma once

#include "loaderd/blame.h"
#include "proto/stage.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
	LINK_SOCKET_FD = 3,
	LINK_PIPE_FD = 4,
	LINK_PAGE_FD = 5,
	LINK_CONFIG_FD = 6,
	LINK_GROUP_FD = 7,   /* cgroup.procs of the user's control group; where it has one */
	LINK_FDS_MAX = 2,    /* with one message */
	LINK_FEEDS_MAX = 60, /* listed on the page */
	LINK_NAME_MAX = 128, /* bytes of a text there, terminator included */
	LINK_PAGE_SIZE = 32 << 10,
};

/*
 * Exit status of a worker that could not enter its control group. That of others which could not
 * begin to serve is a positive errno, of which none is as high.
 */
enum { WORKER_HAS_NO_GROUP = 200 };

enum link_order_kind {
	LINK_CLIENT = 1, /* with a client's connection */
	/*
	 * answers LINK_WANT_RING: with the ring's and the ack page's memory, or code says why not
	 */
	LINK_RING,
	/* answers LINK_SEND_RING: the client has been sent them, too, or code says why not */
	LINK_RING_SENT,
	LINK_DRAIN,  /* no new feeds; end when those there are have taken what is finished */
	LINK_RETIRE, /* answers LINK_IDLE: end */
	/*
	 * a sample whose decoding has ended workers: bad from now on; or, with LINK_WHOLE_DATASET
	 * for its number, a dataset, which is refused
	 */
	LINK_POISON,
	LINK_SET, /* a number of the configuration has changed */
};
#define LINK_WHOLE_DATASET UINT64_MAX

/* Which limit a ring would break. */
enum link_limit {
	LINK_LIMIT_NONE,
	LINK_LIMIT_ALL,
	LINK_LIMIT_USER,
	LINK_LIMIT_RINGS,
	LINK_LIMIT_DESCRIPTORS, /* of the service, for rings */
};

/* From the supervisor. */
struct link_order {
	uint32_t kind;   /* enum link_order_kind */
	int32_t code;    /* positive errno, 0: granted */
	uint64_t client; /* of LINK_CLIENT: a number for the connection, none twice */
	uint64_t feed;   /* of LINK_RING and LINK_RING_SENT */
	uint32_t limit;  /* enum link_limit, if code is EDQUOT; */
	uint32_t pid;    /* of LINK_CLIENT, as the supervisor sees it */
	uint64_t most;   /* the limit's value, */
	uint64_t left;   /* and what is left of it; bytes, or rings */
	/* of LINK_POISON for a dataset: how often it ended workers, and for how long it is refused
	 */
	uint32_t faults, seconds;
	uint8_t uuid[16]; /* of LINK_POISON: the dataset, */
	uint64_t sample;  /* and the sample */
	uint64_t key;     /* of LINK_SET: for config_put(), */
	uint64_t value;   /* as is the value */
};

enum link_record_kind {
	LINK_READY = 1, /* the worker serves */
	LINK_WANT_RING, /* feed, and the bytes of its ring and of what else it needs */
	/* feed, and the connection it is for: its ring may be given to the client; once */
	LINK_SEND_RING,
	LINK_RING_DONE, /* the worker has closed this feed's ring */
	LINK_IDLE,      /* no connection for a while; count says how many have come in all */
	/* a LINK_CLIENT came without its connection: the worker had no descriptor for it */
	LINK_LOST,
};

/* From the worker. Fewer bytes than PIPE_BUF: a record is written whole or not at all. */
struct link_record {
	uint32_t kind;     /* enum link_record_kind */
	uint32_t writable; /* of LINK_WANT_RING: the client may write its ring */
	uint64_t client, feed;
	uint64_t ring_bytes, other_bytes;
	uint64_t count;
};

struct link_feed {
	uint64_t id;
	uint64_t epoch, batch, images, bad, bytes;
	uint64_t stall_client_ns, stall_daemon_ns;
	uint64_t stage_ns[STAGE_COUNT];
	uint32_t pid, batch_size, slots, slots_ready, slots_held, reserved;
	/* cut where they are longer */
	char name[LINK_NAME_MAX], dataset[LINK_NAME_MAX], pipeline[LINK_NAME_MAX];
};

/* Written by the worker alone, read by the supervisor into a copy. */
struct link_page {
	_Atomic uint64_t sequence; /* odd while it is being written */
	uint64_t uptime_ns, idle_ns;
	uint32_t threads, connections, feed_count, reserved;
	struct blame blame; /* what a thread was decoding that faulted */
	struct link_feed feeds[LINK_FEEDS_MAX];
};
_Static_assert(sizeof(struct link_page) <= LINK_PAGE_SIZE, "the page holds all feeds");
_Static_assert(sizeof(struct link_record) == 48, "no padding: all bytes are set");

struct Loaderd__FeedStatus;
/* What a status says of a feed; its texts lie in feed. */
void link_feed_status(const struct link_feed *feed, uint32_t uid,
		      struct Loaderd__FeedStatus *ret_status);

/*
 * Without waiting: -EAGAIN when the worker does not take what was sent before; -EPIPE when it has
 * gone. Descriptors stay the caller's.
 */
int link_send(int socket, const struct link_order *order, const int *fds, unsigned fd_count);
/*
 * The worker's end. Descriptors that did not come are -1. -EAGAIN: nothing there; -ECONNRESET: the
 * supervisor has gone.
 */
int link_receive(int socket, struct link_order *ret_order, int fds[LINK_FDS_MAX]);
