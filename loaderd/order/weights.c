#include "loaderd/order/weights.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

int weight_sums_init(struct weight_sums *sums, uint64_t room)
{
	double *table = malloc((room + 1) * sizeof(*table));
	if (!table)
		return -ENOMEM;
	*sums = (struct weight_sums){.room = room, .sums = table};
	return 0;
}

double weight_sums_total(const struct weight_sums *sums)
{
	return sums->count > 0 ? sums->sums[sums->count - 1] : 0;
}

void weight_sums_add(struct weight_sums *sums, float weight)
{
	assert(sums->count < sums->room && isfinite(weight) && weight >= 0);
	double sum = weight_sums_total(sums) + (double)weight;
	sums->sums[sums->count++] = sum;
}

/* Uniform in [0, 1), 53 bits. */
static double unit_interval(uint64_t bits)
{
	return (double)(bits >> 11) * 0x1p-53;
}

uint64_t weight_sums_draw(const struct weight_sums *sums, uint64_t bits)
{
	double point = unit_interval(bits) * weight_sums_total(sums);
	uint64_t low = 0, high = sums->count - 1;
	/* Find the first entry whose sum is above the point. Rounding may leave none: the last. */
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (sums->sums[middle] > point)
			high = middle;
		else
			low = middle + 1;
	}
	/* Only the last entry can have been chosen without a weight. */
	while (low > 0 && sums->sums[low] == sums->sums[low - 1])
		low--;
	return low;
}

void weight_sums_deinit(struct weight_sums *sums)
{
	free(sums->sums);
	*sums = (struct weight_sums){0};
}

/* Returns the sum of the weights; 0 and *ret_wrong if there is a wrong one. */
static double sum_of(const double *weights, uint32_t count, uint32_t *ret_wrong)
{
	double sum = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (!(weights[i] >= 0) || isinf(weights[i])) {
			*ret_wrong = i;
			return 0;
		}
		sum += weights[i];
	}
	*ret_wrong = count;
	return isinf(sum) ? 0 : sum;
}

/*
 * Scales the weights to a mean of 1, then pairs an entry below the mean with one above, which gives
 * it what it lacks. `queue` holds the entries below the mean from its start, the others from its
 * end.
 */
static void pair_entries(struct weight_alias *alias, const double *weights, double sum,
			 uint32_t *queue)
{
	uint32_t small = 0, large = alias->count;
	for (uint32_t i = 0; i < alias->count; i++) {
		alias->keep[i] = weights[i] / sum * alias->count;
		alias->other[i] = i;
		if (alias->keep[i] < 1)
			queue[small++] = i;
		else
			queue[--large] = i;
	}
	while (small > 0 && large < alias->count) {
		uint32_t poor = queue[--small], rich = queue[large];
		alias->other[poor] = rich;
		alias->keep[rich] -= 1 - alias->keep[poor];
		if (alias->keep[rich] < 1) {
			large++;
			queue[small++] = rich;
		}
	}
	/* What rounding has left over keeps itself, but is never an entry of weight 0. */
	uint32_t heaviest = 0;
	for (uint32_t i = 1; i < alias->count; i++)
		heaviest = weights[i] > weights[heaviest] ? i : heaviest;
	while (small > 0) {
		uint32_t i = queue[--small];
		if (weights[i] > 0)
			alias->keep[i] = 1;
		else
			alias->other[i] = heaviest;
	}
}

int weight_alias_init(struct weight_alias *alias, const double *weights, uint32_t count,
		      uint32_t *ret_wrong)
{
	double sum = sum_of(weights, count, ret_wrong);
	if (!(sum > 0))
		return -EINVAL;
	uint32_t *queue = malloc(count * sizeof(*queue));
	struct weight_alias result = {
		.count = count,
		.keep = malloc(count * sizeof(*result.keep)),
		.other = malloc(count * sizeof(*result.other)),
	};
	if (!queue || !result.keep || !result.other) {
		free(queue);
		weight_alias_deinit(&result);
		return -ENOMEM;
	}
	pair_entries(&result, weights, sum, queue);
	free(queue);
	*alias = result;
	return 0;
}

uint32_t weight_alias_draw(const struct weight_alias *alias, uint64_t bits)
{
	/* The product's high half chooses the entry; the low half, whether it stays. */
	unsigned __int128 product = (unsigned __int128)bits * alias->count;
	uint32_t i = (uint32_t)(product >> 64);
	double point = (double)(uint64_t)product * 0x1p-64;
	return point < alias->keep[i] ? i : alias->other[i];
}

void weight_alias_deinit(struct weight_alias *alias)
{
	free(alias->keep);
	free(alias->other);
	*alias = (struct weight_alias){0};
}
