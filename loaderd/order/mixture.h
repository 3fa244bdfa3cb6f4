/*
 * A mixture of several parts by shares, evaluated point by point.
 *
 * Units (samples, or global batches) are numbered from 0 through all epochs. With shares s0, s1 ...
 * of sum L, each period of L units has exactly s0 units of part 0, s1 of part 1 ..., in an order
 * that a keyed permutation gives anew for each period. Each part's units are numbered, too: a part
 * goes on where it was. So a unit's part and number cost the same few nanoseconds anywhere.
 *
 * Shares may change at given units, in stages: a stage begins when the period in which its unit
 * lies is complete. Immutable once initialised; any thread may read it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	MIXTURE_SHARES_MAX = 65536, /* sum of the shares of a stage */
	MIXTURE_STAGES_MAX = 1024,
};

struct mixture_stage {
	uint64_t from;    /* the stage's first unit, where a period of the stage before ends */
	uint64_t period;  /* sum of the shares */
	uint64_t stride;  /* without shuffling: distance of neighbouring slots of the period */
	uint32_t *firsts; /* [parts + 1], owned: part p has slots firsts[p] .. firsts[p + 1] - 1 */
	uint64_t *before; /* [parts], owned: the part's units before the stage */
};

struct mixture {
	uint64_t seed;
	bool shuffle; /* if false, a fixed order interleaves the parts */
	uint32_t part_count, stage_count;
	struct mixture_stage *stages; /* owned */
};

struct mixture_unit {
	uint32_t part;
	uint64_t number; /* among the part's units */
};

/*
 * froms: [stage_count] units at which the stages begin, ascending from 0; shares:
 * [stage_count][part_count]. Divides the shares of a stage by their greatest common divisor. Sets
 * *ret_stage on failure. -EINVAL: shares are all zero or sum to more than MIXTURE_SHARES_MAX;
 * -ERANGE: froms[stage] does not ascend, or the stage before would end before its first period
 * does; -ENOMEM.
 */
int mixture_init(struct mixture *mixture, uint64_t seed, bool shuffle, uint32_t part_count,
		 uint32_t stage_count, const uint64_t *froms, const uint32_t *shares,
		 uint32_t *ret_stage);
struct mixture_unit mixture_at(const struct mixture *mixture, uint64_t unit);
/* The stage of a unit. */
uint32_t mixture_stage(const struct mixture *mixture, uint64_t unit);
/* A lower bound of the part's units before `unit`: those before its period. */
uint64_t mixture_before(const struct mixture *mixture, uint64_t unit, uint32_t part);
/* The share of a part in a stage, without common divisors, of a period of stages[stage].period. */
uint32_t mixture_share(const struct mixture *mixture, uint32_t stage, uint32_t part);
uint64_t mixture_bytes(const struct mixture *mixture);
void mixture_deinit(struct mixture *mixture);
