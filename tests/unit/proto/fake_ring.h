/* A ring whose memory the test allocates, without a supervisor. */
#pragma once

#include "proto/ring.h"

/* Allocates ring and ack page, then calls ring_producer_init(). Returns the same errors. */
int fake_ring_init(struct ring_producer *producer, const struct ring_geometry *geometry);
/*
 * Starts the ring after writing to all of its pages to allocate them, which is normally the
 * client's task.
 */
int fake_ring_start(struct ring_producer *producer);
/*
 * Maps and checks ring_fd like a client; call it once the ring is started. The ack page is a new
 * one, which the daemon does not have. Returns the first error of ring_consumer_map() or
 * ring_consumer_check().
 */
int own_consumer_init(struct ring_consumer *consumer, int ring_fd);
/*
 * Creates writable shared memory for a ring or an ack page. Unlike with the supervisor, no other fd
 * refers to it.
 */
int own_memory_new(uint64_t bytes, int *ret_fd);
