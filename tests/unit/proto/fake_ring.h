/* A ring whose memory the test makes itself, in the place of the supervisor. */
#pragma once

#include "proto/ring.h"

/* As ring_producer_init(). */
int fake_ring_init(struct ring_producer *producer, const struct ring_geometry *geometry);
/* Makes the pages exist, in the client's place, and starts the ring. */
int fake_ring_start(struct ring_producer *producer);
/*
 * A client of what is taken for a ring that has been started, with an ack page that the daemon does
 * not know: ring_consumer_map() and ring_consumer_check().
 */
int own_consumer_init(struct ring_consumer *consumer, int ring_fd);
/* Memory for a ring or an ack page that everybody can write, watched by nobody. */
int own_memory_new(uint64_t bytes, int *ret_fd);
