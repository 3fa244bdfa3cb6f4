#include "trainer/device/shards.h"
#include "trainer/device/buckets.h"

bool shards_divide(const struct device_param *param)
{
	return param->store->shards.world > 1 && device_param_row(param);
}

bool shards_divide_slot(const struct device_params *params, enum device_slot slot)
{
	if (params->shards.world < 2)
		return false;
	if (slot == DEVICE_VALUE)
		return params->shards.divides_values;
	return slot != DEVICE_GRAD || params->optimizer.shard >= DEVICE_SHARD_GRADIENTS;
}

bool device_param_is_sharded(const struct device_param *param, enum device_slot slot)
{
	return shards_divide(param) && shards_divide_slot(param->store, slot);
}

/* Ends the last bucket: its padding makes all parts equally long. */
static void shards_pad(struct device_shards *shards)
{
	struct device_range *bucket = &shards->buckets[shards->count - 1];
	size_t step = (size_t)SHARD_ALIGN * shards->world;

	bucket->count = (bucket->count + step - 1) / step * step;
	shards->divided = bucket->first + bucket->count;
}

/* Appends a parameter to the last bucket, or to a new one. */
static void shards_add(struct device_shards *shards, struct device_param *param, size_t elements)
{
	struct device_range *bucket = shards->count ? &shards->buckets[shards->count - 1] : NULL;
	size_t room = device_param_room(param);

	if (!bucket || bucket->count + room > elements) {
		if (bucket)
			shards_pad(shards);
		bucket = &shards->buckets[shards->count++];
		*bucket = (struct device_range){shards->divided, 0};
	}
	param->offset = param->rest_offset = bucket->first + bucket->count;
	bucket->count += room;
}

/* Number of buckets with this limit on their length. */
static uint32_t shards_count(const struct device_params *params, size_t elements)
{
	size_t used = elements;
	uint32_t count = 0;

	for (size_t i = params->count; i-- > 0;) {
		size_t room = device_param_room(params->items[i]);

		if (!device_param_row(params->items[i]))
			continue;
		if (used + room > elements) {
			count++;
			used = 0;
		}
		used += room;
	}
	return count;
}

size_t shards_gathered_limit(const struct device_params *params)
{
	size_t limit = 0;

	for (size_t i = 0; i < params->count; i++) {
		size_t room = device_param_room(params->items[i]);

		if (device_param_row(params->items[i]) && room > limit)
			limit = room;
	}
	while (shards_count(params, limit) > DEVICE_SHARD_BUCKETS_MAX)
		limit += limit / 16 + 1;
	return limit;
}

void shards_plan(struct device_params *params, size_t elements)
{
	struct device_shards *shards = &params->shards;
	size_t total = 0, offset;

	for (size_t i = 0; i < params->count; i++)
		total += shards_divide(params->items[i]) ? device_param_room(params->items[i]) : 0;
	elements = shards->gathers ? shards_gathered_limit(params)
				   : buckets_limit(total, BUCKETS_MAX - 1, elements);
	shards->count = 0;
	shards->divided = 0;
	/* backward completes the last parameters first */
	for (size_t i = params->count; i-- > 0;)
		if (shards_divide(params->items[i]))
			shards_add(shards, params->items[i], elements);
	if (shards->count)
		shards_pad(shards);
	offset = shards->divided;
	for (int buffers = 0; buffers < 2; buffers++) {
		for (size_t i = 0; i < params->count; i++) {
			struct device_param *param = params->items[i];

			if (shards_divide(param) || (param->spec.kind == DEVICE_BUFFER) != buffers)
				continue;
			param->offset = param->rest_offset = offset;
			offset += device_param_room(param);
		}
		if (!buffers)
			shards->summed = offset;
	}
	shards->elements = offset;
}

uint32_t shards_bucket(const struct device_param *param)
{
	const struct device_range *buckets = param->store->shards.buckets;
	uint32_t bucket = 0;

	while (param->offset >= buckets[bucket].first + buckets[bucket].count)
		bucket++;
	return bucket;
}

static const struct device_range *shards_range(const struct device_param *param)
{
	return &param->store->shards.buckets[shards_bucket(param)];
}

struct device_range shards_part(const struct device_param *param, unsigned rank)
{
	if (!shards_divide(param))
		return (struct device_range){0, param->elements};
	const struct device_range *bucket = shards_range(param);
	size_t each = bucket->count / param->store->shards.world;
	size_t first = bucket->first + rank * each, last = first + each;
	size_t end = param->offset + param->elements;

	first = first > param->offset ? first : param->offset;
	last = last < end ? last : end;
	return (struct device_range){first < last ? first - param->offset : 0,
				     first < last ? last - first : 0};
}

size_t shards_whole_offset(const struct device_params *params, size_t offset)
{
	const struct device_shards *shards = &params->shards;

	return shards_divide_slot(params, DEVICE_GRAD)
		       ? offset - shards->divided + shards->divided / shards->world
		       : offset;
}

size_t shards_offset(const struct device_param *param, enum device_slot slot, size_t first)
{
	const struct device_shards *shards = &param->store->shards;

	if (!shards_divide_slot(param->store, slot))
		return device_param_offset(param, slot) + first;
	if (!shards_divide(param))
		return param->offset + first - shards->divided + shards->divided / shards->world;
	const struct device_range *bucket = shards_range(param);
	return param->offset + first - bucket->first + bucket->first / shards->world -
	       shards->rank * (bucket->count / shards->world);
}
