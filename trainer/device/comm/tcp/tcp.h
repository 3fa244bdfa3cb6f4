/*
 * Internal to comm/tcp: ranks over TCP, for launchers without MPI.
 *
 * meet.c: every rank connects to rank 0, proves that it has the key (key.h), and learns where the
 *     others are. These connections stay, and carry only news of the end of the run (watch.c).
 * lanes.c: a communicator, of all ranks or of a group, has two lanes: a star of connections to its
 *     rank 0, for small operations (star.c), and a ring, for large ones (ring.c). Each lane carries
 *     out its operations one after the other, in the order of their start. So both ends of a
 *     connection know what comes next, and small operations pass large ones.
 * tcp.c: the operations of carrier.h.
 *
 * Authentic ranks are trusted, since they are the user's own processes: what they send is compared
 * with what this rank expects in order to find mistakes, not attacks. Data is neither encrypted nor
 * protected against somebody who can change packets on their way.
 *
 * Owned by the one thread that uses the ranks.
 */
#pragma once

#include "trainer/device/comm/carrier.h"
#include "trainer/device/comm/tcp/launch.h"
#include "trainer/device/comm/tcp/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>

enum {
	TCP_NONCE = 16,
	TCP_NAME_MAX = 64,
	TCP_STAGING = 256 << 10,  /* bytes received at once to be added: within a core's cache */
	TCP_STAR_BYTES = 1 << 20, /* limit on what rank 0 receives or sends in a small operation */
};

/* What all ranks know of each. Sent as it is, since all run the same program. */
struct tcp_member {
	struct tcp_host host; /* zero: on the machine of rank 0, where a rank found that */
	uint64_t machine;     /* a hash, the same for ranks of one machine */
	uint32_t process;
	int32_t local_rank,
		local_world;     /* -1 where a launcher does not say, before rank 0 counts */
	uint32_t leader;         /* the rank with local_rank 0 on its machine */
	uint32_t port;           /* where it waits for the connections of lanes */
	char name[TCP_NAME_MAX]; /* host name */
};

/* A started operation, in the list of its lane until it is done. */
struct tcp_request {
	bool used, done;
	struct tcp_request *next;
	enum tcp_kind { TCP_SUM, TCP_REDUCE_SCATTER, TCP_ALL_GATHER, TCP_BROADCAST } kind;
	enum comm_element element;
	char *values;
	size_t count; /* elements, as in comm.h */
	unsigned root;
};

/* Precedes the values on every connection. Both ends must expect the same. */
struct tcp_header {
	uint8_t kind, element;
	uint16_t root;
	uint32_t sequence; /* of the lane's operations */
	uint64_t count;
};

struct tcp_queue {
	struct tcp_request *head, *tail;
	uint32_t sequence; /* of the head */
};

struct tcp_star {
	struct tcp_queue queue;
	int *sockets; /* rank 0: [world], the first unused; others: [1] */
	/* of the head, for each socket: bytes transferred, header included, up and then down */
	size_t *up, *down;
	struct tcp_header *headers; /* of each socket, as received */
	char *values;               /* rank 0: what others sent to be added */
	unsigned arrived;           /* rank 0: sockets whose `up` is complete */
};

struct tcp_ring {
	struct tcp_queue queue;
	int next, previous; /* sockets: values go to next and come from previous */
	/* of the head: steps that are complete, and bytes of the current step and of headers */
	unsigned send_step, receive_step;
	size_t send_at, receive_at, send_header, receive_header;
	struct tcp_header header; /* as received */
	/* values to be added; a part of an element may remain at the beginning */
	char *staging;
	size_t staged;
};

