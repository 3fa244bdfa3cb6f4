/* A ring for tests whose memory the test allocates itself, without a supervisor. */
#pragma once

#include "proto/ring.h"

/* Allocates ring and ack page, then calls ring_producer_init(). Same errors. */
int fake_ring_init(struct ring_producer *producer, const struct ring_geometry *geometry);
/*
 * Writes to all pages so that they are allocated, which is otherwise the client's task, and starts
 * the ring.
 */
int fake_ring_start(struct ring_producer *producer);
/*
 * Maps and checks ring_fd as a client does, once the ring is started. The ack page is new and
 * unknown to the daemon. Returns the first error of ring_consumer_map() or ring_consumer_check().
 */
int own_consumer_init(struct ring_consumer *consumer, int ring_fd);
/*
 * Creates writable shared memory for a ring or an ack page. Unlike the supervisor's, no other fd to
 * it is kept.
 */
int own_memory_new(uint64_t bytes, int *ret_fd);
