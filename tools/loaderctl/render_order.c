/* The order of a feed, as text. */
#include "format/base/text/number.h"
#include "tools/loaderctl/render_text.h"

#include <inttypes.h>
#include <stdio.h>

enum { BUCKETS_SHOWN = 6 };

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

/* Which samples of its dataset a part draws, and how. */
static void put_choice(const Loaderd__PartStatus *part)
{
	static const Loaderd__Choice all = LOADERD__CHOICE__INIT;
	const Loaderd__Choice *choice = part->choice ? part->choice : &all;
	char chosen[32], samples[32];
	number_grouped(part->chosen, chosen);
	number_grouped(part->samples, samples);
	if (choice->listed)
		printf("%s entr%s of a list of its %s sample%s", chosen,
		       part->chosen == 1 ? "y" : "ies", samples, plural(part->samples));
	else if (choice->where[0] != '\0')
		printf("%s of %s sample%s", chosen, samples, plural(part->samples));
	else
		printf("all %s sample%s", samples, plural(part->samples));
	if (choice->where[0] != '\0')
		printf(", chosen by a filter");
	if (choice->weighted)
		printf(", weighted");
	if (choice->class_weighted)
		printf(", weighted by class");
	if (choice->balanced)
		printf(", classes equally likely");
	if (choice->classes_per_batch > 0)
		printf(", %" PRIu32 " class%s in each batch", choice->classes_per_batch,
		       choice->classes_per_batch == 1 ? "" : "es");
	putchar('\n');
}

static void put_share(const Loaderd__OrderStatus *order, const Loaderd__PartStatus *part)
{
	const char *unit = order->part_batches ? "batches" : "samples";
	if (part->share > 0)
		printf("%" PRIu32 " of every %" PRIu32 " %s from ", part->share, order->period,
		       unit);
	else
		printf("no %s from ", unit);
	put_text(part->dataset);
	printf(": ");
}

static void put_buckets(const Loaderd__OrderStatus *order)
{
	char samples[32];
	printf("  %-10s%zu:", "buckets", order->n_buckets);
	for (size_t i = 0; i < order->n_buckets && i < BUCKETS_SHOWN; i++) {
		const Loaderd__Bucket *bucket = order->buckets[i];
		printf("%s %" PRIu32 "x%" PRIu32, i == 0 ? "" : ",", bucket->width, bucket->height);
		if (i < order->n_bucket_samples)
			printf(" (%s sample%s)", number_grouped(order->bucket_samples[i], samples),
			       plural(order->bucket_samples[i]));
	}
	puts(order->n_buckets > BUCKETS_SHOWN ? ", ..." : "");
}

static void put_packs(const Loaderd__OrderStatus *order)
{
	char tokens[32], batches[32];
	printf("  %-10sbatches of at most %s token%s, %s in an epoch over all ranks\n", "packs",
	       number_grouped(order->batch_tokens, tokens), plural(order->batch_tokens),
	       number_grouped(order->epoch_batches, batches));
}

void put_order(const Loaderd__OrderStatus *order)
{
	for (size_t i = 0; i < order->n_parts; i++) {
		printf("  %-10s", i == 0 ? "order" : "");
		if (order->part_count > 1)
			put_share(order, order->parts[i]);
		put_choice(order->parts[i]);
	}
	if (order->part_count > order->n_parts)
		printf("  %-10sand %zu more datasets\n", "", order->part_count - order->n_parts);
	if (order->stages > 1)
		printf("  %-10sstage %" PRIu64 " of %" PRIu32 "\n", "", (uint64_t)order->stage + 1,
		       order->stages);
	if (order->n_buckets > 0)
		put_buckets(order);
	if (order->batch_tokens > 0)
		put_packs(order);
}

void put_opening(const Loaderd__Progress *opening)
{
	char done[32], total[32];
	printf("  %-10s%s of %s samples examined\n", "opening", number_grouped(opening->done, done),
	       number_grouped(opening->total, total));
}
