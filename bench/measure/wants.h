/*
 * Chooses the samples of a wanted feed: each epoch, all samples in a new random order, or in stored
 * order, in batches of the feed's batch size; the last one may be shorter. The caller owns the
 * feed.
 */
#pragma once

#include <stdint.h>

#include "bench/measure/point.h"

struct wants {
	struct feed *feed; /* NULL: a plain feed, for which wants_ask() does nothing */
	uint64_t seed;
	int stored_order;
	uint64_t samples; /* in the dataset */
	uint32_t batch_size;
	uint64_t asked, taken; /* batches */
	uint64_t *order;       /* [samples], of epoch order_epoch */
	uint64_t order_epoch;
};

/* Begins, or goes on after the last batch taken with another feed. Returns 0 or -ENOMEM. */
int wants_begin(struct wants *wants, const struct settings *settings, struct feed *feed);
void wants_free(struct wants *wants);
/* Asks for as many batches as the feed accepts. Errors as for feed_want(). */
int wants_ask(struct wants *wants);
/* Call after each batch returned. */
void wants_took(struct wants *wants);
