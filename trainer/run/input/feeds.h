/*
 * Feeds of a run (data.h) and the device's access to their rings. Registers each ring's memory with
 * the device, so that the device copies batches straight from the mapping: read-only if the device
 * can register that, else writable. If neither works, the device stages batches, which costs one
 * more copy. The outcome is reported once and applies to later feeds.
 */
#pragma once

#include "trainer/device/steps.h"
#include "trainer/run/context.h"
#include "trainer/run/input/data.h"
#include "trainer/run/output/output.h"
#include "trainer/run/output/tracer.h"
#include "trainer/run/step_queue.h"

struct feeds {
	struct run_context *ctx;
	struct data *data;
	struct tracer *tracer;
	struct output *output; /* for log lines about reconnects */
	const struct step_queue *queue;
	/* the device copies every batch to its own pinned memory; no feed memory is registered */
	bool staged;
};

/* A feed and its memory that is registered with the device. */
struct run_feed {
	struct feed *feed;
	const void *memory; /* NULL if no memory is registered with the device */
	/* the feed's reconnect count when `memory` was registered */
	uint64_t reconnects;
	/*
	 * with data.augment = device: [data_train_share()] deferred transforms of the current
	 * batch, whose images have the delivered size; else NULL
	 */
	struct deferred *deferred;
	uint32_t delivered_height, delivered_width;
	/*
	 * with data.target: [data_share()][classes] targets of the current batch (target_read());
	 * else NULL
	 */
	float *targets;
};

/* Opens a feed as data_feed(). Close it with run_feed_close(), also after an error. */
int run_feed_open(struct feeds *feeds, enum data_part part, uint64_t epoch, uint64_t batch,
		  struct run_feed *ret_feed);
void run_feed_close(const struct feeds *feeds, const struct run_feed *feed);
/*
 * Waits for the next batch as data_next(). After a reconnect to another daemon, reports it in
 * progress and log and registers the new mapping. error: DATA_ERROR_MAX bytes.
 */
int run_feed_next(struct feeds *feeds, struct run_feed *feed, struct feed_batch *batch,
		  double *wait_seconds, char *error);
/*
 * Describes the feed's current batch for the device. feed: NULL for a synthetic batch. -EINVAL if
 * the network cannot take the pipeline's images.
 */
int run_feed_device_batch(struct run_context *ctx, const struct run_feed *feed,
			  const struct feed_batch *batch, const char *pipeline_key,
			  struct device_batch *ret_batch);
/*
 * With data.augment = device: copies the parameters of deferred transforms out of a new batch and
 * sets the batch's image size to the one after these transforms (feed_deferred.c). -EBADMSG if they
 * are invalid.
 */
int run_feed_take_deferred(const struct data *data, struct run_feed *feed, struct feed_batch *batch,
			   char *error);
