#include "trainer/run/input/feeds.h"

#include "format/augment/deferred.h"
#include "trainer/device/device.h"
#include "trainer/device/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void feeds_fall_back_to_staging(struct feeds *feeds, const char *why)
{
	feeds->staged = true;
	data_set_writable(feeds->data, false);
	progress_line(
		&feeds->ctx->progress,
		"batches are staged: they are copied once more on their way to the device: %s",
		why);
}

/*
 * Registers the feed's memory with the device. Returns DEVICE_WANTS_WRITABLE if that requires a
 * writable mapping, else 0; if the device refuses the memory, falls back to staging.
 */
static int feeds_register_host(struct feeds *feeds, struct run_feed *feed)
{
	struct device *device = feeds->ctx->device;
	struct feed_info info = {.size = sizeof(info)};
	int r = feed_info(feed->feed, &info);
	feed->reconnects = info.reconnects;
	if (r == 0)
		r = device_register_host(device, info.memory, info.memory_size,
					 feeds->data->writable);
	if (r == 0 || r == DEVICE_STAGED) {
		feed->memory = info.memory;
		feed_keep_memory(feed->feed, info.memory);
	}
	if (r == 0 || r == DEVICE_WANTS_WRITABLE)
		return r;
	feeds_fall_back_to_staging(feeds, run_device_text(feeds->ctx, r));
	return 0;
}

/* Waits for copies from the feed's memory and unregisters it. Batches in use stay valid. */
static void feeds_unregister_host(struct feeds *feeds, struct run_feed *feed)
{
	if (feed->memory) {
		device_unregister_host(feeds->ctx->device, feed->memory);
		feed_drop_memory(feed->feed, feed->memory);
	}
	feed->memory = NULL;
}

static int feeds_log_reconnect(struct feeds *feeds, const char *text)
{
	struct output *output = feeds->output;
	if (!output->metrics)
		return 0;
	/* log the step before the pending ones, whose lines come after this one */
	metrics_log_begin(output->metrics, "reconnect",
			  step_queue_collected(feeds->queue, output->state->step));
	metrics_log_text(output->metrics, "text", text);
	return output_end_line(output);
}

static int feeds_reconnected(struct feeds *feeds, struct run_feed *feed)
{
	const char *text = feed_reconnect_text(feed->feed);
	feeds_unregister_host(feeds, feed);
	if (!feeds->staged && feeds_register_host(feeds, feed) == DEVICE_WANTS_WRITABLE)
		feeds_fall_back_to_staging(feeds, device_error(feeds->ctx->device));
	progress_line(&feeds->ctx->progress, "%s", text);
	return feeds_log_reconnect(feeds, text);
}

int run_feed_next(struct feeds *feeds, struct run_feed *feed, struct feed_batch *batch,
		  double *wait_seconds, char *error)
{
	struct run_context *ctx = feeds->ctx;
	uint64_t begin = tracer_span_begin(feeds->tracer);
	int r = data_next(feeds->data, feed->feed, ctx->options.stop, batch, wait_seconds, error);
	tracer_span_end(feeds->tracer, begin, "wait for data");
	if (r) /* FEED_END or an error */
		return r;
	r = run_feed_take_deferred(feeds->data, feed, batch, error);
	if (r == 0 && feed->targets)
		r = target_read(&feeds->data->target, ctx->recipe->data.target,
				feeds->data->classes, feed->feed, batch, feed->targets, error);
	if (r < 0 || batch->reconnects == feed->reconnects)
		return r;
	r = feeds_reconnected(feeds, feed);
	feed->reconnects = batch->reconnects;
	if (r < 0)
		snprintf(error, DATA_ERROR_MAX, "%.*s", DATA_ERROR_MAX - 1, ctx->error);
	return r;
}

/*
 * Reopens a feed whose memory the device cannot register read-only; maps it writable if the daemon
 * permits that.
 */
static int feeds_open_writable(struct feeds *feeds, enum data_part part, uint64_t epoch,
			       uint64_t batch, struct run_feed *feed, char *error)
{
	progress_line(&feeds->ctx->progress, "%s: requesting a writable mapping from the daemon",
		      device_error(feeds->ctx->device));
	feed_close(feed->feed);
	data_set_writable(feeds->data, true);
	int r = data_feed(feeds->data, part, epoch, batch, &feed->feed, error);
	if (r == 0)
		return feeds_register_host(feeds, feed);
	feeds_fall_back_to_staging(feeds, *error ? error : strerror(-r));
	return data_feed(feeds->data, part, epoch, batch, &feed->feed, error);
}

