/*
 * What supervisor and worker say to each other. The supervisor starts a worker with four
 * descriptors: a socket on which it sends messages with descriptors and which is shut down in the
 * other direction, a pipe on which the worker answers with records of fixed size, a page that the
 * worker writes for those who ask for the status of all, and the configuration as a file. Nothing
 * that comes from a worker is believed: it may have been taken over by whoever wrote a file.
 * loaderd(1), ISOLATION.
 */
#pragma once

#include "loaderd/crash_marker.h"
#include "proto/stage.h"

#include <stdatomic.h>
#include <stdint.h>

enum {
	IPC_SOCKET_FD = 3,
	IPC_PIPE_FD = 4,
	IPC_PAGE_FD = 5,
	IPC_CONFIG_FD = 6,
	IPC_GROUP_FD = 7,      /* cgroup.procs of the user's control group; where it has one */
	IPC_FDS_MAX = 2,       /* with one message */
	STATUS_FEEDS_MAX = 60, /* listed on the page */
	STATUS_TEXT_MAX = 128, /* bytes of a text there, terminator included */
	STATUS_PAGE_SIZE = 32 << 10,
};

/*
 * Exit status of a worker that could not enter its control group. That of others which could not
 * begin to serve is a positive errno, of which none is as high.
 */
enum { WORKER_HAS_NO_GROUP = 200 };

enum ipc_order_kind {
	IPC_CLIENT = 1, /* with a client's connection */
	/*
	 * answers IPC_WANT_RING: with the ring's and the ack page's memory, or code says why not
	 */
	IPC_RING,
	/* answers IPC_SEND_RING: the client has been sent them, too, or code says why not */
	IPC_RING_SENT,
	IPC_DRAIN,  /* no new feeds; end when those there are have taken what is finished */
	IPC_RETIRE, /* answers IPC_IDLE: end */
	/*
	 * a sample whose decoding has ended workers: bad from now on; or, with IPC_WHOLE_DATASET
	 * for its number, a dataset, which is refused
	 */
	IPC_POISON,
	IPC_SET, /* a number of the configuration has changed */
};
#define IPC_WHOLE_DATASET UINT64_MAX

/* Which limit a ring would break. */
enum ipc_limit {
	IPC_LIMIT_NONE,
	IPC_LIMIT_ALL,
	IPC_LIMIT_USER,
	IPC_LIMIT_RINGS,
	IPC_LIMIT_DESCRIPTORS, /* of the service, for rings */
};

/* From the supervisor. */
struct ipc_order {
	uint32_t kind;   /* enum ipc_order_kind */
	int32_t code;    /* positive errno, 0: granted */
	uint64_t client; /* of IPC_CLIENT: a number for the connection, none twice */
	uint64_t feed;   /* of IPC_RING and IPC_RING_SENT */
	uint32_t limit;  /* enum ipc_limit, if code is EDQUOT; */
	uint32_t pid;    /* of IPC_CLIENT, as the supervisor sees it */
	uint64_t most;   /* the limit's value, */
	uint64_t left;   /* and what is left of it; bytes, or rings */
	/* of IPC_POISON for a dataset: how often it ended workers, and for how long it is refused
	 */
	uint32_t faults, seconds;
	uint8_t uuid[16]; /* of IPC_POISON: the dataset, */
	uint64_t sample;  /* and the sample */
	uint64_t key;     /* of IPC_SET: for config_put(), */
	uint64_t value;   /* as is the value */
};

enum ipc_record_kind {
	IPC_READY = 1, /* the worker serves */
	IPC_WANT_RING, /* feed, and the bytes of its ring and of what else it needs */
	/* feed, and the connection it is for: its ring may be given to the client; once */
	IPC_SEND_RING,
	IPC_RING_DONE, /* the worker has closed this feed's ring */
	IPC_IDLE,      /* no connection for a while; count says how many have come in all */
	/* a IPC_CLIENT came without its connection: the worker had no descriptor for it */
	IPC_LOST,
};

/* From the worker. Fewer bytes than PIPE_BUF: a record is written whole or not at all. */
struct ipc_record {
	uint32_t kind;     /* enum ipc_record_kind */
	uint32_t writable; /* of IPC_WANT_RING: the client may write its ring */
	uint64_t client, feed;
	uint64_t ring_bytes, other_bytes;
	uint64_t count;
};

struct status_feed {
	uint64_t id;
	uint64_t epoch, batch, images, bad, bytes;
	uint64_t stall_client_ns, stall_daemon_ns;
	uint64_t stage_ns[STAGE_COUNT];
	uint32_t pid, batch_size, slots, slots_ready, slots_held, reserved;
	/* cut where they are longer */
	char name[STATUS_TEXT_MAX], dataset[STATUS_TEXT_MAX], pipeline[STATUS_TEXT_MAX];
};

/* Written by the worker alone, read by the supervisor into a copy. */
struct status_page {
	_Atomic uint64_t sequence; /* odd while it is being written */
	uint64_t uptime_ns, idle_ns;
	uint32_t threads, connections, feed_count, reserved;
	struct crash_marker crash; /* what a thread was decoding that faulted */
	struct status_feed feeds[STATUS_FEEDS_MAX];
};
_Static_assert(sizeof(struct status_page) <= STATUS_PAGE_SIZE, "the page holds all feeds");
_Static_assert(sizeof(struct ipc_record) == 48, "no padding: all bytes are set");

struct Loaderd__FeedStatus;
/* What a status says of a feed; its texts lie in feed. */
void status_feed_reply(const struct status_feed *feed, uint32_t uid,
		       struct Loaderd__FeedStatus *ret_status);

/*
 * Without waiting: -EAGAIN when the worker does not take what was sent before; -EPIPE when it has
 * gone. Descriptors stay the caller's.
 */
int ipc_send(int socket, const struct ipc_order *order, const int *fds, unsigned fd_count);
/*
 * The worker's end. Descriptors that did not come are -1. -EAGAIN: nothing there; -ECONNRESET: the
 * supervisor has gone.
 */
int ipc_receive(int socket, struct ipc_order *ret_order, int fds[IPC_FDS_MAX]);
