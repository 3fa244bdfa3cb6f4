/*
 * The order of samples: a bijection, uniform, divided evenly among ranks, and a function of the
 * position alone.
 */
#include "loaderd/order/order.h"
#include "tests/test.h"

static struct order make_order(uint64_t samples, uint32_t batch_size, uint32_t rank, uint32_t world,
			       bool last_short)
{
	struct order order = {
		.samples = samples,
		.seed = 42,
		.batch_size = batch_size,
		.rank = rank,
		.world = world,
		.shuffle = true,
		.last_short = last_short,
	};
	assert_int_equal(order_init(&order), 0);
	return order;
}

static void check_bijection(uint64_t samples, uint64_t epoch_number)
{
	struct order order = make_order(samples, 1, 0, 1, false);
	struct order_epoch epoch;
	uint8_t *seen = calloc(samples, 1);
	order_epoch_init(&epoch, &order, epoch_number);
	for (uint64_t i = 0; i < samples; i++) {
		uint64_t sample = order_at(&epoch, i).sample;
		assert_true(sample < samples);
		assert_int_equal(seen[sample], 0);
		seen[sample] = 1;
	}
	free(seen);
}

TEST(bijection_small)
{
	for (uint64_t samples = 1; samples <= 2000; samples++)
		check_bijection(samples, samples % 3);
}

TEST(bijection_large)
{
	check_bijection(1281167, 7);
	check_bijection(1 << 20, 0);
	check_bijection((1 << 20) + 1, 1);
}

/*
 * Too large to enumerate: checks that a window of positions maps to distinct samples within the
 * range, around 2^40 and beyond 2^63.
 */
TEST(huge)
{
	static const uint64_t sizes[] = {(UINT64_C(1) << 40) + 12345, UINT64_MAX - 58};
	for (size_t s = 0; s < 2; s++) {
		struct order order = make_order(sizes[s], 256, 0, 1, false);
		struct order_epoch epoch;
		order_epoch_init(&epoch, &order, 3);
		uint64_t previous = order_at(&epoch, sizes[s] - 1).sample;
		for (uint64_t i = 0; i < 1000; i++) {
			uint64_t sample = order_at(&epoch, i * 1000003).sample;
			assert_true(sample < sizes[s]);
			assert_true(sample != previous);
			previous = sample;
		}
	}
}

TEST(stored_order)
{
	struct order order = make_order(1000, 10, 0, 1, false);
	struct order_epoch epoch;
	order.shuffle = false;
	order_epoch_init(&epoch, &order, 5);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(order_at(&epoch, i).sample, i);
}

TEST(epochs_and_seeds_differ)
{
	struct order order = make_order(10000, 10, 0, 1, false), other = order;
	struct order_epoch a, b, c;
	other.seed = 43;
	order_epoch_init(&a, &order, 0);
	order_epoch_init(&b, &order, 1);
	order_epoch_init(&c, &other, 0);
	unsigned same_ab = 0, same_ac = 0;
	for (uint64_t i = 0; i < 10000; i++) {
		same_ab += order_at(&a, i).sample == order_at(&b, i).sample;
		same_ac += order_at(&a, i).sample == order_at(&c, i).sample;
	}
	/* Two independent permutations agree at one position on average. */
	assert_true(same_ab < 12);
	assert_true(same_ac < 12);
}

/*
 * Chi-square tests of the position of each sample and of its successor, at sizes that cover small,
 * odd and power-of-two domains. With d degrees of freedom the statistic has mean d and variance 2d;
 * a deviation of 6 sigma does not occur by chance.
 */
static void check_uniform(uint64_t samples, unsigned epochs)
{
	unsigned *lands = calloc(samples * samples, sizeof(*lands));
	unsigned *follows = calloc(samples * samples, sizeof(*follows));
	struct order order = make_order(samples, 1, 0, 1, false);
	for (unsigned e = 0; e < epochs; e++) {
		struct order_epoch epoch;
		order_epoch_init(&epoch, &order, e);
		uint64_t previous = 0;
		for (uint64_t i = 0; i < samples; i++) {
			uint64_t sample = order_at(&epoch, i).sample;
			lands[sample * samples + i]++;
			if (i > 0)
				follows[previous * samples + sample]++;
			previous = sample;
		}
	}
	double expected = (double)epochs / (double)samples, chi = 0, chi_follows = 0;
	for (uint64_t i = 0; i < samples; i++) {
		for (uint64_t j = 0; j < samples; j++) {
			double d = lands[i * samples + j] - expected;
			chi += d * d / expected;
			if (i != j) {
				d = follows[i * samples + j] - expected;
				chi_follows += d * d / expected;
			}
		}
	}
	double freedom = (double)(samples - 1) * (double)(samples - 1);
	double limit = freedom + 6 * __builtin_sqrt(2 * freedom);
	assert_true(chi < limit);
	/*
	 * Successors are only approximately chi-square distributed, because their table has other
	 * constraints.
	 */
	assert_true(chi_follows < limit * 1.1 + 20);
	free(lands);
	free(follows);
}

TEST(uniform)
{
	static const uint64_t sizes[] = {2, 3, 5, 16, 17, 64, 100, 257};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		check_uniform(sizes[i], 4000);
}

static void mark_rank(const struct order *order, const struct order_epoch *epoch, unsigned *seen)
{
	for (uint64_t b = 0; b < order->batches; b++) {
		struct order_batch batch;
		order_batch(order, 0, b, &batch);
		assert_true(batch.count > 0 && batch.count <= order->batch_size);
		assert_int_equal(batch.last, b + 1 == order->batches);
		for (uint32_t i = 0; i < batch.count; i++)
			seen[order_at(epoch, batch.first + i).sample]++;
	}
}

