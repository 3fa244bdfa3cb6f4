#include "trainer/run/input/train_order.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DECIMALS_MAX = 9 };

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Returns the smallest power of ten that makes all shares whole, up to rounding of doubles. */
static double whole_factor(const double *shares, unsigned count)
{
	double factor = 1;
	for (int decimals = 0; decimals < DECIMALS_MAX; decimals++, factor *= 10) {
		unsigned whole = 0;
		for (unsigned i = 0; i < count; i++) {
			double share = shares[i] * factor;
			whole += fabs(share - round(share)) <= 4 * DBL_EPSILON * share;
		}
		if (whole == count)
			return factor;
	}
	return factor;
}

void train_order_whole_shares(const double *shares, unsigned count, uint32_t *ret_shares)
{
	double factor = whole_factor(shares, count), total = 0;
	uint64_t divisor = 0, sum = 0;
	bool lost = false;
	for (unsigned i = 0; i < count; i++) {
		uint64_t share = (uint64_t)llround(shares[i] * factor);
		lost |= shares[i] > 0 && share == 0;
		divisor = common_divisor(share, divisor);
		sum += share;
		total += shares[i];
	}
	for (unsigned i = 0; i < count; i++) {
		uint64_t share = (uint64_t)llround(shares[i] * factor);
		if (!lost && sum / divisor <= TRAIN_ORDER_SHARES_MAX) {
			ret_shares[i] = (uint32_t)(share / divisor);
			continue;
		}
		/* `count` is left over for the shares that are rounded up to 1 */
		double scaled = shares[i] / total * (TRAIN_ORDER_SHARES_MAX - count);
		ret_shares[i] = scaled < 1 && shares[i] > 0 ? 1 : (uint32_t)scaled;
	}
}

static int allocate(struct train_order *order, unsigned stages)
{
	order->datasets = calloc(order->count, sizeof(*order->datasets));
	order->parts = calloc(order->count, sizeof(*order->parts));
	order->part_list = calloc(order->count, sizeof(*order->part_list));
	order->share_list = calloc((size_t)stages * order->count, sizeof(*order->share_list));
	return order->datasets && order->parts && order->part_list && order->share_list ? 0
											: -ENOMEM;
}

/* Sets a stage, and adds what it draws to the datasets. */
static void set_stage(struct train_order *order, const struct recipe_data *recipe, unsigned stage,
		      unsigned stages)
{
	const struct recipe_stages *given = &recipe->shares;
	uint32_t *list = order->share_list + (size_t)stage * order->count;
	double shares[RECIPE_NUMBERS_MAX];
	uint64_t sum = 0;
	bool mixed = given->stages && order->count > 1;
	for (unsigned i = 0; i < order->count; i++)
		shares[i] = mixed ? given->value[stage * given->count + i] : 1;
	train_order_whole_shares(shares, order->count, list);
	for (unsigned i = 0; i < order->count; i++)
		sum += list[i];
	for (unsigned i = 0; i < order->count; i++)
		order->datasets[i].drawn += (double)list[i] / (double)sum / stages;
	order->stages[stage] = (struct feed_stage){
		.from = stage > 0 ? recipe_stage_batch(recipe, stage) : 0,
		.shares = list,
	};
}

static void set_parts(struct train_order *order, const struct recipe_data *recipe)
{
	const struct recipe_numbers *weights = &recipe->class_sampling;
	for (unsigned i = 0; i < weights->count; i++)
		order->class_weights[i] = (float)weights->value[i];
	for (unsigned i = 0; i < order->count; i++) {
		order->datasets[i].path = order->paths.path[i];
		order->parts[i] = (struct feed_part){
			.size = sizeof(struct feed_part),
			.dataset = order->paths.path[i],
			.where = recipe->where,
			.class_weights = weights->count ? order->class_weights : NULL,
			.class_weight_count = weights->count,
			.balanced = weights->word,
		};
		order->part_list[i] = &order->parts[i];
	}
	order->chooses = order->count > 1 || *recipe->where || recipe->epoch_samples ||
			 weights->count || weights->word;
}

int train_order_new(const struct recipe_data *recipe, struct train_order **ret_order, char *error)
{
	struct train_order *order = calloc(1, sizeof(*order));
	if (!order)
		return -ENOMEM;
	int r = recipe_train_paths(recipe, &order->paths, error);
	order->count = order->paths.count;
	unsigned stages = recipe->shares.stages > 1 ? recipe->shares.stages : 1;
	if (r == 0)
		r = allocate(order, stages);
	if (r < 0) {
		train_order_free(order);
		return r;
	}
	for (unsigned i = 0; i < stages; i++)
		set_stage(order, recipe, i, stages);
	set_parts(order, recipe);
	order->feed = (struct feed_order){
		.size = sizeof(order->feed),
		.parts = order->part_list,
		.part_count = order->count,
		.stages = order->stages,
		.stage_count = order->count > 1 ? stages : 0,
		.epoch_samples = recipe->epoch_samples,
		.ends = recipe->ends == RECIPE_ENDS_LAST ? FEED_ENDS_LAST : FEED_ENDS_FIRST,
	};
	*ret_order = order;
	return 0;
}

void train_order_free(struct train_order *order)
{
	if (!order)
		return;
	recipe_paths_free(&order->paths);
	free(order->datasets);
	free(order->parts);
	free(order->part_list);
	free(order->share_list);
	free(order);
}

uint64_t train_order_samples(const struct train_order *order)
{
	uint64_t samples = 0;
	for (uint32_t i = 0; i < order->count; i++)
		samples += order->datasets[i].samples;
	return samples;
}

void train_order_uuid(const struct train_order *order, struct uuid *ret_uuid)
{
	struct uuid uuids[RECIPE_NUMBERS_MAX];
	*ret_uuid = order->datasets[0].uuid;
	if (order->count == 1)
		return;
	*ret_uuid = (struct uuid){0};
	for (uint32_t i = 0; i < order->count; i++) {
		uuids[i] = order->datasets[i].uuid;
		if (!uuid_known(&uuids[i]))
			return;
	}
	uuid_from_hash(XXH3_128bits(uuids, order->count * sizeof(*uuids)), ret_uuid->bytes);
}
