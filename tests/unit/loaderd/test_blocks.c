/*
 * The law of blocks: an order of every size of block, group and choice is the one that a slow model
 * makes from lists.
 */
#include "loaderd/order/blocks.h"
#include "tests/test.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ret_points: [count]: writes out block after block, then permutes each group. */
static void make_slowly(const struct block_sizes *sizes, uint64_t count, uint64_t seed,
			uint64_t pass, uint64_t *ret_points)
{
	uint64_t blocks = (count + sizes->samples - 1) / sizes->samples, written = 0;
	struct permutation order;
	permutation_init(&order, blocks, seed, pass, 0, RANDOM_BLOCKS);
	uint64_t *group = malloc(count * sizeof(*group));
	for (uint64_t first = 0; first < blocks; first += sizes->blocks) {
		uint64_t size = 0;
		for (uint64_t i = first; i < smaller(first + sizes->blocks, blocks); i++) {
			uint64_t begin = permutation_at(&order, i) * sizes->samples;
			for (uint64_t k = begin; k < smaller(begin + sizes->samples, count); k++)
				group[size++] = k;
		}
		struct permutation within;
		permutation_init(&within, size, seed, pass, first / sizes->blocks, RANDOM_GROUPS);
		for (uint64_t i = 0; i < size; i++)
			ret_points[written + i] = group[permutation_at(&within, i)];
		written += size;
	}
	assert_int_equal(written, count);
	free(group);
}

static void check(uint64_t count, const struct block_sizes *sizes, uint64_t pass)
{
	enum { SEED = 7 };
	uint64_t *expected = malloc(count * sizeof(*expected));
	uint8_t *seen = calloc(count, 1);
	struct block_order order;
	make_slowly(sizes, count, SEED, pass, expected);
	block_order_init(&order, sizes, count, SEED, pass);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t point = block_order_at(&order, i);
		if (point != expected[i])
			fail_msg("%lu of %lu, blocks of %u, groups of %u, pass %lu: %lu for %lu", i,
				 count, sizes->samples, sizes->blocks, pass, point, expected[i]);
		seen[point]++;
	}
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(seen[i], 1);
	free(expected);
	free(seen);
}

TEST(every_order_is_the_models)
{
	static const uint64_t counts[] = {1, 2, 7, 63, 64, 65, 255, 256, 257, 1000};
	static const uint32_t sizes[] = {1, 2, 3, 8, 37, 64, 300, UINT32_MAX};
	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
		for (size_t b = 0; b < sizeof(sizes) / sizeof(*sizes); b++)
			for (size_t g = 0; g < sizeof(sizes) / sizeof(*sizes); g++)
				for (uint64_t pass = 0; pass < 5; pass++)
					check(counts[c], &(struct block_sizes){sizes[b], sizes[g]},
					      pass);
}

/*
 * The place of the short block differs from pass to pass, so that no sample is at the end of an
 * epoch, where a remainder is dropped, more often than others.
 */
TEST(short_block_comes_anywhere)
{
	const struct block_sizes sizes = {.samples = 10, .blocks = 3};
	struct block_order order;
	unsigned groups[34] = {0};
	for (uint64_t pass = 0; pass < 3400; pass++) {
		block_order_init(&order, &sizes, 1001, 7, pass);
		groups[order.short_slot / 3]++;
	}
	/* 101 slots: the last group has two of them */
	for (unsigned i = 0; i < 33; i++)
		assert_in_range(groups[i], 60, 145);
	assert_in_range(groups[33], 35, 105);
}

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return left < right ? -1 : left > right;
}

/* In a choice too large for any table, a group anywhere has each sample of its blocks once. */
TEST(any_group_of_a_large_choice)
{
	enum { SAMPLES = 97, BLOCKS = 255, GROUP = SAMPLES * BLOCKS };
	const struct block_sizes sizes = {.samples = SAMPLES, .blocks = BLOCKS};
	struct block_order order;
	block_order_init(&order, &sizes, UINT64_C(1) << 44, 3, 1);
	uint64_t group = (UINT64_C(1) << 43) / GROUP, first = group * GROUP;
	uint64_t *points = malloc(GROUP * sizeof(*points));
	assert_true(order.short_slot / BLOCKS != group);
	if (order.short_slot / BLOCKS < group)
		first -= order.missing;
	for (uint64_t i = 0; i < GROUP; i++)
		points[i] = block_order_at(&order, first + i);
	qsort(points, GROUP, sizeof(*points), compare);
	for (uint64_t i = 0; i < GROUP; i++)
		assert_int_equal(points[i],
				 points[i - i % SAMPLES] / SAMPLES * SAMPLES + i % SAMPLES);
	free(points);
}

/*
 * Share of the samples that a reader of `ahead` samples at a time gets together with the sample
 * before them in the file.
 */
static double merged(const struct block_sizes *sizes, uint64_t count, uint64_t ahead)
{
	enum { WINDOWS = 40 };
	uint64_t *points = malloc(ahead * sizeof(*points)), joined = 0;
	for (uint64_t w = 0; w < WINDOWS; w++) {
		struct block_order order;
		struct permutation plain;
		block_order_init(&order, sizes, count, 5, w);
		permutation_init(&plain, count, 5, w, 0, RANDOM_ORDER);
		for (uint64_t i = 0; i < ahead; i++)
			points[i] = sizes->samples > 1 ? block_order_at(&order, w * ahead + i)
						       : permutation_at(&plain, w * ahead + i);
		qsort(points, ahead, sizeof(*points), compare);
		for (uint64_t i = 1; i < ahead; i++)
			joined += points[i] == points[i - 1] + 1;
	}
	free(points);
	return (double)joined / (double)(WINDOWS * ahead);
}

/* ImageNet-1k: 1,281,167 images of 110 KB. Blocks of 1 MiB, groups of 256 MiB. */
TEST(neighbours_are_read_together)
{
	enum { COUNT = 1281167, EACH = 110000, BLOCK = (1 << 20) / EACH };
	const struct block_sizes sizes = {BLOCK, (256u << 20) / (BLOCK * EACH)}, single = {1, 1};
	static const uint64_t ahead[] = {(UINT64_C(128) << 20) / EACH,
					 (UINT64_C(512) << 20) / EACH};
	for (unsigned i = 0; i < 2; i++)
		print_message("%lu samples ahead: %.2f %% merged, %.2f %% of single samples\n",
			      ahead[i], 100 * merged(&sizes, COUNT, ahead[i]),
			      100 * merged(&single, COUNT, ahead[i]));
	assert_true(merged(&single, COUNT, ahead[0]) < 0.005);
	assert_true(merged(&sizes, COUNT, ahead[0]) > 0.35);
	assert_true(merged(&sizes, COUNT, ahead[1]) > 0.6);
}

TEST(find_inverts)
{
	static const uint64_t counts[] = {1, 2, 3, 200, 256, 257, 5000};
	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		struct permutation permutation;
		permutation_init(&permutation, counts[c], 11, c, 0, RANDOM_ORDER);
		for (uint64_t i = 0; i < counts[c]; i++)
			assert_int_equal(
				permutation_find(&permutation, permutation_at(&permutation, i)), i);
		permutation_init_identity(&permutation, counts[c]);
		assert_int_equal(permutation_find(&permutation, counts[c] - 1), counts[c] - 1);
	}
}
