/*
 * Evaluation with train.shard = parameters: each batch gathers weights from all ranks that share
 * batches, so these evaluate the same number. A rank whose part of data.val has fewer batches
 * evaluates empty ones meanwhile. Other runs evaluate independently of each other.
 */
#pragma once

#include "trainer/device/steps.h"
#include "trainer/run/run_internal.h"

/*
 * Before each batch; outcome: 0 if this rank has one, FEED_END if it has no more, else why it
 * leaves. Returns outcome, or RUN_LOST if that is one of the first two and another rank leaves.
 * Sets *ret_idle if this rank has no more batches and others do.
 */
int idle_vote(struct run *run, int outcome, bool *ret_idle);

/* A batch of one black image without a label. */
struct idle_batch {
	struct device_batch batch;
	void *image;
	float *targets;
};
/* like: a batch of the pass, of which no pointer is used. -ENOMEM. */
int idle_batch_init(struct idle_batch *idle, const struct run *run,
		    const struct device_batch *like);
void idle_batch_deinit(struct idle_batch *idle);
