/*
 * Packs: batches of one rank whose samples have at most a given number of tokens together, and are
 * at most batch_size. The number of tokens of each sample is known when the feed opens, and all
 * packs are made then: each sample is in one of them.
 *
 * Samples of as many tokens, a class, are interchangeable: a pack is a list of classes, a slot for
 * each of its samples. The packs and, within each class, the samples are permuted anew in each
 * epoch. So packs have other samples in every epoch, though as many of each class, and the sample
 * at any position of any epoch costs the same.
 *
 * The classes of a pack are drawn at random, each as often as it has samples that are left, until
 * the next does not fit; the last ones are chosen so that they fill what is left. A list of classes
 * is used for several packs in a row, the template, at most 1 / PACKS_TEMPLATES of those that are
 * left. So a table of templates takes little memory, and packs are not systematically of large or
 * of small samples, as those of best-fit decreasing are, which come close to the same fill.
 *
 * Memory: 4 bytes per sample, 8 if the dataset has more than 2^32, and the templates. Immutable
 * once packed; any thread may read it.
 */
#pragma once

#include "loaderd/order/selection.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	PACKS_TEMPLATES = 256,
	PACKS_TOKENS_MAX = 1 << 28, /* of a pack */
	PACKS_GROUPS_MAX = 1 << 20,
};

/* Samples of as many tokens. */
struct pack_class {
	uint64_t first; /* member */
	uint32_t tokens;
};

/* Samples of a class whose images have as many patches. */
struct pack_group {
	uint64_t first; /* member */
	uint32_t patches;
};

/* Consecutive packs of the same classes. */
struct pack_template {
	uint64_t first; /* pack */
	uint64_t slot;  /* its first slot */
};

struct pack_slot {
	uint64_t first; /* place in the class, in the template's first pack */
	uint32_t class_number;
	uint32_t step; /* places from pack to pack: slots of the class */
};

struct packs {
	uint32_t tokens_max;      /* of a pack */
	uint32_t batch_size;      /* samples of a pack, at most, and positions of each */
	uint64_t count;           /* packs; 0 until they are packed */
	struct selection members; /* sample numbers, by classes and groups */
	/* Owned, each with one more behind the last: */
	struct pack_class *classes;      /* [class_count + 1], of ascending tokens */
	struct pack_group *groups;       /* [group_count + 1], of ascending patches in each class */
	struct pack_template *templates; /* [template_count + 1] */
	struct pack_slot *slots;         /* [templates[template_count].slot] */
	uint32_t class_count, group_count;
	uint64_t template_count;
};

/* The tokens of samples, from which packs are made. */
struct pack_tokens;

/* A place in a pack. */
struct pack_draw {
	uint64_t sample;
	uint32_t patches; /* of its image */
	uint32_t tokens;
};

/* For `samples` samples. Returns NULL if out of memory. */
struct pack_tokens *pack_tokens_new(uint64_t samples);
/*
 * Adds the next sample of the selection: all its tokens, and the patches of its image. -ENOMEM;
 * -E2BIG if there are more than PACKS_GROUPS_MAX different ones.
 */
int pack_tokens_add(struct pack_tokens *tokens, uint32_t count, uint32_t patches);
/* Accepts NULL. */
void pack_tokens_free(struct pack_tokens *tokens);
/*
 * Makes packs of the samples of a selection, to each of which `tokens` has been added, none with
 * more than tokens_max. batch_size, tokens_max: at least 1. -ENOMEM; -EDQUOT if packs_bytes() would
 * be more than bytes_max.
 */
int packs_init(struct packs *packs, const struct selection *selection,
	       const struct pack_tokens *tokens, uint64_t seed, uint32_t tokens_max,
	       uint32_t batch_size, uint64_t bytes_max);
/* Returns the number of samples of a pack in an epoch. */
uint32_t packs_size(const struct packs *packs, uint64_t seed, bool shuffle, uint64_t epoch,
		    uint64_t pack);
/*
 * Returns what is at a position of an epoch: place p of pack k has the position k * batch_size + p.
 * Beyond a pack's samples there are none until the next one. shuffle: if false, packs come as they
 * were made, with the samples of a class in the selection's order.
 */
struct pack_draw packs_at(const struct packs *packs, uint64_t seed, bool shuffle, uint64_t epoch,
			  uint64_t position);
/*
 * Returns a sample to deliver in place of that at a position, chosen by 64 random bits: one of as
 * many tokens and patches, or if there is none, one of no more tokens, which need not fit.
 */
struct pack_draw packs_other(const struct packs *packs, uint64_t seed, bool shuffle, uint64_t epoch,
			     uint64_t position, uint64_t bits);
uint64_t packs_bytes(const struct packs *packs);
/* Zeroes it. Zeroed packs are accepted. */
void packs_deinit(struct packs *packs);
