/* The answer to GetDataset, from one file of the dataset. Any thread. */
#pragma once

#include "loaderd/worker/subscription.h"

/*
 * The whole Reply, packed; the caller frees it. *fd, a descriptor of any file of the dataset, is
 * set to -1 if it was taken over. Negative errno with the refusal filled in. May take as long as
 * the storage takes.
 */
int dataset_reply(const char *path, int *fd, uint8_t **ret_packed, size_t *ret_size,
		  struct refusal *refusal);