/*
 * Together the ranks get each sample once. With drop-last, the samples of the incomplete global
 * batch are left out.
 */
TEST(ranks_cover)
{
	static const uint64_t sizes[] = {1, 7, 64, 100, 1000, 1023, 4096};
	static const uint32_t worlds[] = {1, 2, 3, 4, 8};
	unsigned seen[4096];
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
			for (int last_short = 0; last_short < 2; last_short++) {
				uint64_t global = 12 * worlds[w];
				memset(seen, 0, sizeof(seen));
				for (uint32_t rank = 0; rank < worlds[w]; rank++) {
					struct order order = make_order(sizes[s], 12, rank,
									worlds[w], last_short);
					struct order_epoch epoch;
					order_epoch_init(&epoch, &order, 9);
					mark_rank(&order, &epoch, seen);
				}
				uint64_t total = 0;
				for (uint64_t i = 0; i < sizes[s]; i++) {
					assert_true(seen[i] <= 1);
					total += seen[i];
				}
				assert_int_equal(total, last_short ? sizes[s]
								   : sizes[s] / global * global);
			}
		}
	}
}

/* A global batch is the same set of samples for any number of ranks. */
TEST(world_size_does_not_matter)
{
	unsigned sets[3][1000] = {0};
	for (unsigned w = 0; w < 3; w++) {
		uint32_t world = 1U << w;
		for (uint32_t rank = 0; rank < world; rank++) {
			struct order order = make_order(1000, 64 / world, rank, world, true);
			struct order_epoch epoch;
			struct order_batch batch;
			order_epoch_init(&epoch, &order, 2);
			order_batch(&order, 0, 5, &batch);
			for (uint32_t i = 0; i < batch.count; i++)
				sets[w][order_at(&epoch, batch.first + i).sample]++;
		}
	}
	assert_memory_equal(sets[0], sets[1], sizeof(sets[0]));
	assert_memory_equal(sets[0], sets[2], sizeof(sets[0]));
}

TEST(remainder_is_divided)
{
	static const uint32_t counts[4] = {3, 3, 2, 2};
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct order order = make_order(10, 3, rank, 4, true);
		struct order_batch batch;
		assert_int_equal(order.batches, 1);
		order_batch(&order, 0, 0, &batch);
		assert_int_equal(batch.count, counts[rank]);
	}
	assert_int_equal(make_order(27, 3, 2, 4, true).batches, 3);
	assert_int_equal(make_order(27, 3, 3, 4, true).batches, 2);
	assert_int_equal(make_order(5, 3, 0, 4, false).batches, 0);
}

/*
 * All samples occur once before any of them repeats, each batch has distinct samples, and the first
 * occurrences have the order of a feed without repeats.
 */
TEST(repeats)
{
	struct order plain = make_order(26, 4, 0, 1, true), thrice = make_order(26, 12, 0, 1, true);
	struct order_epoch keys, copies;
	thrice.repeats = 3;
	assert_int_equal(order_init(&thrice), 0);
	assert_int_equal(thrice.batches, plain.batches);
	order_epoch_init(&keys, &plain, 5);
	order_epoch_init(&copies, &thrice, 5);
	for (uint64_t b = 0; b < plain.batches; b++) {
		struct order_batch batch, of;
		order_batch(&plain, 0, b, &batch);
		order_batch(&thrice, 0, b, &of);
		assert_int_equal(of.count, 3 * batch.count);
		assert_int_equal(of.last, batch.last);
		for (uint32_t i = 0; i < of.count; i++) {
			assert_int_equal(order_at(&copies, of.first + i).copy, i / batch.count);
			assert_int_equal(order_at(&copies, of.first + i).sample,
					 order_at(&keys, batch.first + i % batch.count).sample);
		}
	}
	/* each rank has a contiguous part of the global batch */
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct order one = make_order(26, 3, rank, 4, true);
		struct order_batch part;
		one.repeats = 3;
		assert_int_equal(order_init(&one), 0);
		order_batch(&one, 0, 2, &part);
		assert_int_equal(part.first, 24 + 3 * rank);
	}
	assert_true(order_copy_seed(7, 0) == 7);
	assert_true(order_copy_seed(7, 1) != 7 && order_copy_seed(7, 1) != order_copy_seed(7, 2));
	assert_true(order_copy_seed(8, 1) != order_copy_seed(7, 1));
}

TEST(refuses)
{
	struct order good = {.samples = 10, .batch_size = 2, .rank = 0, .world = 2}, bad;
	assert_int_equal(order_init(&good), 0);
	bad = good, bad.samples = 0;
	assert_true(order_init(&bad) < 0);
	bad = good, bad.batch_size = 0;
	assert_true(order_init(&bad) < 0);
	bad = good, bad.world = 0;
	assert_true(order_init(&bad) < 0);
	bad = good, bad.repeats = 3;
	assert_true(order_init(&bad) < 0);
	good.repeats = 4;
	assert_int_equal(order_init(&good), 0);
	bad = good, bad.rank = 2;
	assert_true(order_init(&bad) < 0);
}

/* Existing feeds depend on these values: change the permutation only deliberately. */
TEST(golden)
{
	static const uint64_t expected[8] = {572247, 1195183, 1271048, 166622,
					     910888, 1160266, 46690,   1264637};
	struct order order = make_order(1281167, 256, 0, 1, false);
	struct order_epoch epoch;
	order_epoch_init(&epoch, &order, 1);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(order_at(&epoch, i).sample, expected[i]);
}
