/*
 * Makes one finished sample: looks up and verifies its stored bytes, and writes pixels, label and
 * fields at the sample's index in a slot. A thread calls these functions for a unit that it has
 * claimed; they write no other unit's bytes. Internal to loaderd/batch.
 */
#pragma once

#include "loaderd/batch/batch.h"

/* Flag of a skipped sample in an unfinished batch; never published. */
enum { SAMPLE_SKIPPED = 0x80 };

/* Accumulated time of one or more samples, in ticks (ticks.h). */
struct sample_times {
	uint64_t wait; /* asleep, waiting for stored bytes */
	uint64_t read; /* looking up and verifying stored bytes */
	struct pipeline_times stages;
};

/*
 * Announces the samples of units [unit, unit + count) to pipeline_batched_decode(), which decodes
 * JPEGs without an index together. The units must belong to this claim; count is at most
 * PACKIMG_AHEAD_MAX. Results and error messages stay the same. Returns the number of JPEGs decoded
 * together.
 */
uint32_t sample_batched_decode(struct batcher *batcher, struct batcher_thread *thread,
			       struct batcher_work *work, uint64_t unit, uint32_t count,
			       struct sample_times *times);
/*
 * Makes sample `index`, its copy thread->copy, for a claimed unit and stores it at the unit's index
 * in the batch, and its label in thread->label. On error, returns a negative errno and sets
 * error->text; the bytes at that index are then undefined.
 * -ECANCELED: the feed is being stopped, and error->text is not set. -EINVAL: the sample is intact
 * but does not fit the pipeline or a field's capacity. -EAGAIN, of files that are being filled:
 * thread->units says for which sample to wait.
 */
int sample_make_unit(struct batcher *batcher, struct batcher_thread *thread,
		     struct batcher_work *work, uint64_t unit, uint64_t index,
		     struct sample_times *times, struct packimg_error *error);
/*
 * Stores a replacement at index i of the batch: a sample drawn from (seed, epoch, index), including
 * its label, fields and number. Flags it. After BATCHER_SUBSTITUTES_MAX failed draws, returns the
 * last error. -EAGAIN as above.
 */
int sample_substitute(struct batcher *batcher, struct batcher_thread *thread,
		      struct batcher_work *work, uint32_t i, uint64_t index,
		      struct sample_times *times, struct packimg_error *error);
