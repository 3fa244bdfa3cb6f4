/*
 * The laws of buckets, against a slow model: the nearest bucket, each sample once in an epoch, one
 * bucket in every batch over all ranks, the same batches at any world size, any position by itself.
 */
#include "loaderd/order/buckets.h"

#include "format/hints.h"
#include "loaderd/order/order.h"
#include "loaderd/order/sampler.h"
#include "tests/dataset.h"
#include "tests/test.h"

#include <math.h>

enum { SAMPLES = 1203, SIZES = 6, SIDE_MAX = 40 };

static const struct bucket_size sizes[SIZES] = {{16, 16}, {24, 12}, {12, 24},
						{32, 32}, {8, 8},   {64, 2}};
/* Samples of a global batch, as parts of that of the feed. */
static const uint64_t divisors[][SIZES] = {{1, 1, 1, 1, 1, 1}, {1, 2, 2, 1, 2, 1}};

static struct packimg *dataset;
static struct {
	uint32_t width, height;
} stored[SAMPLES];

static void write_dataset(void)
{
	static uint8_t pixels[SIDE_MAX * SIDE_MAX * 3];
	struct test_dataset data;
	struct packimg_error error;
	char path[] = "/tmp/test_buckets.XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	test_dataset_begin(&data, path, 0);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		stored[i].width = 1 + i * 7 % SIDE_MAX;
		stored[i].height = 1 + i * i % SIDE_MAX;
		struct packimg_item item = test_item(pixels, stored[i].width, stored[i].height);
		test_dataset_add(&data, &item);
	}
	test_dataset_finish(&data);
	assert_int_equal(packimg_open(path, &dataset, &error), 0);
	unlink(path);
}

/* The rule of the manual, by logarithms and a look at each bucket. */
static uint32_t model_nearest(uint32_t width, uint32_t height)
{
	double least = INFINITY;
	uint32_t best = 0;
	for (uint32_t i = 0; i < SIZES; i++) {
		double distance = fabs(log((double)width / height) -
				       log((double)sizes[i].width / sizes[i].height));
		bool fits = sizes[i].width <= width && sizes[i].height <= height;
		bool other = sizes[best].width <= width && sizes[best].height <= height;
		uint32_t area = sizes[i].width * sizes[i].height;
		uint32_t other_area = sizes[best].width * sizes[best].height;
		bool equal = fabs(distance - least) < 1e-12;
		bool better = fits != other ? fits : fits ? area > other_area : area < other_area;
		if (equal ? better : distance < least) {
			least = distance;
			best = i;
		}
	}
	return best;
}

TEST(nearest)
{
	struct bucket_search search;
	uint32_t seen[SIZES] = {0};
	bucket_search_init(&search, sizes, SIZES);
	for (uint32_t width = 1; width <= 70; width++)
		for (uint32_t height = 1; height <= 70; height++) {
			uint32_t bucket = bucket_nearest(&search, width, height);
			if (bucket != model_nearest(width, height))
				fail_msg("%u x %u: %u, not %u", width, height, bucket,
					 model_nearest(width, height));
			seen[bucket]++;
		}
	for (uint32_t i = 0; i < SIZES; i++)
		assert_true(seen[i] > 0);
}

/* Sizes come from a file's list of them, or from the samples' records. */
TEST(sizes_of_earlier_versions)
{
	static const char *const names[] = {"full", "no_members"};
	static const struct bucket_size flat_and_high[] = {{8, 16}, {16, 8}};
	for (int i = 0; i < 2; i++) {
		struct packimg *golden;
		struct packimg_error error;
		struct selection all;
		struct buckets buckets;
		char path[4096];
		snprintf(path, sizeof(path), "%s/good/%s.pimg", getenv("PIMG_GOLDEN"), names[i]);
		assert_int_equal(packimg_open(path, &golden, &error), 0);
		assert_int_equal(packimg_has_sizes(golden), i == 0);
		selection_init_all(&all, packimg_count(golden));
		assert_int_equal(buckets_init(&buckets, golden, &all, flat_and_high, 2), 0);
		assert_int_equal(buckets_size(&buckets, 0), 1);
		assert_int_equal(buckets_size(&buckets, 1), 5);
		assert_int_equal(selection_at(&buckets.members, 0), 4);
		buckets_deinit(&buckets);
		packimg_close(golden);
	}
}

