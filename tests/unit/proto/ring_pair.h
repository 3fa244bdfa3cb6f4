/* For the tests of the ring: both ends of a small one in one process. What fails ends the test. */
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
/* As a client and a daemon do it, with a producer that is there. */
void pair_connect(struct pair *pair, enum ring_mapping mapping);
void pair_deinit(struct pair *pair);
/* Publishes a batch of one sample. */
void publish(struct ring_producer *producer);
/* A pseudo-random number (xorshift); *seed is not 0. */
uint64_t next_random(uint64_t *seed);
