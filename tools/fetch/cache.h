/*
 * The user's cache of datasets from stores: a folder for each dataset, in $LOADERD_CACHE, else
 * $XDG_CACHE_HOME/loaderd/remote, else ~/.cache/loaderd/remote.
 *
 *   NAME/lock        locked while a fetcher has the dataset open
 *   NAME/0.pimg ...  the files of the dataset, sparse
 *   NAME/entry       text: the address, and size and version of each file
 *   NAME/present     which samples are there, as of the last sync
 *
 * NAME is a hash of address and endpoint. An entry of another version of the dataset is emptied.
 *
 * After a crash of the machine a sample counts as present only if its bytes had been synced before
 * the file `present` was replaced. So `present` is written to a temporary file after fdatasync() of
 * the dataset's files, and renamed.
 *
 * Datasets that no fetcher has open go least recently used first when another one needs room. One
 * thread, but cache_sync().
 */
#pragma once

#include "format/error.h"

#include <stdbool.h>
#include <stdint.h>

struct cache {
	char folder[4096];
	uint64_t limit; /* bytes */
};

/* What identifies a version of a file in a store. */
struct cache_version {
	uint64_t size;
	const char *etag, *modified; /* "" without one */
};

struct cache_entry {
	char folder[4200];
	uint64_t id; /* random, of the files: others have another one */
	int lock;
	uint32_t count;
	int *fds;       /* [count] */
	bool temporary; /* without a name, because another fetcher has the dataset open */
};

/* Finds the folder, and the limit: $LOADERD_CACHE_SIZE, else most of the room on its disk. */
int cache_init(struct cache *cache, struct packimg_error *error);
/* Bytes on disk of all datasets. */
uint64_t cache_bytes(const struct cache *cache);
/* What is in the cache. */
struct cache_item {
	char url[4096];
	uint64_t bytes; /* on disk */
	bool open;      /* by a fetcher */
};
/* Lists the datasets; the caller frees the list. NULL if there are none, or memory is out. */
struct cache_item *cache_list(const struct cache *cache, size_t *ret_count);
/*
 * Removes datasets that nobody has open, least recently used first, until `bytes` more fit. Returns
 * the bytes that fit then.
 */
uint64_t cache_make_room(const struct cache *cache, uint64_t bytes);
/* Removes the dataset of an address, or all with NULL. Those that are open stay and are counted. */
void cache_clear(const struct cache *cache, const char *key, uint64_t *ret_bytes,
		 uint32_t *ret_removed, uint32_t *ret_busy);
/*
 * Opens or makes the entry of a dataset of `count` files, which get the versions' sizes. key: what
 * identifies the dataset; shown: for people. If another process has it open, makes temporary files.
 */
int cache_open(const struct cache *cache, const char *key, const char *shown,
	       const struct cache_version *versions, uint32_t count, struct cache_entry *ret_entry,
	       struct packimg_error *error);
/* Reads which samples are there, a bit each, [(samples + 7) / 8] bytes; zeros if none are. */
void cache_read_present(const struct cache_entry *entry, uint64_t samples, uint8_t *bits);
/*
 * Removes `present`. Call it before the first sample is taken away: from then on it would be wrong
 * after a crash, until cache_sync() when the dataset is closed.
 */
void cache_forget_present(const struct cache_entry *entry);
/*
 * Syncs the files, then writes `present`. The bits are of the time before the call. Any thread, one
 * at a time for an entry. Negative errno.
 */
int cache_sync(const struct cache_entry *entry, const uint8_t *bits, uint64_t samples);
void cache_close(struct cache_entry *entry);
