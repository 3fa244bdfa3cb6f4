/*
 * Training batches: the feed of the run's training steps, its next batch, and the batches that the
 * device may still be reading. Written by these functions only.
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
	/* the feed has inflight_max + 1 slots: one more for the next batch */
	unsigned inflight_count, inflight_max;
};

/*
 * Opens the feed at the state's position and waits for its first batch. *ret_batches_per_epoch: as
 * the daemon counts them.
 */
int input_open(struct input *input, const struct checkpoint_state *state,
	       uint64_t *ret_batches_per_epoch);
void input_close(struct input *input);
/* Waits for the first batch. */
int input_first(struct input *input);
/*
 * Makes sure that `batch` is the batch of the next step. Adds the seconds waited. -EINTR if
 * stopped. With --overfit-batch it stays the first one.
 */
int input_next(struct input *input, const struct checkpoint_state *state, uint64_t steps,
	       double *wait_seconds);
/* The batch was queued; its memory may be released after the copy of `ticket`. */
void input_queued(struct input *input, uint64_t ticket);
/* True if no further batch can be queued before one is released. */
bool input_is_full(const struct input *input);
/*
 * Releases batches whose copy into a training graph is done; with wait, all of them. Returns the
 * device's code.
 */
int input_release(struct input *input, struct device_graph *graph, bool wait);
/* Sets the size of `batch`, for a search without a feed. */
void input_set_size(struct input *input, uint32_t height, uint32_t width);
