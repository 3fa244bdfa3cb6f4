/*
 * Source of batches: the daemon (a named or a private one), metadata of the datasets, and the feeds
 * for training and evaluation. Embedded in the run; single-threaded. Uses only libfeed to talk to
 * the daemon.
 */
#pragma once

#include "format/base/uuid.h"
#include "proto/client/feed.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/device/comm/comm.h"
#include "trainer/recipe/recipe.h"

enum { DATA_ERROR_MAX = FEED_ERROR_MAX, DATA_SOCKET_MAX = 256 };

struct data {
	const struct recipe *recipe;
	struct comm *comm;
	struct feed_daemon *daemon; /* private daemon started by this rank, or NULL */
	char socket[DATA_SOCKET_MAX];
	uint64_t samples, val_samples;
	struct uuid train_uuid, val_uuid;
	uint32_t classes;
	/* of data.train, in the format of class_names_write(); NULL if unknown */
	char *class_names;
	bool normalises;        /* true if mean and std are known */
	double mean[3], std[3]; /* R, G, B in 0..255 */
	bool writable;          /* map feeds writable */
	/* both datasets were opened: from now on an absent daemon is assumed to be restarting */
	bool reached;
};

/*
 * Connects to the daemon and opens both datasets. To evaluate weights (not NULL), opens the
 * validation set, and the training set only if it is configured and the weights do not name their
 * classes. socket NULL: one private daemon per machine, started by its first rank with `threads` (0
 * for its default). All ranks call it. Errors are sentences in error.
 */
int data_open(struct data *data, const struct recipe *recipe, struct comm *comm, const char *socket,
	      unsigned threads, const struct weights_metadata *weights, char *error);
void data_close(struct data *data);
/*
 * Threads of a private daemon: data.threads if set, else 0 for the daemon's default. If the device
 * computes on the same CPUs, a quarter of them (at least one) instead of the default, so that the
 * daemon does not slow the device down.
 */
unsigned data_daemon_threads(const struct recipe_data *recipe, const struct comm *comm,
			     bool on_cpus);

enum data_part {
	DATA_TRAIN, /* this rank's share of each training batch */
	DATA_WHOLE, /* whole training batches, as a single rank would get */
	/* this rank's share of one pass over the evaluation set; the last batch may be smaller */
	DATA_VAL,
};

/* Feeds opened from now on are mapped writable, or not. */
void data_set_writable(struct data *data, bool writable);
/* True if feeds of this part leave transforms to the device (FEED_DEFERRED). */
bool data_defers(const struct data *data, enum data_part part);
/*
 * Opens a feed at a position; for the evaluation set, with the image size of an epoch (for
 * pipelines with a size schedule). *ret_feed is NULL if the evaluation set has fewer samples than
 * there are ranks and this rank gets none. -ESTALE if the dataset is not the one that data_open()
 * found.
 */
int data_feed(const struct data *data, enum data_part part, uint64_t epoch, uint64_t batch,
	      struct feed **ret_feed, char *error);
/*
 * Samples of this rank in a training batch, in one of its micro-batches, and at most in an
 * evaluation batch.
 */
uint32_t data_train_share(const struct data *data);
uint32_t data_micro_share(const struct data *data);
uint32_t data_val_share(const struct data *data);

/*
 * Returns the next batch: 0, FEED_END, -EINTR once *stop is set, -ETIMEDOUT after data.reconnect
 * plus five minutes without a batch, otherwise as feed_next(). Adds the seconds spent waiting.
 */
int data_next(const struct data *data, struct feed *feed, const volatile int *stop,
	      struct feed_batch *batch, double *wait_seconds, char *error);
