/*
 * Memory for rings, which the supervisor makes: a worker may create none. rings_take() and
 * rings_send() are called on a chores thread and wait for the answer, which the control thread
 * brings by rings_answer(). Owned by the server.
 */
#pragma once

#include "loaderd/link.h"
#include "loaderd/worker/subscription.h"

#include <pthread.h>
#include <stdbool.h>

struct ring_request;

struct rings {
	int pipe;
	pthread_mutex_t mutex;
	pthread_cond_t answered;
	struct ring_request *waiting;
	uint64_t bytes; /* granted and not given back */
};

/* pipe: of link.h. */
void rings_init(struct rings *rings, int pipe);
void rings_deinit(struct rings *rings);
/*
 * Memory for a feed's ring; other_bytes: what else the feed needs, reserved and not provided.
 * writable: the client gets a description that can write. Negative errno with the refusal filled
 * in.
 */
int rings_take(struct rings *rings, uint64_t feed, uint64_t ring_bytes, uint64_t other_bytes,
	       bool writable, int *ret_ring_fd, int *ret_ack_fd, struct refusal *refusal);
/* Has it sent to the client. client: the connection's number. As rings_take(). */
int rings_send(struct rings *rings, uint64_t feed, uint64_t client, struct refusal *refusal);
/* The feed has closed it. Any thread. */
void rings_give_back(struct rings *rings, uint64_t feed, uint64_t bytes);
/* Takes the descriptors over. */
void rings_answer(struct rings *rings, const struct link_order *order, const int fds[LINK_FDS_MAX]);
uint64_t rings_bytes(struct rings *rings);
/* Control and chores threads. -EAGAIN: the supervisor does not read. */
int link_report(int pipe, const struct link_record *record);
