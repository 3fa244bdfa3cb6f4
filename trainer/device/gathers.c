#include "trainer/device/gathers.h"
#include "trainer/device/shards.h"

#include <stdlib.h>
#include <string.h>

void gathers_init(struct gathers *gathers, uint32_t backward)
{
	gathers->count = 0;
	gathers->backward = backward;
}

static bool gathers_is_backward(const struct gathers *gathers, uint32_t step)
{
	return step >= gathers->backward;
}

void gathers_add_read(struct gathers *gathers, const struct device_param *param, uint32_t step)
{
	bool backward = gathers_is_backward(gathers, step);
	uint32_t bucket, i = 0;

	if (!param->store->shards.gathers || !shards_divide(param))
		return;
	bucket = shards_bucket(param);
	while (i < gathers->count &&
	       (gathers->items[i].bucket != bucket ||
		gathers_is_backward(gathers, gathers->items[i].first) != backward))
		i++;
	struct gather *gather = &gathers->items[i];
	if (i == gathers->count) {
		gathers->count++;
		*gather = (struct gather){bucket, step, step, step};
	}
	gather->first = step < gather->first ? step : gather->first;
	gather->last = step > gather->last ? step : gather->last;
}

static int gathers_compare(const void *left, const void *right)
{
	const struct gather *a = left, *b = right;

	return a->first < b->first ? -1 : a->first > b->first;
}

/* Merges neighbours that gather the same bucket: the last of forward, the first of backward. */
static void gathers_merge(struct gathers *gathers)
{
	for (uint32_t i = 1; i < gathers->count; i++) {
		struct gather *gather = &gathers->items[i];

		if (gather[-1].bucket != gather->bucket)
			continue;
		gather[-1].last = gather->last;
		gathers->count--;
		memmove(gather, gather + 1, (gathers->count - i) * sizeof(*gather));
	}
}

void gathers_order(struct gathers *gathers)
{
	if (gathers->count)
		qsort(gathers->items, gathers->count, sizeof(*gathers->items), gathers_compare);
	gathers_merge(gathers);
	for (uint32_t i = 0; i < gathers->count; i++) {
		struct gather *gather = &gathers->items[i];

		gather->start = i ? gathers->items[i - 1].first : 0;
		/* not before backward, which a forward pass alone does not reach */
		if (gathers_is_backward(gathers, gather->first) &&
		    gather->start < gathers->backward)
			gather->start = gathers->backward;
	}
}
