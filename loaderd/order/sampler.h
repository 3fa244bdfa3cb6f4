/*
 * The order of a feed that does not simply deliver its dataset once per epoch: choices of samples,
 * weights, batches balanced by class, buckets, and mixtures of several parts of its dataset. The
 * sample at any position of any epoch is a function of the position and of immutable tables, at the
 * same cost anywhere; a draw never depends on the draws before it. See loaderd(1), ORDER AND
 * RESUME.
 *
 * Positions count distinct samples of the epoch over all ranks, without repeats (order.h).
 * Immutable once initialised; any thread may read it.
 */
#pragma once

#include "loaderd/order/blocks.h"
#include "loaderd/order/buckets.h"
#include "loaderd/order/class_index.h"
#include "loaderd/order/mixture.h"
#include "loaderd/order/packs.h"
#include "loaderd/order/selection.h"
#include "loaderd/order/weights.h"

#include <stdbool.h>
#include <stdint.h>

enum sampler_kind {
	SAMPLER_ONCE = 0,          /* each selected sample once per pass */
	SAMPLER_WEIGHTS = 1,       /* with replacement, by weights of the selected samples */
	SAMPLER_CLASS_WEIGHTS = 2, /* with replacement, by weights of the samples' classes */
	SAMPLER_CLASS_BATCHES = 3, /* batches of several classes with as many samples each */
	SAMPLER_BUCKETS = 4,       /* each selected sample once per epoch, a batch of one bucket */
	SAMPLER_PACKS = 5,         /* each selected sample once per epoch, as many as fit a batch */
};

/* How the draws from one part are made. A pass is as many draws as there are selected samples. */
struct sampler_part {
	enum sampler_kind kind;
	uint64_t first; /* number of the part's first sample in the feed's dataset */
	struct selection selection;
	/* SAMPLER_WEIGHTS: [weight_stages], of the selection's entries; owned */
	struct weight_sums *sums;
	/* SAMPLER_CLASS_WEIGHTS: [weight_stages], of the classes; owned */
	struct weight_alias *aliases;
	uint32_t weight_stages; /* 1, or the sampler's stages */
	struct class_index classes;
	/* SAMPLER_CLASS_BATCHES: the classes that have samples; owned */
	uint32_t *present;
	uint32_t present_count;
	uint32_t classes_per_batch;
	struct buckets buckets; /* SAMPLER_BUCKETS */
	struct packs packs;     /* SAMPLER_PACKS */
};

enum sampler_ends {
	SAMPLER_ENDS_FIRST = 0, /* an epoch ends before some part would begin anew */
	/* when as many samples of each part have come as it has */
	SAMPLER_ENDS_LAST = 1,
};

struct sampler {
	uint64_t seed;
	bool shuffle;
	struct block_sizes blocks; /* of each part, of kind SAMPLER_ONCE; shuffled only */
	uint64_t global;           /* distinct samples of a global batch */
	/*
	 * samples of an epoch, and positions unless there are buckets or packs; set by
	 * sampler_finish()
	 */
	uint64_t epoch_samples;
	/*
	 * Draws are numbered through all epochs: of a mixture, of weights that change, and if
	 * epoch_samples was given. Otherwise an epoch is one pass of the only part.
	 */
	bool continues;
	bool by_batch;              /* mixture: all samples of a global batch from one part */
	uint32_t part_count;        /* at most SAMPLER_PARTS_MAX */
	struct sampler_part *parts; /* owned */
	uint32_t stage_count;       /* at least 1 */
	uint64_t *froms;            /* [stage_count], owned: first global batch of a stage */
	struct mixture mixture;     /* if part_count > 1 */
};

enum { SAMPLER_PARTS_MAX = 1024, SAMPLER_ERROR_MAX = 256 };
#define SAMPLER_NO_PART UINT32_MAX

