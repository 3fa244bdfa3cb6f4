/* Both ends of a small ring in one process. A failure ends the test. */
#pragma once

#include "tests/unit/proto/testing.h"

#include "proto/ring.h"

struct pair {
	struct ring_producer producer;
	struct ring_consumer consumer;
};

/* Batches of at most 5 images of 7 x 3 pixels, with two fields. */
struct ring_geometry small_geometry(uint32_t slots);
void pair_init(struct pair *pair, uint32_t slots);
/*
 * Maps the consumer from a new fd, like a client, and starts the ring of the initialized producer.
 */
void pair_connect(struct pair *pair, enum ring_mapping mapping);
void pair_deinit(struct pair *pair);
/* Publishes a batch of one sample. */
void publish(struct ring_producer *producer);
/* Returns a pseudo-random number (xorshift). *seed must not be 0. */
uint64_t next_random(uint64_t *seed);
