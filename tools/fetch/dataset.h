/*
 * A dataset in a store, as a fetcher has it open: files in the cache, of which header and sections
 * are complete, and which samples are there. Main thread only.
 */
#pragma once

#include "format/packimg.h"
#include "tools/fetch/cache.h"
#include "tools/fetch/pages.h"
#include "tools/store/set.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum sample_state {
	SAMPLE_ABSENT = 0,
	SAMPLE_UNDER_WAY, /* requested, or about to be */
	SAMPLE_PRESENT,
};

/* A map of turns (proto/filling.h) that some daemons have. */
struct turn_map {
	struct turn_map *next;
	int fd;
	uint64_t device, inode; /* of the memory file */
	_Atomic uint8_t *turns; /* [count], mapped */
	unsigned users;         /* feeds */
};

struct remote_dataset {
	struct remote_dataset *next; /* of the fetcher */
	unsigned users;              /* connections */
	uint64_t under_way;          /* requests; it stays open until they have ended */
	char *url;                   /* as the client wrote it; of a set: of any shard */
	char *key;                   /* of the cache, without a signature */
	struct store *store;
	struct store_set set;
	uint32_t file_count;
	struct store_object *objects; /* [file_count], of the set */
	struct cache_entry entry;
	struct packimg *packimg; /* of the cache's files */
	uint64_t samples, bytes;
	uint8_t *states;          /* [samples], enum sample_state */
	_Atomic uint64_t present; /* samples that are SAMPLE_PRESENT */
	/*
	 * Bytes on disk that the files may have: `bytes` or more if the cache keeps them whole.
	 * Else `pages` says what is used, and of that, `keep` bytes stay; more pass through.
	 */
	uint64_t room, keep;
	struct page_counts *pages; /* NULL: all fits, or nothing has been fetched yet */
	uint64_t overhead;         /* bytes on disk that `pages` does not know of */
	unsigned clearances;       /* of a full disk since a request has succeeded */
	struct turn_map *maps;
	/*
	 * Samples that came for wishes and are not announced, such as those that replace bad ones:
	 * a ring, since nothing else says when they may go from a full cache.
	 */
	uint64_t *extras; /* [DATASET_EXTRAS], sample + 1; 0: none */
	unsigned extra_next;
	/* Samples have come since the last sync; never set once one has been taken away. */
	bool dirty;
	int failed; /* negative errno: nothing can be fetched any more */
	struct packimg_error error;
	/* since the start */
	uint64_t requests, fetched, hits, misses, evicted;
};

enum { DATASET_EXTRAS = 4096 };

/* on_bytes: the bytes of sections done, and of all; it returns true to go on. */
struct dataset_progress {
	bool (*on_bytes)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/*
 * Opens a dataset: reads the headers, fetches the sections that the cache lacks, and sees which
 * samples are there. Takes as long as that takes. Errors as of store.h and packimg_open().
 */
int dataset_open(struct store *store, const struct cache *cache, const char *url,
		 const struct dataset_progress *progress, struct remote_dataset **ret_dataset,
		 struct packimg_error *error);
/* Syncs the cache. */
void dataset_close(struct remote_dataset *dataset);
/*
 * The cache's key of an address, the same for all shards of a set and its set file; the caller
 * frees it. NULL if out of memory.
 */
char *dataset_key(const char *url);

/* A part of a sample's stored bytes in a file. */
struct sample_part {
	uint32_t file;
	struct store_range range;
};
enum { SAMPLE_PARTS_MAX = 66 }; /* data and side data of 33 images */
/*
 * Collects the parts of a sample in ascending order; parts with at most `gap` bytes between them
 * are one. Returns their number; 0 for a sample whose record is damaged, which the reader notices.
 */
unsigned dataset_parts(const struct remote_dataset *dataset, uint64_t sample, uint64_t gap,
		       struct sample_part parts[SAMPLE_PARTS_MAX]);
/* A copy of a range of a file, in memory. */
struct file_bytes {
	const uint8_t *bytes; /* [range.size] */
	uint32_t file;
	struct store_range range;
};
/* Adds up the bytes of a sample. */
uint64_t dataset_sample_bytes(const struct remote_dataset *dataset, uint64_t sample);
/* Compares the sample's bytes with its checksums: in the copy, if it has them, else in the file. */
bool dataset_sample_good(const struct remote_dataset *dataset, uint64_t sample,
			 const struct file_bytes *copy);
/* All changes of dataset->states: gives pages back that no sample has any more. */
void dataset_set_state(struct remote_dataset *dataset, uint64_t sample, enum sample_state state);
/* Whether all samples are there. Any thread. */
bool dataset_is_present(const struct remote_dataset *dataset);
/* Begins to count pages. -ENOMEM, -EBADMSG. */
int dataset_count_pages(struct remote_dataset *dataset);
/* Bytes of the files on disk. */
uint64_t dataset_disk_bytes(const struct remote_dataset *dataset);
/* Marks a sample as there, in all maps. */
void dataset_set_present(struct remote_dataset *dataset, uint64_t sample);
/* Marks a present sample as absent, and gives back the pages that no other one has. */
void dataset_evict(struct remote_dataset *dataset, uint64_t sample);
/*
 * Makes a map for a feed, or adopts one that a fetcher before this one has made; takes over fd,
 * also on failure. -EINVAL for a map that is not as proto/SPEC.md says.
 */
int dataset_add_map(struct remote_dataset *dataset, int fd, struct turn_map **ret_map);
void dataset_remove_map(struct remote_dataset *dataset, struct turn_map *map);
/* The bits of what is there, for cache_sync(); the caller frees them. NULL if out of memory. */
uint8_t *dataset_present_bits(const struct remote_dataset *dataset);
/* Whether an error says that the disk, or the user's quota, is full; what there is to do about it.
 */
bool dataset_disk_full(int status);
void dataset_say_full(const struct remote_dataset *dataset, const struct cache *cache,
		      struct packimg_error *error);
/* Ends fetching: keeps the first error. */
void dataset_fail(struct remote_dataset *dataset, int status, const struct packimg_error *error);
