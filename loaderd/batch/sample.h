/*
 * One finished sample: stored bytes found, verified, transformed into its place in a slot, label
 * and fields beside it. Called by a worker for a unit that it has claimed; touches nothing but that
 * unit's bytes. Internal to batch.c's folder.
 */
#pragma once

#include "loaderd/batch/batch.h"

/* Mark in a slot's flags while a batch is in the making; never published. */
enum { SAMPLE_SKIPPED = 0x80 };

/* One sample's, or several's, time, added to; ticks (ticks.h). */
struct sample_times {
	uint64_t wait; /* for stored bytes, asleep */
	uint64_t read; /* finding and verifying them */
	struct transform_times stages;
};

/*
 * Says that the samples of units [unit, unit + count), all of this claim and at most
 * PACKIMG_AHEAD_MAX, come next: JPEGs without an index are then decoded side by side. What comes of
 * each, and what is said of a damaged one, does not change. Returns how many such JPEGs there were.
 */
uint32_t sample_ahead(struct batcher *batcher, struct batcher_worker *worker,
		      struct batcher_work *work, uint64_t unit, uint32_t count,
		      struct sample_times *times);
/*
 * The sample of a unit that this worker has claimed, which is number `index`, at its place in the
 * batch. Negative errno with a sentence in error; the place's bytes are then undefined. -ECANCELED:
 * the feed is being stopped. -EINVAL: no fault of the sample, the pipeline does not fit it.
 */
int sample_make_unit(struct batcher *batcher, struct batcher_worker *worker,
		     struct batcher_work *work, uint64_t unit, uint64_t index,
		     struct sample_times *times, struct packimg_error *error);
/*
 * Fills place i with a sample drawn by (seed, epoch, index) and flags it. What stands there is the
 * drawn sample in full: pixels, label, fields and number. After BATCHER_SUBSTITUTES_MAX failures
 * gives up with the last error.
 */
int sample_substitute(struct batcher *batcher, struct batcher_worker *worker,
		      struct batcher_work *work, uint32_t i, uint64_t index,
		      struct sample_times *times, struct packimg_error *error);
