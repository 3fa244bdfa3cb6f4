/*
 * What the daemon gets from others, made by the test itself: a dataset's descriptors, a ring's
 * memory. Failures end the test through cmocka's assertions.
 */
#pragma once

#include "loaderd/batch/batch.h"

/* Opens a dataset of one file. */
struct dataset *own_dataset(const char *path);
/* Fills in the memory of the ring that the options ask for, and makes the batcher. */
struct batcher *fake_batcher(struct batcher_options *options);
