#include "tools/packimg/common/shuffle.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t shuffle_mix(uint64_t h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccd;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53;
	return h ^ h >> 33;
}

uint64_t shuffle_hash(const void *bytes, size_t size, uint64_t seed)
{
	const uint8_t *p = bytes;
	uint64_t h = 0xcbf29ce484222325 ^ shuffle_mix(seed);

	for (size_t i = 0; i < size; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return shuffle_mix(h);
}

double shuffle_fraction(const void *bytes, size_t size, uint64_t seed)
{
	return (double)(shuffle_hash(bytes, size, seed) >> 11) * 0x1p-53;
}

static uint64_t splitmix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* Rejects the values that would make small numbers more likely. */
static uint64_t shuffle_below(uint64_t *state, uint64_t bound)
{
	uint64_t limit = -bound % bound, value;

	do
		value = splitmix(state);
	while (value < limit);
	return value % bound;
}

void shuffle_permute(uint64_t *items, uint64_t count, uint64_t seed)
{
	uint64_t state = shuffle_mix(seed + 0x5348554646ull);

	for (uint64_t i = count; i > 1; i--) {
		uint64_t j = shuffle_below(&state, i), item = items[i - 1];

		items[i - 1] = items[j];
		items[j] = item;
	}
}

struct dealt {
	uint64_t index;
	uint64_t position; /* position in the random order */
	int32_t label;
};

static int deal_compare(const void *a, const void *b)
{
	const struct dealt *x = a, *y = b;

	if (x->label != y->label)
		return x->label < y->label ? -1 : 1;
	return (x->position > y->position) - (x->position < y->position);
}

/*
 * Assigns each sample to the part that lags furthest behind its fraction, so that every section of
 * the order is divided proportionally.
 */
static void shuffle_deal(const struct dealt *order, uint64_t count, const double *fractions,
			 uint32_t part_count, double *owed, uint32_t *ret_part)
{
	double rest = 1;

	for (uint32_t p = 0; p < part_count; p++)
		rest -= fractions[p];
	for (uint32_t p = 0; p <= part_count; p++)
		owed[p] = 0;
	for (uint64_t i = 0; i < count; i++) {
		uint32_t best = 0;

		for (uint32_t p = 0; p < part_count; p++)
			owed[p] += fractions[p];
		owed[part_count] += rest > 1e-9 ? rest : 0;
		for (uint32_t p = 1; p <= part_count; p++)
			if (owed[p] > owed[best])
				best = p;
		owed[best] -= 1;
		ret_part[order[i].index] = best == part_count ? UINT32_MAX : best;
	}
}

int shuffle_split(const int32_t *labels, uint64_t count, const double *fractions,
		  uint32_t part_count, uint64_t seed, uint32_t *ret_part)
{
	struct dealt *order = calloc(count ? count : 1, sizeof(*order));
	uint64_t *permutation = calloc(count ? count : 1, sizeof(*permutation));
	double *owed = calloc(part_count + 1, sizeof(*owed));
	int r = -ENOMEM;

	if (order && permutation && owed) {
		for (uint64_t i = 0; i < count; i++)
			permutation[i] = i;
		shuffle_permute(permutation, count, seed ^ 0x73706c6974ull);
		for (uint64_t i = 0; i < count; i++)
			order[i] = (struct dealt){
				.index = permutation[i],
				.position = i,
				.label = labels ? labels[permutation[i]] : 0,
			};
		if (labels)
			qsort(order, count, sizeof(*order), deal_compare);
		shuffle_deal(order, count, fractions, part_count, owed, ret_part);
		r = 0;
	}
	free(order);
	free(permutation);
	free(owed);
	return r;
}
