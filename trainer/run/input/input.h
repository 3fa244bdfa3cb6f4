/*
 * Training batches: the feed, its next batch, and the batches in flight, which the device may still
 * be reading. Only the functions below write the struct.
 */
#pragma once

#include "trainer/run/input/feeds.h"

enum { INPUT_INFLIGHT_MAX = 4 };

/* A batch that the device may still be reading. */
struct inflight_batch {
	struct feed_batch batch;
	uint64_t ticket;
};

struct input {
	struct feeds *feeds;
	struct run_feed feed;
	struct feed_batch batch; /* next batch, valid if has_batch */
	bool has_batch;
	struct inflight_batch inflight[INPUT_INFLIGHT_MAX]; /* oldest first */
	/* maximum inflight_count; the feed has at least one slot more, for the next batch */
	unsigned inflight_count, inflight_max;
};

/* Opens the feed at the state's position. Sets *ret_info to what the daemon says about it. */
int input_open(struct input *input, const struct checkpoint_state *state,
	       struct feed_info *ret_info);
void input_close(struct input *input);
/* Waits for the first batch. */
int input_first(struct input *input);
/*
 * Makes sure that `batch` is the batch of the next step; with --overfit-batch, always the first
 * one. Adds the seconds waited. -EINTR if stopped.
 */
int input_next(struct input *input, const struct checkpoint_state *state, uint64_t steps,
	       double *wait_seconds);
/* Call after `batch` was queued; its memory may be released once the copy of `ticket` is done. */
void input_queued(struct input *input, uint64_t ticket);
/* True if a batch must be released before another can be queued. */
bool input_is_full(const struct input *input);
/*
 * Releases the batches whose copies into a training graph are done; if `wait`, waits for all
 * copies. Returns the device's error code.
 */
int input_release(struct input *input, struct device_graph *graph, bool wait);
/* Sets the image size of `batch`, for a search without a feed. */
void input_set_size(struct input *input, uint32_t height, uint32_t width);
