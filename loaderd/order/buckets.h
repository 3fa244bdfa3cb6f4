/*
 * Buckets by aspect ratio and size: every global batch has samples of one bucket, so that its
 * finished images have one shape (as NovelAI's "aspect ratio bucketing", 2022). Each sample belongs
 * to one bucket and comes once in an epoch.
 *
 * Global batches of some buckets may be smaller than those of others, so that batches of large
 * images take no more memory than those of small ones.
 *
 * The sequence of an epoch is first all whole global batches, those of all buckets permuted
 * together, and then the tails: what is left of each bucket, fewer samples than a global batch, the
 * longest first. So at any world size no rank that still has batches is at another bucket than the
 * others. Samples are permuted within their bucket, anew in each epoch.
 *
 * Memory: 4 bytes per sample, 8 if the dataset has more than 2^32; the search for a position takes
 * time in proportion to the logarithm of the number of buckets. Immutable once initialised; any
 * thread may read it.
 */
#pragma once

#include "format/packimg.h"
#include "loaderd/order/selection.h"

#include <stdbool.h>
#include <stdint.h>

enum { BUCKETS_MAX = 256 };

struct bucket_size {
	uint32_t width, height; /* pixels, at least 1 */
	uint64_t global;        /* distinct samples of a global batch; for buckets_cut() */
};

/* What is left of a bucket after its whole global batches. */
struct bucket_tail {
	uint32_t bucket;
	uint64_t first; /* the tail's first position in the epoch */
	uint64_t count; /* distinct samples, fewer than a global batch */
};

struct buckets {
	uint32_t count;
	struct bucket_size *sizes; /* [count], owned */
	uint64_t *starts;          /* [count + 1], owned: the members before each bucket */
	struct selection members;  /* sample numbers, bucket by bucket */
	/* Set by buckets_cut(): */
	uint64_t stride;           /* positions from one whole batch to the next */
	uint64_t *batches;         /* [count + 1], owned: the whole batches before each bucket */
	struct bucket_tail *tails; /* [tail_count], owned */
	uint32_t tail_count;
};

/* A member of a bucket, and the bucket. */
struct bucket_draw {
	uint64_t sample;
	uint32_t bucket;
};

/* The buckets by aspect ratio. */
struct bucket_search {
	const struct bucket_size *sizes; /* not owned */
	uint32_t count;
	uint8_t order[BUCKETS_MAX]; /* [count]: numbers of the buckets, the narrowest first */
};

/* count: 1 .. BUCKETS_MAX. */
void bucket_search_init(struct bucket_search *search, const struct bucket_size *sizes,
			uint32_t count);
/*
 * Returns the bucket of an image of width x height pixels, which are not 0: of those whose aspect
 * ratio is nearest, by the logarithm, the largest one that is no larger than the image in width and
 * in height; if there is none, the smallest. Of equally large ones, the first.
 */
uint32_t bucket_nearest(const struct bucket_search *search, uint32_t width, uint32_t height);
/*
 * Assigns each selected sample to its bucket, by the sizes that the dataset lists or records;
 * samples with a damaged record to the first one. Reads the dataset: call it inside
 * sigbus_guard_enter(). -ENOMEM.
 */
int buckets_init(struct buckets *buckets, const struct packimg *dataset,
		 const struct selection *selection, const struct bucket_size *sizes,
		 uint32_t count);
/* Cuts the buckets into global batches, of at least 1 and at most `stride` samples. -ENOMEM. */
int buckets_cut(struct buckets *buckets, uint64_t stride);
/* Number of whole global batches in an epoch. */
uint64_t buckets_full(const struct buckets *buckets);
/* Number of samples of a bucket. */
uint64_t buckets_size(const struct buckets *buckets, uint32_t bucket);
/* Returns the tail that contains a position, which is not in a whole batch. */
const struct bucket_tail *buckets_tail_at(const struct buckets *buckets, uint64_t position);
/*
 * Returns the sample at a position of an epoch: place p of whole batch b has the position
 * b * stride + p. Beyond the batch's samples there are none until the next one. shuffle: if false,
 * batches come bucket by bucket, and samples in the selection's order.
 */
struct bucket_draw buckets_at(const struct buckets *buckets, uint64_t seed, bool shuffle,
			      uint64_t epoch, uint64_t position);
uint64_t buckets_bytes(const struct buckets *buckets);
/* Zeroes it. Zeroed buckets are accepted. */
void buckets_deinit(struct buckets *buckets);