/* As far from 2:1 as from 1:2, and sides that overflow 32 bits when multiplied. */
TEST(nearest_of_ties)
{
	static const struct bucket_size tie[] = {{100, 200}, {40, 20}, {20, 40}, {200, 100}};
	static const struct bucket_size large[] = {{4095, 4096}, {4096, 4096}, {4096, 4095}};
	struct bucket_search search;
	bucket_search_init(&search, tie, 4);
	assert_int_equal(bucket_nearest(&search, 300, 300), 0);
	assert_int_equal(bucket_nearest(&search, 50, 50), 1);
	assert_int_equal(bucket_nearest(&search, 10, 10), 1);
	bucket_search_init(&search, large, 3);
	assert_int_equal(bucket_nearest(&search, 65534, 65535), 1);
	assert_int_equal(bucket_nearest(&search, 65535, 65534), 1);
	assert_int_equal(bucket_nearest(&search, 65520, 65535), 0);
}

static struct sampler make_sampler_of(const struct selection *selection, uint64_t global,
				      const uint64_t divided[SIZES], bool shuffle)
{
	struct bucket_size own[SIZES];
	for (uint32_t i = 0; i < SIZES; i++)
		own[i] = (struct bucket_size){sizes[i].width, sizes[i].height, global / divided[i]};
	struct sampler sampler = {.seed = 5,
				  .shuffle = shuffle,
				  .global = global,
				  .part_count = 1,
				  .stage_count = 1,
				  .parts = calloc(1, sizeof(*sampler.parts)),
				  .froms = calloc(1, sizeof(*sampler.froms))};
	struct sampler_error error;
	if (selection)
		sampler.parts->selection = *selection;
	else
		selection_init_all(&sampler.parts->selection, SAMPLES);
	assert_int_equal(sampler_set_buckets(sampler.parts, dataset, own, SIZES, &error), 0);
	assert_int_equal(sampler_finish(&sampler, NULL, SAMPLER_ENDS_FIRST, 0, &error), 0);
	return sampler;
}

static struct sampler make_sampler(const struct selection *selection, uint64_t global, bool shuffle)
{
	return make_sampler_of(selection, global, divisors[0], shuffle);
}

static struct order make_order(const struct sampler *sampler, uint32_t rank, uint32_t world,
			       uint32_t repeats, bool last_short)
{
	struct order order = {
		.sampler = sampler,
		.samples = sampler->epoch_samples,
		.seed = sampler->seed,
		.batch_size = (uint32_t)(sampler->global * repeats / world),
		.rank = rank,
		.world = world,
		.repeats = repeats,
		.shuffle = sampler->shuffle,
		.last_short = last_short,
	};
	assert_int_equal(order_init(&order), 0);
	return order;
}

/* The samples of one batch of an epoch over all ranks, in order. */
struct global {
	uint32_t count;
	const struct bucket_size *bucket;
	struct order_item items[256];
};

/* Appends what a rank has in a batch. */
static void append(struct global *global, const struct order *order, uint64_t epoch, uint64_t batch)
{
	struct order_slice slice;
	if (batch >= order->batches)
		return;
	order_slice_init(&slice, order, epoch, batch);
	assert_true(slice.count > 0 && slice.count <= order->batch_size);
	assert_int_equal(slice.last, batch + 1 == order->batches);
	assert_non_null(slice.bucket);
	/* Ranks are never at different buckets. */
	assert_true(global->count == 0 || global->bucket == slice.bucket);
	global->bucket = slice.bucket;
	for (uint32_t i = 0; i < slice.count; i++)
		global->items[global->count++] = order_slice_at(&slice, i);
}

/* Returns the number of batches that some rank has, at most `max`. */
static uint64_t whole_epoch(const struct sampler *sampler, uint64_t epoch, uint32_t world,
			    uint32_t repeats, bool last_short, struct global *globals, uint64_t max)
{
	uint64_t batches = 0;
	memset(globals, 0, max * sizeof(*globals));
	for (uint32_t rank = 0; rank < world; rank++) {
		struct order order = make_order(sampler, rank, world, repeats, last_short);
		assert_true(order.batches <= max);
		/* Lower ranks have at least as many. */
		assert_true(rank == 0 || order.batches <= batches);
		batches = order.batches > batches ? order.batches : batches;
		for (uint64_t b = 0; b < order.batches; b++)
			append(&globals[b], &order, epoch, b);
	}
	return batches;
}

