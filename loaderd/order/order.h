/*
 * The order of samples: a sequence per epoch, split into batches, split into ranks. See loaderd(1),
 * ORDER AND RESUME.
 *
 * An epoch's sequence is evaluated point by point: any position of any epoch costs the same and
 * needs no memory that grows with the epoch. By default it is a keyed permutation of the dataset
 * (permutation.h); a sampler (sampler.h) makes any other. The sequence is first split into global
 * batches of world * batch_size samples, then each global batch into one contiguous part per rank.
 * A position (epoch, batch) therefore always identifies the same samples, and any world and
 * batch_size with the same product give the same global batches.
 *
 * With buckets (buckets.h) an epoch has several short batches, one for each bucket that has a
 * remainder, at its end; and its other global batches have at most world * batch_size samples.
 *
 * With packs (packs.h) each batch of a rank is one pack. It has batch_size positions, of which only
 * those of the pack's samples are used, and a global batch has one pack for each rank.
 *
 * With repeats (batch augmentation: Hoffer et al. 2020, "Augment Your Batch") a global batch
 * contains 1/repeats as many distinct samples: all of them once, then all of them again, and so on.
 * Copies of a sample are thus in one global batch but not adjacent, and each copy is augmented with
 * its own seed. An epoch contains each sample `repeats` times.
 *
 * struct order and struct order_epoch are plain values, immutable once initialised; any thread may
 * read them.
 */
#pragma once

#include "loaderd/order/permutation.h"

#include <stdbool.h>
#include <stdint.h>

struct bucket_size;
struct pack_draw;
struct sampler;

struct order {
	/* NULL: all samples of the dataset, each once per epoch. Not owned; outlives the order. */
	const struct sampler *sampler;
	uint64_t samples; /* of an epoch, without repeats: in the dataset, or sampler->epoch_samples
			   */
	uint64_t seed;
	uint32_t batch_size; /* samples per batch and rank */
	uint32_t rank, world;
	uint32_t repeats; /* copies of each sample per global batch; must divide its size; 0 means 1
			   */
	bool shuffle;     /* if false, stored order */
	/* Deliver the remainders of an epoch as shorter batches; if false, drop them. */
	bool last_short;
	uint64_t batches; /* per epoch and rank; set by order_init() */
};

/* One epoch's sequence. */
struct order_epoch {
	const struct sampler *sampler;
	uint64_t number;
	uint64_t samples;
	uint64_t global; /* samples in a full global batch */
	uint32_t repeats;
	struct permutation permutation; /* unless there is a sampler */
};

/* A sample number, and which of its copies it is: copies have transforms of their own. */
struct order_item {
	uint64_t sample;
	uint32_t copy;
};

/* One batch of one rank: positions first .. first + count - 1 of the epoch's sequence. */
struct order_batch {
	uint64_t first;
	uint32_t count;
	bool last; /* the last batch of the epoch for this rank */
};

/*
 * Sets `batches` from the other members. Returns -EINVAL if samples, batch_size or world is 0, if
 * rank >= world, or if repeats does not divide the global batch. A remainder of m samples is split
 * as evenly as possible; lower ranks get one sample more. If m < world, the last ranks have one
 * batch less; with buckets, one for each such remainder. With packs, of which repeats are not made,
 * a remainder of m packs gives one to each of the first m ranks. `batches` may be 0: the rank then
 * gets no samples.
 */
int order_init(struct order *order);
void order_epoch_init(struct order_epoch *epoch, const struct order *order, uint64_t number);
/* Returns the sample at a position, which must be below samples * repeats. */
struct order_item order_at(const struct order_epoch *epoch, uint64_t position);
/* Returns the seed for the transforms of a copy. Copy 0 uses `seed` itself. */
uint64_t order_copy_seed(uint64_t seed, uint32_t copy);
/*
 * Returns the number, from 1, of the training step that takes a batch if each takes one of every
 * epoch from 0 on; the same for all ranks.
 */
uint64_t order_step(const struct order *order, uint64_t epoch, uint64_t batch);
/* Returns the samples of a bucket in a whole batch of one rank, with repeats. */
uint32_t order_bucket_batch(const struct order *order, const struct bucket_size *bucket);
/* Computes the range of a batch of an epoch; batch < order->batches. */
void order_batch(const struct order *order, uint64_t epoch, uint64_t batch,
		 struct order_batch *ret_batch);

/*
 * The samples of one batch, of either kind of feed: positions of an epoch's sequence, or a list
 * that the client has sent (wants.h).
 */
struct order_slice {
	uint32_t count;
	bool last;      /* the last batch of the epoch for this rank */
	uint64_t first; /* position of the first sample */
	struct order_epoch epoch;
	const uint64_t *samples;          /* [count] of a wanted batch, else NULL */
	const uint32_t *copies;           /* [count], if samples is set */
	const struct bucket_size *bucket; /* of the samples; NULL without buckets */
};

/* Sets *ret_slice to a batch of an epoch; batch < order->batches. */
void order_slice_init(struct order_slice *ret_slice, const struct order *order, uint64_t epoch,
		      uint64_t batch);
/* With packs: returns what is there, as order_slice_at() does, and what may take its place. */
struct pack_draw order_slice_pack(const struct order_slice *slice, uint32_t i);
struct pack_draw order_slice_other(const struct order_slice *slice, uint32_t i, uint64_t bits);
/* Returns item i of a batch; i < slice->count. */
struct order_item order_slice_at(const struct order_slice *slice, uint32_t i);

struct wants;

/* Maps units (batch.h) of a feed to samples, for read-ahead. One thread only. */
struct order_walk {
	struct wants *wants; /* of a wanted feed, else NULL; not owned */
	struct order order;
	uint64_t epoch, batch,
		epoch_end;     /* position of unit 0; exclusive end epoch, 0 if unlimited */
	uint64_t cached_epoch; /* epoch of `keys`, if `cached` */
	bool cached;
	struct order_epoch keys;
};

/*
 * Returns 1 and sets *ret_sample, 0 if the unit has no sample, or -ENODATA past the feed's end. The
 * unit of a wanted feed must belong to a batch that has been added.
 */
int order_walk_at(struct order_walk *walk, uint64_t unit, uint64_t *ret_sample);