/* What all communicators of the process share. */
struct tcp_run {
	unsigned rank, world;
	uint8_t key[SHA256_SIZE], session[TCP_NONCE];
	struct tcp_member *members; /* [world] */
	struct tcp_host found; /* the address by which rank 0 was found, or is reachable here */
	bool local;            /* all ranks use the loopback device */
	int listener;          /* for the lanes of the first communicator */
	int *controls;         /* as sockets of struct tcp_star */
	int events;            /* epoll of the controls */
	int64_t watched;       /* time of the last look at the controls */
	int64_t looked;        /* time of the last look for silent connections */
	bool closing;          /* ranks may go */
	int failure;           /* negative errno once the run has ended */
	enum comm_end ended;
	unsigned culprit; /* the rank that ended it */
	char reason[COMM_ERROR_MAX];
	struct comm_tcp *communicators;
	uint32_t splits;
	struct pollfd *polls;
	unsigned polls_max;
};

struct comm_tcp {
	struct comm base;
	struct tcp_run *run;
	struct comm_tcp *next;
	uint32_t number; /* of the split, 0 for all ranks */
	uint32_t group;
	unsigned *ranks; /* [world]: ranks in the run */
	struct tcp_star star;
	struct tcp_ring ring;
	/* the last is for operations that wait at once */
	struct tcp_request requests[COMM_REQUESTS_MAX + 1];
};

/* Formats run->reason and sets how the run has ended, if it has not yet. Returns the failure. */
int tcp_end(struct tcp_run *run, enum comm_end ended, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* ---- meet.c ---- */

/*
 * Fills run: members, controls, session. error: COMM_ERROR_MAX bytes; -ETIMEDOUT and -ECONNRESET:
 * other ranks did not come, or went away.
 */
int tcp_meet(struct tcp_run *run, const struct launch *launch, char *error);

/* ---- watch.c ---- */

enum tcp_news { TCP_NEWS_LOST = 1, TCP_NEWS_ABORTED, TCP_NEWS_REFUSED, TCP_NEWS_WELCOME };

/* What the controls carry. */
struct tcp_message {
	uint32_t news, rank;
	char text[COMM_ERROR_MAX];
};

int tcp_watch_open(struct tcp_run *run);
/* Takes note of news that have come, waiting for some up to wait_ms. Returns run->failure. */
int tcp_watch(struct tcp_run *run, int wait_ms);
/* The same if the last look was some time ago. */
int tcp_watch_often(struct tcp_run *run);
/*
 * A connection to a rank broke. Ends the run, with the reason that rank 0 gives if it knows one.
 * Returns the failure.
 */
int tcp_lose(struct tcp_run *run, unsigned rank);
/* Tells the other ranks that this one has failed. */
void tcp_tell_aborted(struct tcp_run *run, const char *reason);
/* Closes the controls, after the others have had time to read them. */
void tcp_watch_close(struct tcp_run *run);

/* ---- lanes.c ---- */

/* Connects the lanes of tcp->ranks. Closes the listener. 0, or the failure of the run. */
int tcp_lanes_open(struct comm_tcp *tcp, int listener);
void tcp_lanes_close(struct comm_tcp *tcp);

/* ---- star.c and ring.c ---- */

/* True if the operation goes through the star; the same on all ranks. */
bool tcp_is_small(const struct comm_tcp *tcp, const struct tcp_request *request);
void tcp_queue_put(struct tcp_queue *queue, struct tcp_request *request);
void tcp_queue_pop(struct tcp_queue *queue);
struct tcp_header tcp_header(const struct tcp_queue *queue);
/* Sums from[count] into to. */
void tcp_add(void *to, const void *from, size_t count, enum comm_element element);

/*
 * Transfer what can be without waiting, and set *moved if that was anything. Return 0, or the
 * failure of the run.
 */
int tcp_star_advance(struct comm_tcp *tcp, bool *moved);
int tcp_ring_advance(struct comm_tcp *tcp, bool *moved);
/* Append what the heads wait for. Return how many. */
unsigned tcp_star_polls(const struct comm_tcp *tcp, struct pollfd *polls);
unsigned tcp_ring_polls(const struct comm_tcp *tcp, struct pollfd *polls);

/* A peer is at another operation than this rank. Returns the failure of the run. */
int tcp_mismatch(struct comm_tcp *tcp, unsigned rank, const struct tcp_header *theirs,
		 const struct tcp_header *mine);
