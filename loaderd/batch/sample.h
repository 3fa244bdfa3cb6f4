/*
 * Makes one finished sample: looks up and verifies its stored bytes, and writes pixels, label and
 * fields to its place in a slot. A thread calls these for a unit that it has claimed; they write to
 * no other unit's bytes. Internal to loaderd/batch.
 */
#pragma once

#include "loaderd/batch/batch.h"

/* Flag of a skipped sample in an unfinished batch; never published. */
enum { SAMPLE_SKIPPED = 0x80 };

/* Accumulated time of one or more samples, in ticks (ticks.h). */
struct sample_times {
	uint64_t wait; /* asleep, waiting for stored bytes */
	uint64_t read; /* looking up and verifying them */
	struct pipeline_times stages;
};

/*
 * Announces the samples of units [unit, unit + count), all of this claim and at most
 * PACKIMG_AHEAD_MAX, so that JPEGs without an index are decoded together. Results and error
 * messages stay the same. Returns the number of such JPEGs.
 */
uint32_t sample_batched_decode(struct batcher *batcher, struct batcher_thread *thread,
			       struct batcher_work *work, uint64_t unit, uint32_t count,
			       struct sample_times *times);
/*
 * Makes sample `index` for a claimed unit, in its place in the batch. On error, returns a negative
 * errno and sets error->text; the bytes in that place are then undefined. -ECANCELED: the feed is
 * being stopped, and error->text is not set. -EINVAL: the sample is intact but does not fit the
 * pipeline or a field's capacity.
 */
int sample_make_unit(struct batcher *batcher, struct batcher_thread *thread,
		     struct batcher_work *work, uint64_t unit, uint64_t index,
		     struct sample_times *times, struct packimg_error *error);
/*
 * Fills place i with a replacement sample drawn from (seed, epoch, index), including its pixels,
 * label, fields and number, and flags it. After BATCHER_SUBSTITUTES_MAX draws it fails with the
 * last error.
 */
int sample_substitute(struct batcher *batcher, struct batcher_thread *thread,
		      struct batcher_work *work, uint32_t i, uint64_t index,
		      struct sample_times *times, struct packimg_error *error);
