/*
 * Source of batches: the connection to a daemon (running or private), metadata of the datasets, and
 * the feeds for training and evaluation. Embedded in the run; single-threaded. Uses only libfeed to
 * talk to the daemon.
 */
#pragma once

#include "format/base/uuid.h"
#include "proto/client/feed.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/device/comm/comm.h"
#include "trainer/recipe/recipe.h"
#include "trainer/run/input/targets.h"
#include "trainer/run/input/train_order.h"

enum { DATA_ERROR_MAX = FEED_ERROR_MAX, DATA_SOCKET_MAX = 256 };

struct data {
	const struct recipe *recipe;
	struct comm *comm;      /* all ranks */
	struct comm *data_comm; /* those that share each batch */
	/* shows a line about a wait; set by the owner, NULL: nobody is told */
	void (*say)(void *context, const char *line);
	void *say_context;
	struct feed_daemon *daemon; /* private daemon started by this rank, or NULL */
	char socket[DATA_SOCKET_MAX];
	struct train_order *order;     /* of data.train; NULL without it */
	uint64_t samples, val_samples; /* samples: in all datasets of data.train */
	/*
	 * samples of an epoch of training, over all ranks and without repeats; 0 before
	 * input_open()
	 */
	uint64_t epoch_samples;
	struct uuid train_uuid, val_uuid; /* train_uuid: train_order_uuid() */
	struct target target;             /* what data.target names; all zeros without it */
	uint32_t classes;                 /* outputs of the network */
	/*
	 * class names of data.train, from class_names_write(); NULL if unknown, or if the outputs
	 * are no classes
	 */
	char *class_names;
	bool normalises;        /* true if mean and std are known */
	double mean[3], std[3]; /* R, G, B in 0..255 */
	bool writable;          /* map newly opened feeds writable */
	/* both datasets were opened once: an unreachable daemon is assumed to be restarting */
	bool reached;
};

/*
 * Connects to the daemon and opens both datasets. All ranks call it. Errors are sentences in error.
 * - socket: NULL starts one private daemon per machine, by the machine's first rank, with `threads`
 *   (0 for the daemon's default)
 * - weights: NULL to train. To evaluate weights, opens the validation set; opens the training set
 *   only if it is configured and the weights do not name their classes
 */
int data_open(struct data *data, const struct recipe *recipe, struct comm *comm,
	      struct comm *data_comm, const char *socket, unsigned threads,
	      const struct weights_metadata *weights, char *error);
void data_close(struct data *data);
/*
 * Number of threads for a private daemon: data.threads if set. Otherwise 0, the daemon's default,
 * or if the device computes on the same CPUs, a quarter of them (at least one), so that the daemon
 * does not slow the device down.
 */
unsigned data_daemon_threads(const struct recipe_data *recipe, const struct comm *comm,
			     bool on_cpus);

enum data_part {
	DATA_TRAIN, /* this rank's part of each training batch */
	DATA_WHOLE, /* whole training batches, as a single rank gets */
	/* this rank's part of one pass over the evaluation set; the last batch may be smaller */
	DATA_VAL,
};

/* Sets whether feeds opened later are mapped writable. */
void data_set_writable(struct data *data, bool writable);
/* True if the daemon leaves the last transforms of these feeds to the device (FEED_DEFERRED). */
bool data_defers(const struct data *data, enum data_part part);
/*
 * Opens a feed at a position. For the evaluation set, `epoch` selects the image size (for pipelines
 * with a size schedule). Sets *ret_feed to NULL if the evaluation set has fewer samples than ranks
 * and this rank gets none. -ESTALE if the dataset is not the one that data_open() opened.
 */
int data_feed(const struct data *data, enum data_part part, uint64_t epoch, uint64_t batch,
	      struct feed **ret_feed, char *error);
/*
 * Number of this rank's samples: in a training batch, in a micro-batch, and at most in an
 * evaluation batch.
 */
uint32_t data_train_share(const struct data *data);
uint32_t data_micro_share(const struct data *data);
uint32_t data_val_share(const struct data *data);
/* Numbers per sample to allocate for targets: the outputs with data.target, else 1. */
uint32_t data_target_numbers(const struct data *data);
/* Number of samples of a feed's batch, at most. */
uint32_t data_share(const struct data *data, enum data_part part);

/*
 * Waits for the next batch. Returns 0, FEED_END, -EINTR once *stop is set, -ETIMEDOUT if none
 * arrives within data.reconnect plus five minutes, or another error of feed_next(). Adds the
 * seconds waited to *wait_seconds.
 */
int data_next(const struct data *data, struct feed *feed, const volatile int *stop,
	      struct feed_batch *batch, double *wait_seconds, char *error);
