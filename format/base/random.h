/*
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random
 * Numbers: As Easy as 1, 2, 3", SC 2011). (seed, epoch, sample, purpose) identifies a stream
 * completely, so any thread can draw any number of any sample at any time. Plain values.
 */
#pragma once

#include <stdint.h>

enum random_purpose {
	RANDOM_ORDER = 1,   /* the epoch's permutation; sample is unused */
	RANDOM_AUGMENT = 2, /* a sample's transforms */
	RANDOM_SUBSTITUTE = 3,
	RANDOM_NOISE = 4, /* pixel noise; the seed is drawn from a sample's transforms */
	/* the decisions about a sample that are the same in all epochs; epoch is 0 */
	RANDOM_LASTING = 5,
	RANDOM_MIX = 6, /* how samples of a step or batch are blended (mix.h); epoch is the step */
	RANDOM_COLOUT = 7, /* trainer: rows and columns of a step; sample is 0 or 1 */
	RANDOM_SELECT = 8, /* trainer: which samples of a step are kept; epoch is the step */
	RANDOM_COPY = 9,   /* seed of a sample's further copies; epoch is the number of the copy */
	RANDOM_NAMED = 10, /* transforms that name an image; the seed is mixed with its name */
	/* the order of a mixture's period; epoch is the period, sample the stage */
	RANDOM_MIXTURE = 11,
	RANDOM_PART = 12, /* seed of a part's order; epoch is the part */
	RANDOM_DRAW = 13, /* a draw by weights; epoch is the pass, sample the place in it */
	/* the order of the classes in class batches; epoch is the cycle */
	RANDOM_CLASSES = 14,
	/* the order of a class or bucket; epoch is the pass, sample its number */
	RANDOM_MEMBERS = 15,
	RANDOM_BUCKETS = 16, /* the order of the batches of all buckets */
	RANDOM_MOSAIC = 17,  /* which samples are joined, and where */
	RANDOM_PASTE = 18,   /* from which sample objects are pasted, and which */
	RANDOM_BLOCKS = 19,  /* the order of blocks of samples; epoch is the pass */
	RANDOM_GROUPS = 20,  /* the order within a group of blocks; sample is the group */
	RANDOM_PACKS = 21,   /* the order of packs */
	RANDOM_PACKING = 22, /* which classes are packed together; epoch and sample are unused */
};

struct random_stream {
	uint32_t key[2];
	uint32_t counter[4];
	uint32_t block[4]; /* numbers of the current block */
	unsigned used;     /* numbers of the block already returned; 4 if a new block is needed */
};

/*
 * Computes one block of Philox4x32-10. All other functions derive their numbers from such blocks.
 */
void random_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t ret_block[4]);

void random_init(struct random_stream *stream, uint64_t seed, uint64_t epoch, uint64_t sample,
		 enum random_purpose purpose);
uint32_t random_u32(struct random_stream *stream);
/* Uniform in [0, 1), 24 bits. */
float random_float(struct random_stream *stream);
/* Uniform in [0, bound), unbiased; bound > 0. */
uint32_t random_below(struct random_stream *stream, uint32_t bound);
