/*
 * Asks the supervisor for the memory of rings, which a worker cannot create. ring_allocator_take()
 * and ring_allocator_send() block on a job thread for the answer, which the control thread passes
 * in by ring_allocator_answer(). Owned by the server.
 */
#pragma once

#include "loaderd/worker/subscription.h"
#include "loaderd/worker_ipc.h"

#include <pthread.h>
#include <stdbool.h>

struct ring_request;

struct ring_allocator {
	int pipe;
	pthread_mutex_t mutex;
	pthread_cond_t answered;
	struct ring_request *waiting;
	uint64_t bytes; /* granted and not given back */
};

/* pipe: of link.h. */
void ring_allocator_init(struct ring_allocator *allocator, int pipe);
void ring_allocator_deinit(struct ring_allocator *allocator);
/*
 * Memory for a feed's ring; other_bytes: what else the feed needs, reserved and not provided.
 * writable: the client gets a description that can write. Negative errno with the refusal filled
 * in.
 */
int ring_allocator_take(struct ring_allocator *allocator, uint64_t feed, uint64_t ring_bytes,
			uint64_t other_bytes, bool writable, int *ret_ring_fd, int *ret_ack_fd,
			struct refusal *refusal);
/* Has it sent to the client. client: the connection's number. As ring_allocator_take(). */
int ring_allocator_send(struct ring_allocator *allocator, uint64_t feed, uint64_t client,
			struct refusal *refusal);
/* The feed has closed it. Any thread. */
void ring_allocator_give_back(struct ring_allocator *allocator, uint64_t feed, uint64_t bytes);
/* Takes the descriptors over. */
void ring_allocator_answer(struct ring_allocator *allocator, const struct ipc_order *order,
			   const int fds[IPC_FDS_MAX]);
uint64_t ring_allocator_bytes(struct ring_allocator *allocator);
/* Control and job threads. -EAGAIN: the supervisor does not read. */
int ipc_report(int pipe, const struct ipc_record *record);
