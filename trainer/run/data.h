/*
 * Where batches come from: the daemon (one that is named, or a private one), the facts about the
 * datasets, and the feeds for training and evaluation. Embedded in the run; one thread. Speaks to
 * the daemon through libfeed alone.
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
	struct feed_daemon *daemon; /* private and this rank's, or NULL */
	char socket[DATA_SOCKET_MAX];
	uint64_t samples, val_samples;
	struct uuid train_uuid, val_uuid;
	uint32_t classes;
	char *class_names;      /* of data.train, as class_names_write() has them; NULL: none */
	bool normalises;        /* by these; false: nothing says by what */
	double mean[3], std[3]; /* R, G, B in 0..255, resolved */
	bool writable;          /* feeds are mapped writable; the caller's to say */
	/* both datasets were looked up: a daemon that is not there is on its way */
	bool reached;
};

/*
 * Reaches the daemon and both datasets; to evaluate weights (NULL: to train) the validation set
 * alone, and the training set only where it is named and they do not name their classes. socket
 * NULL: a private daemon, one for all ranks of a machine, which the first of them starts with
 * `threads` (0: its own choice). Called by all ranks. Errors are sentences in error.
 */
int data_open(struct data *data, const struct recipe *recipe, struct comm *comm, const char *socket,
	      unsigned threads, const struct weights_facts *weights, char *error);
void data_close(struct data *data);
/*
 * Of the private daemon; 0: its own choice. A device that computes on the CPUs where ranks of this
 * machine may run leaves it a quarter of them: one that took all would only get in the way.
 */
unsigned data_daemon_threads(const struct recipe_data *recipe, const struct comm *comm,
			     bool on_cpus);

enum data_part {
	DATA_TRAIN, /* this rank's share of training batches */
	DATA_WHOLE, /* the same of whole batches, as one rank alone would be fed */
	/* this rank's share of one pass over the evaluation set, with a shorter last batch */
	DATA_VAL,
};

/* Do feeds of this part leave steps of the pipeline to the device (FEED_DEFERRED)? */
bool data_defers(const struct data *data, enum data_part part);
/*
 * A feed from a position on; of the evaluation set, as of an epoch (for pipelines with a size
 * schedule). *ret_feed NULL: that set has fewer samples than there are ranks, and none is left for
 * this one. -ESTALE: the dataset is not the one that data_open() found.
 */
int data_feed(const struct data *data, enum data_part part, uint64_t epoch, uint64_t batch,
	      struct feed **ret_feed, char *error);
/*
 * Samples of this rank in a training batch, in each of the micro-batches that it is computed in,
 * and at most in a batch for evaluation.
 */
uint32_t data_train_share(const struct data *data);
uint32_t data_micro_share(const struct data *data);
uint32_t data_val_share(const struct data *data);

/*
 * Next batch: 0, FEED_END, -EINTR once *stop is set, -ETIMEDOUT when nothing came for five minutes
 * and data.reconnect, others as feed_next. Adds the seconds that it waited.
 */
int data_next(const struct data *data, struct feed *feed, const volatile int *stop,
	      struct feed_batch *batch, double *wait_seconds, char *error);
