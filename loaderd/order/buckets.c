#include "loaderd/order/buckets.h"

#include "format/base/random.h"
#include "loaderd/order/permutation.h"
#include "loaderd/order/sizes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sides are below 2^32: products of two are exact. */
static uint64_t product(uint32_t a, uint32_t b)
{
	return (uint64_t)a * b;
}

/*
 * How far the aspect ratios of two sizes are apart: the larger one over the smaller, which orders
 * as the difference of their logarithms does. Exact, as a fraction.
 */
struct distance {
	uint64_t over, under;
};

static struct distance distance_of(struct bucket_size a, struct bucket_size b)
{
	uint64_t x = product(a.width, b.height), y = product(b.width, a.height);
	return x > y ? (struct distance){x, y} : (struct distance){y, x};
}

static int compare_distances(struct distance a, struct distance b)
{
	unsigned __int128 x = (unsigned __int128)a.over * b.under;
	unsigned __int128 y = (unsigned __int128)b.over * a.under;
	return x < y ? -1 : x > y;
}

static int compare_ratios(struct bucket_size a, struct bucket_size b)
{
	uint64_t x = product(a.width, b.height), y = product(b.width, a.height);
	return x < y ? -1 : x > y;
}

void bucket_search_init(struct bucket_search *search, const struct bucket_size *sizes,
			uint32_t count)
{
	assert(count > 0 && count <= BUCKETS_MAX);
	search->sizes = sizes;
	search->count = count;
	/* An insertion sort, which keeps the order of equal ratios. */
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = i;
		for (; at > 0 && compare_ratios(sizes[search->order[at - 1]], sizes[i]) > 0; at--)
			search->order[at] = search->order[at - 1];
		search->order[at] = (uint8_t)i;
	}
}

/* The best bucket so far for an image. */
struct nearest {
	struct bucket_size image;
	struct distance distance;
	uint32_t bucket;
	bool found;
};

/* Returns true if `size` is the better one of two buckets of equal distance, see the header. */
static bool fits_better(const struct bucket_search *search, uint32_t bucket, uint32_t than,
			struct bucket_size image)
{
	struct bucket_size a = search->sizes[bucket], b = search->sizes[than];
	bool fits = a.width <= image.width && a.height <= image.height;
	bool other = b.width <= image.width && b.height <= image.height;
	uint64_t area = product(a.width, a.height), other_area = product(b.width, b.height);
	if (fits != other)
		return fits;
	if (area == other_area)
		return bucket < than;
	return fits ? area > other_area : area < other_area;
}

/* Considers a bucket. Returns false if it is farther than the best one. */
static bool consider(const struct bucket_search *search, uint32_t bucket, struct nearest *nearest)
{
	struct distance distance = distance_of(search->sizes[bucket], nearest->image);
	int order = nearest->found ? compare_distances(distance, nearest->distance) : -1;
	if (order > 0)
		return false;
	if (order < 0 || fits_better(search, bucket, nearest->bucket, nearest->image))
		nearest->bucket = bucket;
	nearest->distance = distance;
	nearest->found = true;
	return true;
}

