/*
 * The channels between supervisor and worker. The supervisor spawns a worker with four fds: a
 * SOCK_SEQPACKET socket for orders, which may carry fds and is shut down in the other direction; a
 * pipe on which the worker sends fixed-size records; the status page in shared memory, written by
 * the worker; and the configuration as a file. The supervisor treats everything from a worker as
 * untrusted: a malicious dataset may have compromised it. loaderd(1), ISOLATION.
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
	IPC_GROUP_FD = 7,      /* cgroup.procs of the user's cgroup, if the user has one */
	IPC_FDS_MAX = 2,       /* per message */
	STATUS_FEEDS_MAX = 60, /* on the status page */
	STATUS_TEXT_MAX = 128, /* bytes of a string on the page, terminator included */
	STATUS_PAGE_SIZE = 32 << 10,
};

/*
 * Exit status of a worker that could not enter its cgroup. A worker that fails to start for another
 * reason exits with a positive errno, all of which are smaller.
 */
enum { WORKER_HAS_NO_GROUP = 200 };

enum ipc_order_kind {
	IPC_CLIENT = 1, /* carries a client's connection */
	/* reply to IPC_WANT_RING: carries the fds of ring and ack page, unless code is nonzero */
	IPC_RING,
	/* reply to IPC_SEND_RING: the ring was sent to the client, unless code is nonzero */
	IPC_RING_SENT,
	IPC_DRAIN,  /* open no new feeds; exit once finished batches are consumed */
	IPC_RETIRE, /* reply to IPC_IDLE: exit */
	/*
	 * treat this sample, whose decoding has crashed workers, as bad; if its number is
	 * IPC_WHOLE_DATASET, refuse the dataset
	 */
	IPC_POISON,
	IPC_SET, /* a numeric configuration key has changed */
};
#define IPC_WHOLE_DATASET UINT64_MAX

/* The limit that a ring would exceed. */
enum ipc_limit {
	IPC_LIMIT_NONE,
	IPC_LIMIT_ALL,
	IPC_LIMIT_USER,
	IPC_LIMIT_RINGS,
	IPC_LIMIT_DESCRIPTORS, /* fds that the service may use for rings */
};

/* Supervisor to worker. */
struct ipc_order {
	uint32_t kind;   /* enum ipc_order_kind */
	int32_t code;    /* positive errno; 0 if granted */
	uint64_t client; /* IPC_CLIENT: unique id of the connection */
	uint64_t feed;   /* IPC_RING, IPC_RING_SENT: id of the feed */
	uint32_t limit;  /* enum ipc_limit, if code is EDQUOT */
	uint32_t pid;    /* IPC_CLIENT: the client's pid, as the supervisor sees it */
	uint64_t most;   /* the limit, in bytes or rings */
	uint64_t left;   /* remaining under the limit, same unit */
	/*
	 * IPC_POISON of a dataset: how many workers it has crashed, and for how long to refuse it
	 */
	uint32_t faults, seconds;
	uint8_t uuid[16]; /* IPC_POISON: the dataset */
	uint64_t sample;  /* IPC_POISON: the sample */
	uint64_t key;     /* IPC_SET: for config_put() */
	uint64_t value;   /* IPC_SET: for config_put() */
};

enum ipc_record_kind {
	IPC_READY = 1, /* the worker is ready */
	IPC_WANT_RING, /* asks for a ring; uses feed, ring_bytes, other_bytes, writable */
	/* asks to send the ring of `feed` to `client`; granted once */
	IPC_SEND_RING,
	IPC_RING_DONE, /* the worker has closed the ring of `feed` */
	IPC_IDLE,      /* no connections for idle_ms; count: connections received so far */
	/* an IPC_CLIENT arrived without its fd: the worker had no free fd */
	IPC_LOST,
};

/* Worker to supervisor. Smaller than PIPE_BUF: a record is written whole or not at all. */
struct ipc_record {
	uint32_t kind;     /* enum ipc_record_kind */
	uint32_t writable; /* IPC_WANT_RING: the client may map the ring writable */
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
	/* truncated to STATUS_TEXT_MAX */
	char name[STATUS_TEXT_MAX], dataset[STATUS_TEXT_MAX], pipeline[STATUS_TEXT_MAX];
};

/* A seqlock in shared memory: the worker writes it, the supervisor reads it into a copy. */
struct status_page {
	_Atomic uint64_t sequence; /* odd during a write */
	uint64_t uptime_ns, idle_ns;
	uint32_t threads, connections, feed_count, reserved;
	struct crash_marker crash; /* the sample that a thread was decoding when it crashed */
	struct status_feed feeds[STATUS_FEEDS_MAX];
};
_Static_assert(sizeof(struct status_page) <= STATUS_PAGE_SIZE, "the page holds all feeds");
_Static_assert(sizeof(struct ipc_record) == 48, "no padding: all bytes are set");

struct Loaderd__FeedStatus;
/* Converts a feed of the status page to its protocol message, which points to strings in `feed`. */
void status_feed_reply(const struct status_feed *feed, uint32_t uid,
		       struct Loaderd__FeedStatus *ret_status);

/*
 * Sends an order without blocking. Returns -EAGAIN if the socket is full, -EPIPE if the worker is
 * gone. The fds stay the caller's.
 */
int ipc_send(int socket, const struct ipc_order *order, const int *fds, unsigned fd_count);
/*
 * Receives an order on the worker's end. Missing fds are set to -1. Returns -EAGAIN if there is
 * none, -ECONNRESET if the supervisor is gone.
 */
int ipc_receive(int socket, struct ipc_order *ret_order, int fds[IPC_FDS_MAX]);
