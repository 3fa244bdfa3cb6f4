#include "loaderd/worker/order_status.h"

#include "format/join.h"
#include "loaderd/order/sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The message and all that it points to. */
struct order_message {
	Loaderd__OrderStatus order;
	Loaderd__PartStatus parts[ORDER_STATUS_PARTS];
	Loaderd__PartStatus *part_list[ORDER_STATUS_PARTS];
	Loaderd__Bucket buckets[BUCKETS_MAX];
	Loaderd__Bucket *bucket_list[BUCKETS_MAX];
	uint64_t bucket_samples[BUCKETS_MAX];
};

/* A choice and its filter, in one block. */
struct kept_choice {
	Loaderd__Choice choice;
	char where[ORDER_STATUS_WHERE_MAX];
};

/* Copies as many whole characters of UTF-8 as there is room for. */
static void copy_where(const char *from, char to[ORDER_STATUS_WHERE_MAX])
{
	size_t length = strnlen(from, ORDER_STATUS_WHERE_MAX);
	if (length == ORDER_STATUS_WHERE_MAX)
		for (length--; length > 0 && ((unsigned char)from[length] & 0xc0) == 0x80;)
			length--;
	memcpy(to, from, length);
	to[length] = '\0';
}

int order_choices_keep(const Loaderd__OpenFeed *request, struct order_choices *ret_choices)
{
	for (size_t p = 0; p < request->n_parts && p < ORDER_STATUS_PARTS; p++) {
		const Loaderd__Choice *choice = request->parts[p]->choice;
		if (!choice)
			continue;
		struct kept_choice *kept = malloc(sizeof(*kept));
		if (!kept)
			return -ENOMEM;
		loaderd__choice__init(&kept->choice);
		copy_where(choice->where, kept->where);
		kept->choice.where = kept->where;
		kept->choice.listed = choice->listed;
		kept->choice.weighted = choice->weighted;
		kept->choice.class_weighted = choice->class_weighted;
		kept->choice.balanced = choice->balanced;
		kept->choice.classes_per_batch = choice->classes_per_batch;
		ret_choices->choice[p] = &kept->choice;
	}
	return 0;
}

void order_choices_free(struct order_choices *choices)
{
	for (size_t p = 0; p < ORDER_STATUS_PARTS; p++)
		free(choices->choice[p]);
	*choices = (struct order_choices){0};
}

static void set_parts(struct order_message *message, const struct sampler *sampler,
		      const struct dataset *dataset, const struct order_choices *choices)
{
	Loaderd__OrderStatus *order = &message->order;
	bool several = sampler->part_count > 1;
	order->part_count = sampler->part_count;
	order->parts = message->part_list;
	for (uint32_t p = 0; p < sampler->part_count && p < ORDER_STATUS_PARTS; p++) {
		Loaderd__PartStatus *part = message->part_list[order->n_parts++] =
			&message->parts[p];
		loaderd__part_status__init(part);
		part->dataset = dataset->part_paths ? dataset->part_paths[p] : dataset->path;
		part->samples = packimg_count(packimg_part(dataset->image, p));
		part->chosen = sampler->parts[p].selection.count;
		part->choice = choices->choice[p];
		if (several)
			part->share = mixture_share(&sampler->mixture, order->stage, p);
	}
	if (several)
		order->period = (uint32_t)sampler->mixture.stages[order->stage].period;
}

static void set_buckets(struct order_message *message, const struct order *of)
{
	Loaderd__OrderStatus *order = &message->order;
	const struct buckets *buckets = sampler_buckets(of->sampler);
	order->buckets = message->bucket_list;
	order->bucket_samples = message->bucket_samples;
	for (uint32_t b = 0; buckets && b < buckets->count; b++) {
		Loaderd__Bucket *bucket = message->bucket_list[b] = &message->buckets[b];
		loaderd__bucket__init(bucket);
		bucket->width = buckets->sizes[b].width;
		bucket->height = buckets->sizes[b].height;
		bucket->batch_size = (uint32_t)(buckets->sizes[b].global * of->repeats / of->world);
		message->bucket_samples[b] = buckets_size(buckets, b);
	}
	order->n_buckets = order->n_bucket_samples = buckets ? buckets->count : 0;
}

static void set_packs(Loaderd__OrderStatus *order, const struct sampler *sampler)
{
	const struct packs *packs = sampler_packs(sampler);
	order->batch_tokens = packs ? packs->tokens_max : 0;
	order->epoch_batches = packs ? packs->count : 0;
}

Loaderd__OrderStatus *order_status_new(const struct order *order, const struct dataset *dataset,
				       const struct order_choices *choices, uint64_t epoch,
				       uint64_t batch)
{
	const struct sampler *sampler = order->sampler;
	struct order_message *message = malloc(sizeof(*message));
	if (!message)
		return NULL;
	loaderd__order_status__init(&message->order);
	message->order.part_batches = sampler->by_batch;
	message->order.stage = sampler_stage(sampler, epoch, batch);
	message->order.stages = sampler->stage_count;
	message->order.epoch_samples = sampler->epoch_samples;
	set_parts(message, sampler, dataset, choices);
	set_buckets(message, order);
	set_packs(&message->order, sampler);
	return &message->order;
}