static void check_epoch(const struct sampler *sampler, uint64_t epoch, uint32_t repeats,
			bool last_short, const struct global *globals, uint64_t batches)
{
	uint32_t times[SAMPLES] = {0}, full[SIZES] = {0}, tails[SIZES] = {0}, members[SIZES] = {0};
	uint64_t before = UINT64_MAX;
	const struct buckets *buckets = sampler_buckets(sampler);
	for (uint64_t b = 0; b < batches; b++) {
		uint32_t bucket = (uint32_t)(globals[b].bucket - buckets->sizes);
		uint64_t global = buckets->sizes[bucket].global * repeats;
		bool whole = globals[b].count == global;
		assert_true(globals[b].count <= global);
		*(whole ? &full[bucket] : &tails[bucket]) += 1;
		assert_true(whole || last_short);
		/* Short batches come last, and never grow. */
		assert_true(whole ? before == UINT64_MAX : globals[b].count <= before);
		before = whole ? before : globals[b].count;
		for (uint32_t i = 0; i < globals[b].count; i++) {
			struct order_item item = globals[b].items[i];
			times[item.sample]++;
			assert_true(item.copy < repeats);
			assert_int_equal(model_nearest(stored[item.sample].width,
						       stored[item.sample].height),
					 bucket);
		}
	}
	for (uint32_t i = 0; i < SAMPLES; i++)
		members[model_nearest(stored[i].width, stored[i].height)]++;
	for (uint32_t s = 0; s < SIZES; s++) {
		assert_int_equal(full[s], members[s] / buckets->sizes[s].global);
		assert_int_equal(tails[s], last_short && members[s] % buckets->sizes[s].global > 0);
	}
	for (uint32_t i = 0; i < SAMPLES; i++)
		assert_true(last_short ? times[i] == repeats : times[i] % repeats == 0);
}

TEST(each_sample_once_at_any_world)
{
	static const uint32_t worlds[] = {1, 2, 3, 8};
	enum { MAX = SAMPLES };
	struct global *first = calloc(MAX, sizeof(*first)), *next = calloc(MAX, sizeof(*next));
	for (int variant = 0; variant < 16; variant++) {
		bool last_short = variant & 1, shuffle = variant & 2;
		uint32_t repeats = variant & 4 ? 3 : 1;
		const uint64_t *divided = divisors[variant / 8];
		struct sampler sampler = make_sampler_of(NULL, 48, divided, shuffle);
		for (uint64_t epoch = 0; epoch < 2; epoch++) {
			uint64_t batches =
				whole_epoch(&sampler, epoch, 1, repeats, last_short, first, MAX);
			check_epoch(&sampler, epoch, repeats, last_short, first, batches);
			for (int w = 1; w < 4; w++) {
				assert_int_equal(whole_epoch(&sampler, epoch, worlds[w], repeats,
							     last_short, next, MAX),
						 batches);
				assert_memory_equal(next, first, MAX * sizeof(*first));
			}
		}
		sampler_deinit(&sampler);
	}
	free(first);
	free(next);
}

/* The batches of all buckets mix; with another epoch or seed, batches and samples change. */
TEST(shuffled)
{
	struct sampler sampler = make_sampler(NULL, 4, true);
	struct order order = make_order(&sampler, 0, 1, 1, false);
	uint32_t changes = 0, same_bucket = 0, same_sample = 0;
	for (uint64_t b = 0; b < order.batches; b++) {
		struct order_slice now, before, other;
		order_slice_init(&now, &order, 0, b);
		order_slice_init(&other, &order, 1, b);
		order_slice_init(&before, &order, 0, b > 0 ? b - 1 : 0);
		changes += now.bucket != before.bucket;
		same_bucket += now.bucket == other.bucket;
		for (uint32_t i = 0; i < 4; i++)
			same_sample +=
				order_slice_at(&now, i).sample == order_slice_at(&other, i).sample;
	}
	assert_true(order.batches > 40);
	assert_true(changes > SIZES * 2);
	assert_true(same_bucket < order.batches * 3 / 4);
	assert_true(same_sample < order.batches);
	sampler_deinit(&sampler);
}

