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

int buckets_plan(struct buckets *buckets, const struct device_graph *graph, size_t elements)
{
	const struct device_params *params = graph->params;
	uint32_t *first = malloc((params->count + 1) * sizeof(*first));
	struct bucket bucket = {0};
	size_t total = 0;

	if (!first)
		return -ENOMEM;
	find_first_uses(graph, first);
	for (size_t i = 0; i < params->count; i++)
		total = params->items[i]->offset + params->items[i]->elements;
	/*
	 * Any two consecutive buckets together exceed the limit, so there are at most 2 * total /
	 * limit + 1.
	 */
	size_t min = total / ((BUCKETS_MAX - 1) / 2) + 1;
	elements = elements < min ? min : elements;
	buckets->count = 0;
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
	free(first);
	return 0;
}
