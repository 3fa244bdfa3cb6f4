/*
 * Feeds of a run (data.h) and the device's access to their rings: a ring's memory is registered
 * with the device so that batches are copied straight from the mapping, read-only if possible, else
 * writable. If neither works, the run goes on with slower staged copies. The outcome is reported
 * once and used for later feeds.
 */
#pragma once

#include "trainer/run/context.h"
#include "trainer/run/input/data.h"
#include "trainer/run/output/output.h"
#include "trainer/run/output/tracer.h"
#include "trainer/run/step_queue.h"

struct feeds {
	struct run_context *ctx;
	struct data *data;
	struct tracer *tracer;
	struct output *output; /* its log gets reconnects */
	const struct step_queue *queue;
	/* the device stages every batch in its own pinned memory; register no feed memory */
	bool staged;
};

/* A feed and the mapping of its ring that the device knows. */
struct run_feed {
	struct feed *feed;
	const void *memory;  /* NULL if no memory is registered with the device */
	uint64_t reconnects; /* the feed's reconnect count when `memory` was registered */
	/*
	 * with data.augment = device: [data_train_share()] deferred operations of the current
	 * batch, whose images arrive in the delivered size; else NULL
	 */
	struct deferred *deferred;
	uint32_t delivered_height, delivered_width;
};

/* Opens a feed (data_feed()); run_feed_close() undoes it, also half done. */
int run_feed_open(struct feeds *feeds, enum data_part part, uint64_t epoch, uint64_t batch,
		  struct run_feed *ret_feed);
void run_feed_close(const struct feeds *feeds, const struct run_feed *feed);
/*
 * data_next(). After a reconnect to another daemon, reports it in progress and log and registers
 * the new mapping. error: DATA_ERROR_MAX bytes.
 */
int run_feed_next(struct feeds *feeds, struct run_feed *feed, struct feed_batch *batch,
		  double *wait_seconds, char *error);
/*
 * Describes the feed's current batch for the device; feed NULL for a synthetic batch. -EINVAL if
 * pipeline and model do not fit.
 */
int run_feed_device_batch(struct run_context *ctx, const struct run_feed *feed,
			  const struct feed_batch *batch, const char *pipeline_key,
			  struct device_batch *ret_batch);
/*
 * With data.augment = device: copies the deferred operations out of a new batch and sets the
 * batch's size to the one after them (defer.c). -EBADMSG if they are invalid.
 */
int run_feed_take_deferred(const struct data *data, struct run_feed *feed, struct feed_batch *batch,
			   char *error);
