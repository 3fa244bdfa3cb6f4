/* Permutations and splits: reproducible from the seed, and unbiased. */
#include "tests/test.h"
#include "tools/packimg/common/shuffle.h"

enum {
	COUNT = 1000,
};

static void permute(uint64_t *items, uint64_t count, uint64_t seed)
{
	for (uint64_t i = 0; i < count; i++)
		items[i] = i;
	shuffle_permute(items, count, seed);
}

TEST(permutation)
{
	uint64_t a[COUNT], b[COUNT], seen[COUNT] = {0}, fixed = 0;

	permute(a, COUNT, 7);
	permute(b, COUNT, 7);
	assert_memory_equal(a, b, sizeof(a));
	permute(b, COUNT, 8);
	assert_memory_not_equal(a, b, sizeof(a));
	for (int i = 0; i < COUNT; i++) {
		seen[a[i]]++;
		fixed += a[i] == (uint64_t)i;
	}
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(seen[i], 1);
	/* The mean number of fixed points is one. Ten occur for one seed in 10 million. */
	assert_true(fixed < 10);
	permute(a, 1, 7);
	assert_int_equal(a[0], 0);
	shuffle_permute(a, 0, 7);
}

/* The permutation determines a dataset's bytes, so it must never change between versions. */
TEST(permutation_is_fixed)
{
	uint64_t a[8];
	uint64_t h = shuffle_hash("n01440764/a.jpg", 15, 0);

	permute(a, 8, 42);
	assert_true(h == UINT64_C(0x96ff4c398ae25ec0));
	for (int i = 0; i < 8; i++)
		assert_int_equal(a[i], ((const uint64_t[]){4, 5, 3, 0, 1, 2, 7, 6})[i]);
}

TEST(every_permutation_occurs)
{
	unsigned orders[6] = {0};

	for (uint64_t seed = 0; seed < 6000; seed++) {
		uint64_t a[3];

		permute(a, 3, seed);
		orders[a[0] * 2 + (a[1] > a[2])]++;
	}
	/* expected count: mean 1000, standard deviation 29 */
	for (int i = 0; i < 6; i++)
		assert_in_range(orders[i], 850, 1150);
}

TEST(split_shares)
{
	const double fractions[] = {0.8, 0.15};
	uint32_t part[COUNT], again[COUNT];
	uint64_t counts[2] = {0}, left = 0;

	assert_int_equal(shuffle_split(NULL, COUNT, fractions, 2, 3, part), 0);
	for (int i = 0; i < COUNT; i++) {
		if (part[i] == UINT32_MAX)
			left++;
		else
			counts[part[i]]++;
	}
	assert_in_range(counts[0], 799, 801);
	assert_in_range(counts[1], 149, 151);
	assert_in_range(left, 49, 51);
	assert_int_equal(shuffle_split(NULL, COUNT, fractions, 2, 3, again), 0);
	assert_memory_equal(part, again, sizeof(part));
	assert_int_equal(shuffle_split(NULL, COUNT, fractions, 2, 4, again), 0);
	assert_memory_not_equal(part, again, sizeof(part));
}

TEST(split_keeps_classes_in_proportion)
{
	const double fractions[] = {0.9, 0.1};
	int32_t labels[COUNT];
	uint32_t part[COUNT];
	int per_class[10] = {0};

	for (int i = 0; i < COUNT; i++)
		labels[i] = i % 10;
	assert_int_equal(shuffle_split(labels, COUNT, fractions, 2, 1, part), 0);
	for (int i = 0; i < COUNT; i++) {
		assert_true(part[i] < 2);
		per_class[labels[i]] += part[i] == 1;
	}
	for (int c = 0; c < 10; c++)
		assert_in_range(per_class[c], 9, 11);
}

TEST(fraction_is_uniform)
{
	int below = 0;

	for (int i = 0; i < 10000; i++) {
		double f = shuffle_fraction(&i, sizeof(i), 5);

		assert_true(f >= 0 && f < 1);
		below += f < 0.3;
	}
	/* expected count: mean 3000, standard deviation 46 */
	assert_in_range(below, 2770, 3230);
}
