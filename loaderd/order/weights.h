/*
 * Draws with replacement, by weights: of a table of cumulative sums, with a search (8 bytes per
 * entry), or of an alias table, in O(1) (12 bytes per entry; Vose, "A Linear Algorithm for
 * Generating Random Numbers with a Given Distribution", 1991). A draw is a function of one number
 * of 64 uniform bits, and the same on every machine. Immutable once initialised.
 */
#pragma once

#include <stdint.h>

struct weight_sums {
	uint64_t count; /* weights so far */
	uint64_t room;
	double *sums; /* [room], owned: entry i is the sum of weights 0 .. i */
};

/* Makes room for that many weights. -ENOMEM. */
int weight_sums_init(struct weight_sums *sums, uint64_t room);
/* Appends a weight, which is finite and not negative. */
void weight_sums_add(struct weight_sums *sums, float weight);
double weight_sums_total(const struct weight_sums *sums);
/* The total is not 0. An entry of weight 0 is never drawn. */
uint64_t weight_sums_draw(const struct weight_sums *sums, uint64_t bits);
void weight_sums_deinit(struct weight_sums *sums);

struct weight_alias {
	uint32_t count;
	double *keep;    /* [count], owned: probability of the entry itself */
	uint32_t *other; /* [count], owned: the entry drawn otherwise */
};

/*
 * Weights are exact in double, finite, not negative, and not all zero: else -EINVAL, with
 * *ret_wrong the first wrong one, or `count` if all are zero. count is at least 1. -ENOMEM.
 */
int weight_alias_init(struct weight_alias *alias, const double *weights, uint32_t count,
		      uint32_t *ret_wrong);
uint32_t weight_alias_draw(const struct weight_alias *alias, uint64_t bits);
void weight_alias_deinit(struct weight_alias *alias);
