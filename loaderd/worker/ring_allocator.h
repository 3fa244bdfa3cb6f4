/*
 * Requests memory for rings from the supervisor, as the sandbox forbids a worker to create it.
 * ring_allocator_take() and ring_allocator_send() block on a job thread until the control thread
 * delivers the answer through ring_allocator_answer(). Owned by the server.
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
	uint64_t bytes; /* bytes granted and not yet returned */
};

/* pipe: the worker's end of the records pipe (worker_ipc.h). */
void ring_allocator_init(struct ring_allocator *allocator, int pipe);
void ring_allocator_deinit(struct ring_allocator *allocator);
/*
 * Requests the memory of a feed's ring. other_bytes: further memory that the feed needs, charged
 * but not provided. writable: the client may map the ring writable. Returns 0, or -errno with the
 * refusal filled in.
 */
int ring_allocator_take(struct ring_allocator *allocator, uint64_t feed, uint64_t ring_bytes,
			uint64_t other_bytes, bool writable, int *ret_ring_fd, int *ret_ack_fd,
			struct refusal *refusal);
/*
 * Asks the supervisor to send the ring to a client. client: the connection's id. Returns as
 * ring_allocator_take() does.
 */
int ring_allocator_send(struct ring_allocator *allocator, uint64_t feed, uint64_t client,
			struct refusal *refusal);
/* Reports that the feed has closed its ring. Any thread. */
void ring_allocator_give_back(struct ring_allocator *allocator, uint64_t feed, uint64_t bytes);
/* Delivers an answer from the supervisor. Takes over the fds. Control thread only. */
void ring_allocator_answer(struct ring_allocator *allocator, const struct ipc_order *order,
			   const int fds[IPC_FDS_MAX]);
uint64_t ring_allocator_bytes(struct ring_allocator *allocator);
/*
 * Writes a record to the supervisor. Control and job threads. Returns 0 or -errno; -EAGAIN if the
 * pipe is full.
 */
int ipc_report(int pipe, const struct ipc_record *record);
