/*
 * Accounting of a feed: time per claim by stage, and the moving average of the cost of a sample.
 * Each thread adds to its own counters in its own cache lines; batcher_status() sums them. Internal
 * to loaderd/batch.
 */
#pragma once

#include "loaderd/batch/batch.h"
#include "loaderd/batch/sample.h"

/*
 * Adds to a counter that only this thread writes. A relaxed load and store, so readers see whole
 * values.
 */
void counters_add(_Atomic uint64_t *counter, uint64_t value);
/*
 * Accounts for a claim of `samples` samples: the time on the thread's clock since the previous
 * claim. `times` assigns part of it to stages; the rest is STAGE_OTHER. Advances the batcher's
 * virtual time by the CPU time.
 */
void counters_claim(struct batcher *batcher, struct batcher_thread *thread,
		    const struct sample_times *times, uint32_t samples);
