#include "trainer/device/buckets.h"

#include <errno.h>
#include <stdlib.h>

/* first[parameters]: first node that uses each parameter. */
static void find_first_uses(const struct device_graph *graph, uint32_t *first)
{
	for (size_t i = 0; i < graph->params->count; i++)
		first[i] = graph->node_count;
	for (uint32_t i = graph->node_count; i-- > 0;)
		for (int j = 0; j < DEVICE_NODE_PARAMS; j++)
			if (graph->nodes[i]->params[j])
				first[graph->nodes[i]->params[j]->index] = i;
}

/* Inserts a bucket in completion order: decreasing node index. */
static void insert(struct buckets *buckets, const struct bucket *bucket)
{
	uint32_t at = buckets->count++;

	for (; at && buckets->items[at - 1].node < bucket->node; at--)
		buckets->items[at] = buckets->items[at - 1];
	buckets->items[at] = *bucket;
}

size_t buckets_limit(size_t total, unsigned most, size_t elements)
{
	/*
	 * Any two consecutive buckets together exceed the limit, so there are at most 2 * total /
	 * limit + 1.
	 */
	size_t min = total / ((most - 1) / 2) + 1;

	return elements < min ? min : elements;
}

/* Completes the bucket's node; first[parameters] as in find_first_uses(). */
static void find_node(struct bucket *bucket, const struct device_graph *graph,
		      const uint32_t *first)
{
	bucket->node = graph->node_count;
	for (size_t i = 0; i < graph->params->count; i++) {
		const struct device_param *param = graph->params->items[i];

		if (device_param_trains(param) && param->offset >= bucket->offset &&
		    param->offset < bucket->offset + bucket->count && first[i] < bucket->node)
			bucket->node = first[i];
	}
}

/* The buckets of a sharded store are the same for all of its graphs. */
static void plan_sharded(struct buckets *buckets, const struct device_graph *graph,
			 const uint32_t *first)
{
	const struct device_shards *shards = &graph->params->shards;

	for (uint32_t i = 0; i <= shards->count; i++) {
		struct bucket bucket = {shards->divided, shards->summed - shards->divided, 0,
					i < shards->count};

		if (bucket.scatters) {
			bucket.offset = shards->buckets[i].first;
			bucket.count = shards->buckets[i].count;
		}
		find_node(&bucket, graph, first);
		if (bucket.node < graph->node_count)
			insert(buckets, &bucket);
	}
}

static void plan_whole(struct buckets *buckets, const struct device_graph *graph,
		       const uint32_t *first, size_t elements)
{
	const struct device_params *params = graph->params;
	struct bucket bucket = {0};
	size_t total = 0;

	for (size_t i = 0; i < params->count; i++)
		total = params->items[i]->offset + params->items[i]->elements;
	elements = buckets_limit(total, BUCKETS_MAX, elements);
	for (size_t i = params->count; i-- > 0;) {
		const struct device_param *param = params->items[i];
		size_t end = bucket.count ? bucket.offset + bucket.count
					  : param->offset + param->elements;

		if (!device_param_trains(param))
			continue;
		if (bucket.count && end - param->offset > elements) {
			insert(buckets, &bucket);
			bucket.count = 0;
			end = param->offset + param->elements;
		}
		if (!bucket.count || first[i] < bucket.node)
			bucket.node = first[i];
		bucket.offset = param->offset;
		bucket.count = end - param->offset;
	}
	if (bucket.count)
		insert(buckets, &bucket);
}

int buckets_plan(struct buckets *buckets, const struct device_graph *graph, size_t elements)
{
	uint32_t *first = malloc((graph->params->count + 1) * sizeof(*first));

	if (!first)
		return -ENOMEM;
	find_first_uses(graph, first);
	buckets->count = 0;
	if (graph->params->shards.world > 1)
		plan_sharded(buckets, graph, first);
	else
		plan_whole(buckets, graph, first, elements);
	free(first);
	return 0;
}
