/*
 * A feed's accounts: what a claim cost, by stage, and the moving average of a sample's cost. Each worker adds to counters of its own, in
 * cache lines of its own; whoever asks sums them. Internal to batch.c's folder.
 */
#pragma once

#include "batch.h"
#include "sample.h"

/* Adds to a counter that only this worker writes: a plain addition that readers may look at. */
void account_add(_Atomic uint64_t *counter, uint64_t value);
/* One in how many samples of a claim to time. */
uint32_t account_interval(const struct batcher *batcher, uint32_t units);
/*
 * Books a claim of `samples` samples, `timed` of which `times` covers, that took wall_ns. Advances the batcher's virtual time by the CPU time that
 * the thread has used since the last call.
 */
void account_claim(struct batcher *batcher, struct batcher_worker *worker,
		   struct sample_times *times, uint32_t samples, uint32_t timed, uint64_t wall_ns);
