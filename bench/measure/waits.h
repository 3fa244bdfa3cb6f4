/* Waits of a feed for a dataset in a store, which are explained on standard error. */
#pragma once

#include <stdint.h>

#include "proto/client/feed.h"

struct opening_wait {
	const char *dataset; /* not owned */
	int64_t tell_ms;     /* when a line is due */
};

void opening_wait_init(struct opening_wait *wait, const char *dataset);
/* For feed_options.fetching and progress_user, an opening_wait. */
int opening_wait_tell(void *user, uint64_t done, uint64_t total);
/* As feed_next(), for a minute: a daemon that delivers nothing for so long is broken. */
int waits_next(struct feed *feed, struct feed_batch *batch);
/* Returns why waits_next() has returned r, other than 0. */
const char *waits_error(const struct feed *feed, int r);