TEST(stored_order)
{
	struct sampler sampler = make_sampler(NULL, 4, false);
	struct order order = make_order(&sampler, 0, 1, 1, false);
	struct order_epoch epoch;
	uint64_t bucket = 0, sample = 0;
	order_epoch_init(&epoch, &order, 3);
	for (uint64_t p = 0; p < order.batches * 4; p++) {
		uint64_t at = sampler_bucket_at(&sampler, 3, p), next = order_at(&epoch, p).sample;
		assert_true(at > bucket || (at == bucket && (p == 0 || next > sample)));
		bucket = at;
		sample = next;
	}
	sampler_deinit(&sampler);
}

/* A list's samples come as often as they are listed, with copies of their own. */
TEST(listed)
{
	enum { COUNT = 30 };
	struct selection selection;
	uint32_t times[SAMPLES] = {0};
	assert_int_equal(selection_init_list(&selection, SAMPLES, COUNT), 0);
	for (uint64_t i = 0; i < COUNT; i++)
		selection_set(&selection, i, i / 2 * 5);
	assert_int_equal(selection_finish_list(&selection, COUNT), 0);
	struct sampler sampler = make_sampler(&selection, 4, true);
	struct order order = make_order(&sampler, 0, 1, 1, true);
	uint32_t copies[SAMPLES][2];
	for (uint64_t b = 0; b < order.batches; b++) {
		struct order_slice slice;
		order_slice_init(&slice, &order, 0, b);
		for (uint32_t i = 0; i < slice.count; i++) {
			struct order_item item = order_slice_at(&slice, i);
			assert_true(times[item.sample] < 2);
			copies[item.sample][times[item.sample]++] = item.copy;
		}
	}
	for (uint32_t i = 0; i < SAMPLES; i++) {
		assert_int_equal(times[i], i % 5 == 0 && i / 5 < COUNT / 2 ? 2 : 0);
		assert_true(times[i] == 0 || copies[i][0] != copies[i][1]);
	}
	assert_true(sampler_bytes(&sampler) >= COUNT * 2 * sizeof(uint32_t));
	sampler_deinit(&sampler);
}

/* A rank that would get nothing is told so, and buckets without a whole batch are dropped. */
TEST(larger_batches_than_buckets)
{
	struct sampler sampler = make_sampler(NULL, SAMPLES - 1, true);
	struct order order = make_order(&sampler, 0, 1, 1, false);
	assert_int_equal(order.batches, 0);
	order = make_order(&sampler, 0, 1, 1, true);
	assert_int_equal(order.batches, SIZES);
	sampler_deinit(&sampler);
}

static void refused(struct sampler *sampler, uint64_t epoch_samples, const char *text)
{
	struct sampler_error error = {0};
	assert_int_equal(sampler_finish(sampler, NULL, SAMPLER_ENDS_FIRST, epoch_samples, &error),
			 -EINVAL);
	if (!strstr(error.text, text))
		fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

TEST(what_buckets_exclude)
{
	struct sampler sampler = make_sampler(NULL, 4, true);
	struct sampler_error error;
	refused(&sampler, 100, "leave epoch_samples unset, not 100");
	sampler.stage_count = 2;
	sampler.froms = realloc(sampler.froms, 2 * sizeof(*sampler.froms));
	sampler.froms[1] = 1;
	refused(&sampler, 0, "has one stage, not 2");
	sampler_deinit(&sampler);
	struct sampler_part part = {0};
	selection_init_all(&part.selection, SAMPLES);
	assert_int_equal(sampler_set_weights(&part, 1), 0);
	assert_int_equal(sampler_set_buckets(&part, dataset, sizes, SIZES, &error), -EINVAL);
	assert_string_equal(error.field, "buckets");
	weight_sums_deinit(part.sums);
	free(part.sums);
}

static int set_up(void **state)
{
	write_dataset();
	return 0;
}

static int tear_down(void **state)
{
	packimg_close(dataset);
	return 0;
}

TEST_MAIN(set_up, tear_down)
