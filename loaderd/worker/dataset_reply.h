/* Builds the reply to GetDataset from one file of the dataset. Any thread. */
#pragma once

#include "loaderd/worker/subscription.h"

/*
 * Packs the whole Reply; the caller frees it. *fd is an fd of any file of the dataset; it is set to
 * -1 if the function took it over. Returns 0, or -errno with the refusal filled in. Blocks for as
 * long as the storage does.
 */
int dataset_reply(const char *path, int *fd, uint8_t **ret_packed, size_t *ret_size,
		  struct refusal *refusal);