/* What is wrong with an order, as a sentence for users. */
struct sampler_error {
	const char *field; /* of the request; a literal */
	uint32_t part;     /* SAMPLER_NO_PART: the mixture itself */
	char text[SAMPLER_ERROR_MAX];
};

/* A sample, and which draw of it this is, for the seed of its transforms. */
struct sampler_draw {
	uint64_t sample;
	uint32_t copy;
};

/*
 * Completes a sampler whose seed, shuffle, global, by_batch, parts, stage_count and froms are set.
 * shares: [stage_count][part_count], NULL for one part. epoch_samples: 0, or the samples of an
 * epoch, which a mixture with several stages needs. -EINVAL with `error`; -ENOMEM. The caller calls
 * sampler_deinit() in any case.
 */
int sampler_finish(struct sampler *sampler, const uint32_t *shares, enum sampler_ends ends,
		   uint64_t epoch_samples, struct sampler_error *error);
struct sampler_draw sampler_at(const struct sampler *sampler, uint64_t epoch, uint64_t position);
/* The stage of a global batch: of a mixture that of its first sample. */
uint32_t sampler_stage(const struct sampler *sampler, uint64_t epoch, uint64_t batch);
/* The buckets of a sampler of kind SAMPLER_BUCKETS, else NULL. */
const struct buckets *sampler_buckets(const struct sampler *sampler);
/* The packs of a sampler of kind SAMPLER_PACKS, else NULL. */
const struct packs *sampler_packs(const struct sampler *sampler);
/* With packs: the number of samples of a pack in an epoch, and what is at a position. */
uint32_t sampler_pack_size(const struct sampler *sampler, uint64_t epoch, uint64_t pack);
struct pack_draw sampler_pack_at(const struct sampler *sampler, uint64_t epoch, uint64_t position);
/* With packs: what may take the place of the sample at a position, see packs_other(). */
struct pack_draw sampler_pack_other(const struct sampler *sampler, uint64_t epoch,
				    uint64_t position, uint64_t bits);
/* With buckets: the bucket of the sample at a position. */
uint32_t sampler_bucket_at(const struct sampler *sampler, uint64_t epoch, uint64_t position);
/* Returns a selected sample of the part that holds `sample`, chosen by 64 random bits. */
uint64_t sampler_other(const struct sampler *sampler, uint64_t sample, uint64_t bits);
/* Bytes of memory that the tables take. */
uint64_t sampler_bytes(const struct sampler *sampler);
/* Zeroes it. A zeroed sampler is accepted. */
void sampler_deinit(struct sampler *sampler);

/*
 * The functions that set up a part whose selection is set. Of the dataset of the part alone; call
 * those that take it inside sigbus_guard_enter(). -EINVAL with `error`; -ENOMEM.
 */

/*
 * Makes room for weights of the selection's entries in each stage, which the caller then adds to
 * part->sums[stage]. sampler_finish() refuses a stage whose weights are all 0.
 */
int sampler_set_weights(struct sampler_part *part, uint32_t stages);
/*
 * weights: [stages][classes], of each sample of a class; NULL: every class that has samples is
 * equally likely.
 */
int sampler_set_class_weights(struct sampler_part *part, const struct packimg *dataset,
			      const float *weights, uint32_t stages, struct sampler_error *error);
int sampler_set_class_batches(struct sampler_part *part, const struct packimg *dataset,
			      uint32_t classes_per_batch, struct sampler_error *error);
/*
 * tokens: of the selection's samples. batch_size, tokens_max: of a batch of one rank. -EDQUOT as of
 * packs_init().
 */
int sampler_set_packs(struct sampler_part *part, const struct pack_tokens *tokens, uint64_t seed,
		      uint32_t tokens_max, uint32_t batch_size, uint64_t bytes_max,
		      struct sampler_error *error);
/* sizes: [count] of the buckets, at most BUCKETS_MAX. */
int sampler_set_buckets(struct sampler_part *part, const struct packimg *dataset,
			const struct bucket_size *sizes, uint32_t count,
			struct sampler_error *error);
