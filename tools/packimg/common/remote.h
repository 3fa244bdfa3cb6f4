/*
 * Datasets in stores: packimg_open() for commands, for paths and addresses (tools/store/address.h).
 *
 * A dataset in a store is opened as sparse temporary files in $TMPDIR, or /var/tmp, that have the
 * objects' sizes, without a name. Headers and sections are fetched at once; samples only on
 * request. Main thread only.
 */
#pragma once

#include "format/packimg.h"

#include <stdbool.h>
#include <stdint.h>

struct remote; /* the store's side of a dataset; NULL for a dataset of files */

/*
 * Errors of packimg_open(); for addresses also those of store.h, -EINTR after
 * command_catch_interrupts(), and -ENOTSUP if packimg was built without stores. An address names a
 * file, any shard of a set, or a set file. Shows progress on standard error unless quiet.
 */
int remote_open(const char *path, bool quiet, struct packimg **ret_dataset,
		struct remote **ret_remote, struct packimg_error *error);
/*
 * Opens a dataset in a store in two steps: reads its headers, then fetches its sections into the
 * files of a receiver, which has as many as remote_shards() says, or into temporary files, if it is
 * NULL. `unsealed` ignores a set file. The caller frees *ret_remote with remote_close(), also if
 * the second step fails.
 */
int remote_connect(const char *address, bool unsealed, bool quiet, struct remote **ret_remote,
		   struct packimg_error *error);
int remote_receive(struct remote *remote, const struct packimg_receiver *receiver,
		   struct packimg **ret_dataset, struct packimg_error *error);
/* Returns the number of shards; 0 for a single file. */
uint32_t remote_shards(const struct remote *remote);
/*
 * Writes the set file of a set that was opened unsealed, and sets *ret_address to where, which the
 * caller frees. Errors as of store_upload().
 */
int remote_seal(struct remote *remote, char **ret_address, struct packimg_error *error);
/* Fetch images of these samples, or everything. Nothing to do if remote is NULL. */
int remote_fetch_samples(struct remote *remote, const uint64_t *samples, uint64_t count,
			 struct packimg_error *error);
int remote_fetch_all(struct remote *remote, struct packimg_error *error);
/* Requests, retries and bytes of bodies so far; zeros if remote is NULL. */
struct remote_counters {
	uint64_t requests, retries, bytes;
};
struct remote_counters remote_counters(const struct remote *remote);
/* Closes the dataset, too. NULL is accepted for both. */
void remote_close(struct remote *remote, struct packimg *dataset);