uint32_t bucket_nearest(const struct bucket_search *search, uint32_t width, uint32_t height)
{
	struct nearest nearest = {.image = {width, height}};
	uint32_t low = 0, high = search->count;
	/* Those before `low` are narrower than the image, and those from `high` on are not. */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (compare_ratios(search->sizes[search->order[middle]], nearest.image) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (uint32_t i = low; i < search->count; i++)
		if (!consider(search, search->order[i], &nearest))
			break;
	for (uint32_t i = low; i > 0; i--)
		if (!consider(search, search->order[i - 1], &nearest))
			break;
	return nearest.bucket;
}

/*
 * A wrong size in the file's list puts the sample into another bucket, whose shape its finished
 * image has all the same.
 */
static uint32_t bucket_of(struct size_reader *reader, uint64_t index,
			  const struct bucket_search *search)
{
	struct image_size size = sizes_at(reader, index);
	if (size.width == 0 || size.height == 0)
		return 0;
	return bucket_nearest(search, size.width, size.height);
}

/*
 * Counts the members of each bucket in starts[bucket + 1]. Keeps the buckets: the file may change
 * before they are needed again.
 */
static void count_members(struct buckets *buckets, const struct packimg *dataset,
			  const struct selection *selection, uint8_t *chosen)
{
	struct size_reader reader;
	struct bucket_search search;
	sizes_init(&reader, dataset);
	bucket_search_init(&search, buckets->sizes, buckets->count);
	for (uint64_t i = 0; i < selection->count; i++) {
		uint32_t bucket = bucket_of(&reader, selection_at(selection, i), &search);
		chosen[i] = (uint8_t)bucket;
		buckets->starts[bucket + 1]++;
	}
	for (uint32_t b = 0; b < buckets->count; b++)
		buckets->starts[b + 1] += buckets->starts[b];
}

_Static_assert(BUCKETS_MAX - 1 <= UINT8_MAX, "a byte holds the number of a bucket");

/* A counting sort. Leaves starts[bucket] at the end of each bucket. */
static void sort_members(struct buckets *buckets, const struct selection *selection,
			 const uint8_t *chosen)
{
	for (uint64_t i = 0; i < selection->count; i++)
		selection_set(&buckets->members, buckets->starts[chosen[i]]++,
			      selection_at(selection, i));
}

int buckets_init(struct buckets *buckets, const struct packimg *dataset,
		 const struct selection *selection, const struct bucket_size *sizes, uint32_t count)
{
	struct buckets result = {.count = count};
	uint8_t *chosen = malloc(selection->count + 1);
	result.sizes = malloc(count * sizeof(*sizes));
	result.starts = calloc((size_t)count + 1, sizeof(*result.starts));
	int r = chosen && result.sizes && result.starts
			? selection_init_list(&result.members, selection->samples, selection->count)
			: -ENOMEM;
	if (r == 0) {
		memcpy(result.sizes, sizes, count * sizeof(*sizes));
		count_members(&result, dataset, selection, chosen);
		sort_members(&result, selection, chosen);
		memmove(result.starts + 1, result.starts, count * sizeof(*result.starts));
		result.starts[0] = 0;
		*buckets = result;
	} else {
		buckets_deinit(&result);
	}
	free(chosen);
	return r;
}

/* The longest first; equally long ones in the order of the buckets. */
static int compare_tails(const void *a, const void *b)
{
	const struct bucket_tail *x = a, *y = b;
	if (x->count != y->count)
		return x->count > y->count ? -1 : 1;
	return x->bucket < y->bucket ? -1 : 1;
}

int buckets_cut(struct buckets *buckets, uint64_t stride)
{
	buckets->stride = stride;
	buckets->batches = calloc((size_t)buckets->count + 1, sizeof(*buckets->batches));
	buckets->tails = calloc(buckets->count, sizeof(*buckets->tails));
	if (!buckets->batches || !buckets->tails)
		return -ENOMEM;
	for (uint32_t b = 0; b < buckets->count; b++) {
		uint64_t global = buckets->sizes[b].global;
		assert(global > 0 && global <= stride);
		uint64_t size = buckets_size(buckets, b), left = size % global;
		buckets->batches[b + 1] = buckets->batches[b] + size / global;
		if (left > 0)
			buckets->tails[buckets->tail_count++] =
				(struct bucket_tail){.bucket = b, .count = left};
	}
	if (buckets->tail_count > 0)
		qsort(buckets->tails, buckets->tail_count, sizeof(*buckets->tails), compare_tails);
	uint64_t position = buckets_full(buckets) * stride;
	for (uint32_t t = 0; t < buckets->tail_count; t++) {
		buckets->tails[t].first = position;
		position += buckets->tails[t].count;
	}
	return 0;
}

uint64_t buckets_full(const struct buckets *buckets)
{
	return buckets->batches[buckets->count];
}

uint64_t buckets_size(const struct buckets *buckets, uint32_t bucket)
{
	return buckets->starts[bucket + 1] - buckets->starts[bucket];
}

/* Returns the bucket of a whole global batch, counted bucket by bucket. */
static uint32_t bucket_of_batch(const struct buckets *buckets, uint64_t batch)
{
	uint32_t low = 0, high = buckets->count;
	/* Invariant: batches[low] <= batch < batches[high]. */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (buckets->batches[middle] <= batch)
			low = middle;
		else
			high = middle;
	}
	return low;
}

const struct bucket_tail *buckets_tail_at(const struct buckets *buckets, uint64_t position)
{
	uint32_t low = 0, high = buckets->tail_count;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (buckets->tails[middle].first <= position)
			low = middle;
		else
			high = middle;
	}
	return &buckets->tails[low];
}

struct bucket_draw buckets_at(const struct buckets *buckets, uint64_t seed, bool shuffle,
			      uint64_t epoch, uint64_t position)
{
	uint64_t full = buckets_full(buckets), batch = position / buckets->stride, member;
	struct permutation permutation;
	uint32_t bucket;
	if (batch < full) {
		if (shuffle) {
			permutation_init(&permutation, full, seed, epoch, 0, RANDOM_BUCKETS);
			batch = permutation_at(&permutation, batch);
		}
		bucket = bucket_of_batch(buckets, batch);
		uint64_t global = buckets->sizes[bucket].global, place = position % buckets->stride;
		assert(place < global);
		member = (batch - buckets->batches[bucket]) * global + place;
	} else {
		const struct bucket_tail *tail = buckets_tail_at(buckets, position);
		bucket = tail->bucket;
		member = buckets_size(buckets, bucket) - tail->count + (position - tail->first);
	}
	assert(member < buckets_size(buckets, bucket));
	if (shuffle) {
		permutation_init(&permutation, buckets_size(buckets, bucket), seed, epoch, bucket,
				 RANDOM_MEMBERS);
		member = permutation_at(&permutation, member);
	}
	return (struct bucket_draw){
		selection_at(&buckets->members, buckets->starts[bucket] + member), bucket};
}

uint64_t buckets_bytes(const struct buckets *buckets)
{
	uint64_t each = sizeof(*buckets->sizes) + sizeof(*buckets->starts) +
			sizeof(*buckets->batches) + sizeof(*buckets->tails);
	return selection_bytes(&buckets->members) + buckets->count * each;
}

void buckets_deinit(struct buckets *buckets)
{
	free(buckets->sizes);
	free(buckets->starts);
	free(buckets->batches);
	free(buckets->tails);
	selection_deinit(&buckets->members);
	*buckets = (struct buckets){0};
}
