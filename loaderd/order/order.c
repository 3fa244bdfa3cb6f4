#include "loaderd/order/order.h"

#include "format/base/random.h"
#include "loaderd/order/sampler.h"
#include "loaderd/order/wants.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static uint64_t order_global(const struct order *order)
{
	return (uint64_t)order->batch_size * order->world;
}

static uint32_t order_repeats(const struct order *order)
{
	return order->repeats ? order->repeats : 1;
}

/* A batch over all ranks: positions of an epoch's sequence, with repeats. */
struct global_batch {
	uint64_t first, count;
};

static const struct buckets *buckets_of(const struct sampler *sampler)
{
	return sampler ? sampler_buckets(sampler) : NULL;
}

static const struct packs *packs_of(const struct sampler *sampler)
{
	return sampler ? sampler_packs(sampler) : NULL;
}

/* Returns the bucket of the sample at a position without repeats. */
static const struct bucket_size *bucket_at(const struct sampler *sampler, uint64_t epoch,
					   uint64_t position)
{
	return &sampler_buckets(sampler)->sizes[sampler_bucket_at(sampler, epoch, position)];
}

/* Number of whole batches over all ranks in an epoch. */
static uint64_t full_batches(const struct order *order)
{
	const struct buckets *buckets = buckets_of(order->sampler);
	const struct packs *packs = packs_of(order->sampler);
	if (buckets)
		return buckets_full(buckets);
	if (packs)
		return packs->count / order->world;
	return order->samples * order_repeats(order) / order_global(order);
}

/* Number of shorter ones, which come after them: remainders. */
static uint32_t tail_count(const struct order *order)
{
	const struct buckets *buckets = buckets_of(order->sampler);
	const struct packs *packs = packs_of(order->sampler);
	if (buckets)
		return buckets->tail_count;
	if (packs)
		return packs->count % order->world != 0;
	return order->samples * order_repeats(order) % order_global(order) != 0;
}

static struct global_batch tail_batch(const struct order *order, uint64_t tail)
{
	const struct buckets *buckets = buckets_of(order->sampler);
	uint64_t repeats = order_repeats(order), first = full_batches(order) * order_global(order);
	if (buckets)
		return (struct global_batch){buckets->tails[tail].first * repeats,
					     buckets->tails[tail].count * repeats};
	return (struct global_batch){first, order->samples * repeats - first};
}

/*
 * Returns how many samples of a remainder of m samples this rank gets; *ret_first is the index of
 * the first within the remainder.
 */
static uint64_t rank_share(const struct order *order, uint64_t m, uint64_t *ret_first)
{
	uint64_t base = m / order->world, extra = m % order->world;
	uint64_t rank = order->rank;
	*ret_first = rank * base + (rank < extra ? rank : extra);
	return base + (rank < extra);
}

int order_init(struct order *order)
{
	if (order->samples == 0 || order->batch_size == 0 || order->world == 0 ||
	    order->rank >= order->world || order_global(order) % order_repeats(order))
		return -EINVAL;
	order->batches = full_batches(order);
	const struct packs *packs = packs_of(order->sampler);
	if (packs) {
		if (order_repeats(order) > 1)
			return -EINVAL;
		order->batches += order->last_short && order->rank < packs->count % order->world;
		return 0;
	}
	/* No tail is longer than those before it: the rank's are the first ones. */
	for (uint32_t t = 0; order->last_short && t < tail_count(order); t++) {
		uint64_t first;
		order->batches += rank_share(order, tail_batch(order, t).count, &first) > 0;
	}
	return 0;
}

uint64_t order_step(const struct order *order, uint64_t epoch, uint64_t batch)
{
	/* Also the last batches of which this rank gets nothing. */
	uint64_t batches = full_batches(order) + (order->last_short ? tail_count(order) : 0);
	return epoch * batches + batch + 1;
}

void order_epoch_init(struct order_epoch *epoch, const struct order *order, uint64_t number)
{
	memset(epoch, 0, sizeof(*epoch));
	epoch->sampler = order->sampler;
	epoch->number = number;
	epoch->samples = order->samples;
	epoch->global = order_global(order);
	epoch->repeats = order_repeats(order);
	if (!order->sampler && order->shuffle)
		permutation_init(&epoch->permutation, order->samples, order->seed, number, 0,
				 RANDOM_ORDER);
	else
		permutation_init_identity(&epoch->permutation, order->samples);
}

/* A position mapped to the sequence without repeats, and its copy number. */
struct copied {
	uint64_t position;
	uint32_t copy;
};

/*
 * Returns the number of distinct samples of the batch over all ranks that contains a position. Sets
 * *ret_first to the batch's first position.
 */
static uint64_t batch_samples(const struct order_epoch *epoch, uint64_t position,
			      uint64_t *ret_first)
{
	const struct buckets *buckets = buckets_of(epoch->sampler);
	uint64_t first = position - position % epoch->global;
	uint64_t left = epoch->samples * epoch->repeats - first;
	if (buckets && position / epoch->global >= buckets_full(buckets)) {
		const struct bucket_tail *tail =
			buckets_tail_at(buckets, position / epoch->repeats);
		*ret_first = tail->first * epoch->repeats;
		return tail->count;
	}
	*ret_first = first;
	if (buckets)
		return bucket_at(epoch->sampler, epoch->number, first / epoch->repeats)->global;
	return (left < epoch->global ? left : epoch->global) / epoch->repeats;
}

