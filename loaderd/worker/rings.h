/*
 * Memory for rings, which the supervisor makes: a worker may create none. rings_take() is called on
 * a chores thread and waits for the answer, which the control thread brings by rings_answer().
 * Owned by the server.
 */
#pragma once

#include "loaderd/link.h"
#include "loaderd/worker/subscription.h"

#include <pthread.h>

struct ring_request;

struct rings {
	struct ring_source source;
	int pipe;
	pthread_mutex_t mutex;
	pthread_cond_t answered;
	struct ring_request *waiting;
	uint64_t bytes; /* granted and not given back */
};

/* pipe: of link.h. */
void rings_init(struct rings *rings, int pipe);
void rings_deinit(struct rings *rings);
/* Takes the descriptors over. */
void rings_answer(struct rings *rings, const struct link_order *order, const int fds[LINK_FDS_MAX]);
uint64_t rings_bytes(struct rings *rings);
/* Control and chores threads. -EAGAIN: the supervisor does not read. */
int link_report(int pipe, const struct link_record *record);
