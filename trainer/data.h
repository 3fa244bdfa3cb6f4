/*
 * Where batches come from: the daemon (one that is named, or a private one), the facts about the
 * datasets, and the feeds for training and evaluation. Embedded in the run; one thread. Speaks to
 * the daemon through libfeed alone.
 */
#pragma once

#include "feed.h"
#include "recipe.h"

struct data {
	const struct recipe *recipe;
	struct feed_daemon *daemon; /* private, or NULL */
	const char *socket;
	uint64_t samples, val_samples;
	uint32_t classes;
	double mean[3], std[3]; /* R, G, B in 0..255, resolved */
};

enum { DATA_ERROR_MAX = FEED_ERROR_MAX };

/*
 * Reaches the daemon and both datasets. socket NULL: starts a private daemon with `threads` (0: its
 * own choice). Errors are sentences in error.
 */
int data_open(struct data *data, const struct recipe *recipe, const char *socket, unsigned threads,
	      char *error);
void data_close(struct data *data);

/* The training feed from a position on. */
int data_train_feed(const struct data *data, uint64_t epoch, uint64_t batch, struct feed **ret_feed,
		    char *error);
/*
 * One pass over the evaluation set, as of an epoch (for pipelines with a size schedule), with a
 * shorter last batch.
 */
int data_val_feed(const struct data *data, uint64_t epoch, struct feed **ret_feed, char *error);

/*
 * Next batch: 0, FEED_END, -EINTR once *stop is set, -ETIMEDOUT when nothing came for five minutes,
 * others as feed_next. Adds the seconds that it waited.
 */
int data_next(struct feed *feed, const volatile int *stop, struct feed_batch *batch,
	      double *wait_seconds, char *error);
