/*
 * Makes the objects that a batcher receives from other parts of the daemon: a dataset opened by fd,
 * and the memory of a ring. A failure ends the test through cmocka's assertions.
 */
#pragma once

#include "loaderd/batch/batch.h"

/* Opens a dataset of one file. */
struct dataset *own_dataset(const char *path);
/* Allocates the ring that the options describe, and creates the batcher. */
struct batcher *fake_batcher(struct batcher_options *options);
