/*
 * Mixing of a batch, by the last steps of its pipeline: blends samples 0 and 1, 2 and 3 and so on
 * with each other, and writes targets. One thread makes both samples of a pair, which it has in a
 * claim, and then calls mixing_finish(), so that mixing runs on all threads and waits for none. See
 * loaderd(1), PIPELINES.
 *
 * Blended images are read back from the ring, which the client may be able to write: by changing
 * them it gets other pixels. Labels come from the thread.
 */
#pragma once

#include "loaderd/batch/sample.h"

/* One of a pair. */
struct mixing_sample {
	bool made;     /* false: skipped, or the batch has failed */
	int32_t label; /* below 0 for none */
};

/* Draws the blend of a batch whose position and samples are set. */
void mixing_begin(const struct batcher *batcher, struct batcher_work *work);
/*
 * Returns -EINVAL or -EBADMSG, with error->text, if a sample's label is not below the classes of
 * its target.
 */
int mixing_check_label(const struct batcher *batcher, const struct packimg_sample *sample,
		       struct packimg_error *error);
/*
 * Blends samples i and i + 1 of a batch, if both are made, and writes the targets of those that
 * are. count: 1 for a last sample without a partner.
 */
void mixing_finish(const struct batcher *batcher, struct batcher_work *work, uint32_t i,
		   const struct mixing_sample *pair, uint32_t count, struct sample_times *times);