/* Returns the recipe key for the field of a request, which begins an error; NULL for others. */
static const char *feeds_key_of(const char *error, enum data_part part, size_t *ret_length)
{
	static const struct {
		const char *field, *train, *val;
	} keys[] = {
		{"pipeline: ", "data.pipeline", "data.val_pipeline"},
		{"where: ", "data.where"},
		{"class_weights: ", "data.class_sampling"},
		{"epoch_samples: ", "data.epoch_samples"},
		{"parts: ", "data.shares"},
		{"stages: ", "data.shares"},
		{"batch_size: ", "data.batch_size"},
	};
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		*ret_length = strlen(keys[i].field);
		if (strncmp(error, keys[i].field, *ret_length) == 0)
			return part == DATA_VAL ? keys[i].val : keys[i].train;
	}
	return NULL;
}

static int feeds_fail_open(struct feeds *feeds, enum data_part part, int code, const char *error)
{
	size_t length;
	const char *key = feeds_key_of(error, part, &length);
	/* older daemons lack deferral, others limit it */
	bool defers = data_defers(feeds->data, part) &&
		      (strstr(error, FEED_DEFERRED) || strstr(error, "transforms can be deferred"));
	return run_fail(feeds->ctx, code, "%s: %s%s",
			key                ? key
			: part == DATA_VAL ? "data.val"
					   : "data.train",
			*error ? error + (key ? length : 0) : strerror(-code),
			defers ? "; or set data.augment=daemon" : "");
}

int run_feed_open(struct feeds *feeds, enum data_part part, uint64_t epoch, uint64_t batch,
		  struct run_feed *ret_feed)
{
	char error[DATA_ERROR_MAX];
	*ret_feed = (struct run_feed){0};
	int r = data_feed(feeds->data, part, epoch, batch, &ret_feed->feed, error);
	if (r == 0 && ret_feed->feed && !feeds->staged)
		r = feeds_register_host(feeds, ret_feed);
	if (r == DEVICE_WANTS_WRITABLE)
		r = feeds_open_writable(feeds, part, epoch, batch, ret_feed, error);
	if (r)
		return feeds_fail_open(feeds, part, r, error);
	if (data_defers(feeds->data, part))
		ret_feed->deferred = calloc(data_share(feeds->data, part), sizeof(struct deferred));
	if (feeds->data->target.outputs)
		ret_feed->targets =
			calloc((size_t)data_share(feeds->data, part) * feeds->data->classes,
			       sizeof(float));
	if ((data_defers(feeds->data, part) && !ret_feed->deferred) ||
	    (feeds->data->target.outputs && !ret_feed->targets))
		return run_fail(feeds->ctx, -ENOMEM, "out of memory");
	return 0;
}

void run_feed_close(const struct feeds *feeds, const struct run_feed *feed)
{
	if (feeds->ctx->device)
		device_unregister_host(feeds->ctx->device, feed->memory);
	feed_close(feed->feed);
	free(feed->deferred);
	free(feed->targets);
}

int run_feed_device_batch(struct run_context *ctx, const struct run_feed *feed,
			  const struct feed_batch *batch, const char *pipeline_key,
			  struct device_batch *ret_batch)
{
	if (batch->layout == FEED_PATCHES)
		return run_fail(ctx, -EINVAL,
				"%s delivers patches, but the trainer needs whole images: put "
				"resize in the place of patch_resize()",
				pipeline_key);
	if (batch->layout != FEED_NHWC)
		return run_fail(
			ctx, -EINVAL,
			"%s delivers planes (nchw), but the trainer needs nhwc: remove layout()",
			pipeline_key);
	if (batch->channels < 3)
		return run_fail(ctx, -EINVAL, "%s delivers %u channels: expected 3 or 4",
				pipeline_key, batch->channels);
	*ret_batch = (struct device_batch){
		.images = batch->images,
		.labels = batch->labels,
		.count = batch->count,
		.channels = batch->channels,
		.height = batch->height,
		.width = batch->width,
		.element = (enum device_element)batch->element,
	};
	if (feed && feed->targets) {
		ret_batch->labels = NULL; /* of another kind than the targets */
		ret_batch->targets = feed->targets;
	}
	if (feed && feed->deferred) {
		ret_batch->deferred = feed->deferred;
		ret_batch->delivered_height = feed->delivered_height;
		ret_batch->delivered_width = feed->delivered_width;
	}
	return 0;
}