static struct copied order_copied(const struct order_epoch *epoch, uint64_t position)
{
	if (epoch->repeats == 1)
		return (struct copied){position, 0};
	uint64_t first, each = batch_samples(epoch, position, &first);
	return (struct copied){first / epoch->repeats + (position - first) % each,
			       (uint32_t)((position - first) / each)};
}

uint64_t order_copy_seed(uint64_t seed, uint32_t copy)
{
	if (copy == 0)
		return seed;
	struct random_stream stream;
	random_init(&stream, seed, copy, 0, RANDOM_COPY);
	uint64_t high = random_u32(&stream);
	return high << 32 | random_u32(&stream);
}

struct order_item order_at(const struct order_epoch *epoch, uint64_t position)
{
	struct copied at = order_copied(epoch, position);
	if (!epoch->sampler)
		return (struct order_item){permutation_at(&epoch->permutation, at.position),
					   at.copy};
	struct sampler_draw draw = sampler_at(epoch->sampler, epoch->number, at.position);
	return (struct order_item){draw.sample, draw.copy * epoch->repeats + at.copy};
}

uint32_t order_bucket_batch(const struct order *order, const struct bucket_size *bucket)
{
	return (uint32_t)(bucket->global * order_repeats(order) / order->world);
}

/* Returns the number of samples that each rank has of a whole batch over all ranks. */
static uint32_t batch_count(const struct order *order, uint64_t epoch, uint64_t batch)
{
	if (!buckets_of(order->sampler))
		return order->batch_size;
	uint64_t first = batch * order_global(order) / order_repeats(order);
	return order_bucket_batch(order, bucket_at(order->sampler, epoch, first));
}

void order_batch(const struct order *order, uint64_t epoch, uint64_t batch,
		 struct order_batch *ret_batch)
{
	assert(batch < order->batches);
	uint64_t full = full_batches(order);
	struct order_batch result = {.last = batch + 1 == order->batches};
	if (packs_of(order->sampler)) {
		uint64_t pack = batch * order->world + order->rank;
		result.count = sampler_pack_size(order->sampler, epoch, pack);
		result.first = pack * order->batch_size;
	} else if (batch < full) {
		result.count = batch_count(order, epoch, batch);
		result.first = batch * order_global(order) + (uint64_t)order->rank * result.count;
	} else {
		struct global_batch tail = tail_batch(order, batch - full);
		uint64_t first;
		result.count = (uint32_t)rank_share(order, tail.count, &first);
		result.first = tail.first + first;
	}
	*ret_batch = result;
}

void order_slice_init(struct order_slice *ret_slice, const struct order *order, uint64_t epoch,
		      uint64_t batch)
{
	struct order_batch part;
	order_batch(order, epoch, batch, &part);
	*ret_slice =
		(struct order_slice){.count = part.count, .last = part.last, .first = part.first};
	order_epoch_init(&ret_slice->epoch, order, epoch);
	if (buckets_of(order->sampler))
		ret_slice->bucket =
			bucket_at(order->sampler, epoch, part.first / order_repeats(order));
}

struct pack_draw order_slice_pack(const struct order_slice *slice, uint32_t i)
{
	return sampler_pack_at(slice->epoch.sampler, slice->epoch.number, slice->first + i);
}

struct pack_draw order_slice_other(const struct order_slice *slice, uint32_t i, uint64_t bits)
{
	return sampler_pack_other(slice->epoch.sampler, slice->epoch.number, slice->first + i,
				  bits);
}

struct order_item order_slice_at(const struct order_slice *slice, uint32_t i)
{
	assert(i < slice->count);
	if (slice->samples)
		return (struct order_item){slice->samples[i], slice->copies[i]};
	return order_at(&slice->epoch, slice->first + i);
}

int order_walk_at(struct order_walk *walk, uint64_t unit, uint64_t *ret_sample)
{
	if (walk->wants)
		return wants_sample(walk->wants, unit / walk->order.batch_size,
				    (uint32_t)(unit % walk->order.batch_size), ret_sample);
	uint64_t batches = walk->batch + unit / walk->order.batch_size;
	uint64_t epoch = walk->epoch + batches / walk->order.batches;
	uint32_t position = (uint32_t)(unit % walk->order.batch_size);
	struct order_batch batch;
	if (walk->epoch_end != 0 && epoch >= walk->epoch_end)
		return -ENODATA;
	order_batch(&walk->order, epoch, batches % walk->order.batches, &batch);
	if (position >= batch.count)
		return 0;
	if (!walk->cached || walk->cached_epoch != epoch) {
		order_epoch_init(&walk->keys, &walk->order, epoch);
		walk->cached_epoch = epoch;
		walk->cached = true;
	}
	*ret_sample = order_at(&walk->keys, batch.first + position).sample;
	return 1;
}
