/*
 * The order of samples: a permutation per epoch, cut into batches, cut into ranks. loaderd(1),
 * ORDER AND RESUME.
 *
 * The permutation of an epoch is a keyed bijection evaluated point by point, so that any position
 * of any epoch costs the same few nanoseconds and no memory: there is no table to build when a feed
 * opens or an epoch begins. The global order is cut into global batches of world * batch_size
 * samples first, and each of those into one contiguous part per rank; hence a position (epoch,
 * batch) means the same samples whatever happened before it, and at another world size with the
 * same product the same global batch.
 *
 * With repeats (batch augmentation: Hoffer et al. 2020, "Augment Your Batch") a global batch has a
 * share of as many samples, all of them once, then all of them again, and so on: so copies of a
 * sample are in one batch, neighbours are different samples, and each copy is augmented by a seed
 * of its own. An epoch has each sample that often.
 *
 * Both structures are plain values, immutable once initialised; any thread may read them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { ORDER_ROUNDS = 8 };

struct order {
	uint64_t samples; /* in the dataset */
	uint64_t seed;
	uint32_t batch_size; /* samples per batch and rank */
	uint32_t rank, world;
	uint32_t repeats; /* of each sample in its batch, which they divide; 0 counts as 1 */
	bool shuffle;     /* false: stored order */
	/* the remainder of an epoch is delivered as a shorter batch; otherwise dropped */
	bool last_short;
	uint64_t batches; /* per epoch, of this rank; set by order_init */
};

/* One epoch's permutation. */
struct order_epoch {
	uint64_t samples;
	uint64_t global; /* positions of a whole global batch */
	uint32_t repeats;
	bool shuffle;
	uint8_t left_bits, right_bits;
	uint32_t keys[ORDER_ROUNDS][2];
};

/* One batch of one rank: positions first .. first + count - 1 of the epoch's permutation. */
struct order_batch {
	uint64_t first;
	uint32_t count;
	bool last; /* of the epoch, for this rank */
};

/*
 * Fills in `batches` from the other members. -EINVAL: no samples, batch_size or world 0, rank not
 * below world, or repeats that do not divide the global batch. A remainder of m samples is divided
 * as evenly as it goes, the lower ranks getting one more: with m < world the last ranks have one
 * batch less. `batches` may be 0: the rank then sees nothing of the dataset.
 */
int order_init(struct order *order);
void order_epoch_init(struct order_epoch *epoch, const struct order *order, uint64_t number);
/* Sample index at a position, which must be below `samples` times `repeats`. */
uint64_t order_sample(const struct order_epoch *epoch, uint64_t position);
/* Which copy of that sample it is, from 0. */
uint32_t order_copy(const struct order_epoch *epoch, uint64_t position);
/* What its transforms are drawn from in place of the seed, which the first copy has itself. */
uint64_t order_copy_seed(uint64_t seed, uint32_t copy);
/* Batch number batch < order->batches. */
void order_batch(const struct order *order, uint64_t batch, struct order_batch *ret_batch);

/*
 * The units of a feed (batch.h) from a position on, by number: what comes when, for those who look
 * ahead. One thread.
 */
struct order_walk {
	struct order order;
	uint64_t epoch, batch, epoch_end; /* position of unit 0; epoch_end 0: never */
	uint64_t cached_epoch;            /* whose permutation `keys` holds */
	bool cached;
	struct order_epoch keys;
};

/* 1: the sample that unit is; 0: a unit without a sample; -ENODATA: past the end. */
int order_walk_at(struct order_walk *walk, uint64_t unit, uint64_t *ret_sample);
