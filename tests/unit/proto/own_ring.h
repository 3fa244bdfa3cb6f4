/* A ring whose memory the test makes itself, in the place of the supervisor. */
#pragma once

#include "proto/ring.h"

/* As ring_producer_init(). */
int own_ring_init(struct ring_producer *producer, const struct ring_geometry *geometry);
/* Memory for a ring or an ack page, watched by nobody. */
int own_memory_new(uint64_t bytes, int *ret_fd);
