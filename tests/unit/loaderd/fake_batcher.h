/*
 * Makes the objects that a batcher receives from other parts of the daemon: a dataset opened by fd,
 * a file for O_DIRECT, and the memory of a ring. A failure ends the test through cmocka's
 * assertions.
 */
#pragma once

#include "loaderd/batch/batch.h"

/* Opens a dataset of one file. */
struct dataset *own_dataset(const char *path);
/*
 * Returns a file of the dataset's size with all bytes inverted, to be closed by the caller: what is
 * read from it is known not to come from the mapping.
 */
int opposite_file(const struct dataset *dataset);
/* Allocates the ring that the options describe, and creates the batcher. */
struct batcher *fake_batcher(struct batcher_options *options);
