/*
 * A feed's accounts: what a claim cost, by stage, and the moving average of a sample's cost. Each
 * worker adds to counters of its own, in cache lines of its own; whoever asks sums them. Internal
 * to batch.c's folder.
 */
#pragma once

#include "loaderd/batch/batch.h"
#include "loaderd/batch/sample.h"

/* Adds to a counter that only this worker writes: a plain addition that readers may look at. */
void counters_add(_Atomic uint64_t *counter, uint64_t value);
/*
 * Books a claim of `samples` samples: all that has passed on the worker's watch since the claim
 * before, of which `times` knows a part. Advances the batcher's virtual time by the CPU time of it.
 */
void counters_claim(struct batcher *batcher, struct batcher_worker *worker,
		    const struct sample_times *times, uint32_t samples);
