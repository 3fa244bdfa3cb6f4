/*
 * Mixup and CutMix: timm's boxes, the distribution of blend weights, and draws that depend only on
 * the sample's index.
 */
#include "tests/test.h"
#include "trainer/algorithms/mix.h"

#include <math.h>

enum { COUNT = 24 };

TEST(boxes)
{
	FILE *file = fopen(GOLDEN_BOXES, "r");
	char first[128];
	struct mix_batch batch = {0};
	double share, rest;
	uint32_t row, column, box[4];
	unsigned cases = 0;
	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (fscanf(file, "%u %u %lf %u %u %u %u %u %u %lf", &batch.height, &batch.width, &share,
		      &row, &column, &box[0], &box[1], &box[2], &box[3], &rest) == 10) {
		struct device_blend blend;
		double got = mix_box(&batch, share, row, column, &blend);
		assert_true(fabs(got - rest) < 1e-12);
		assert_int_equal(blend.top, box[0]);
		assert_int_equal(blend.bottom, box[1]);
		assert_int_equal(blend.left, box[2]);
		assert_int_equal(blend.right, box[3]);
		cases++;
	}
	fclose(file);
	assert_int_equal(cases, 40);
}

/* Beta(alpha, alpha) has mean 1/2 and variance 1 / (8 alpha + 4). */
TEST(shares)
{
	static const double alphas[] = {0.1, 0.5, 1, 4};
	static struct device_blend blends[10000];
	static float shares[10000];
	struct mix_batch batch = {
		.seed = 3, .step = 1, .count = 10000, .micro = 10000, .height = 32, .width = 32};
	for (size_t a = 0; a < sizeof(alphas) / sizeof(*alphas); a++) {
		struct recipe_train recipe = {
			.mixup = alphas[a], .mix_prob = 1, .mix_by = RECIPE_MIX_BY_SAMPLE};
		double mean = 0, square = 0, wanted = 1 / (8 * alphas[a] + 4);
		mix_draw(&recipe, &batch, blends, shares);
		for (unsigned i = 0; i < 10000; i++) {
			assert_true(shares[i] >= 0 && shares[i] <= 1);
			assert_true(shares[i] == blends[i].share);
			mean += (double)shares[i] / 10000;
			square += ((double)shares[i] - 0.5) * ((double)shares[i] - 0.5) / 10000;
		}
		/* within five standard deviations of the mean */
		assert_true(fabs(mean - 0.5) < 5 * sqrt(wanted / 10000));
		assert_true(fabs(square / wanted - 1) < 0.08);
	}
}

static void draw(const struct recipe_train *recipe, uint64_t step, uint32_t first, uint32_t count,
		 uint32_t micro, struct device_blend *blends, float *shares)
{
	struct mix_batch batch = {.seed = 7,
				  .step = step,
				  .first = first,
				  .count = count,
				  .micro = micro,
				  .height = 20,
				  .width = 30};
	mix_draw(recipe, &batch, blends, shares);
}

/* Draws do not depend on how a batch is divided into ranks and micro-batches. */
TEST(places)
{
	static const struct recipe_train recipe = {.mixup = 0.8,
						   .cutmix = 1,
						   .mix_prob = 0.8,
						   .mix_switch = 0.5,
						   .mix_by = RECIPE_MIX_BY_SAMPLE};
	struct device_blend whole[COUNT], part[COUNT];
	float shares[COUNT], part_shares[COUNT];
	unsigned cut = 0, blended = 0, alone = 0;
	draw(&recipe, 5, 0, COUNT, COUNT, whole, shares);
	for (uint32_t rank = 0; rank < 3; rank++)
		draw(&recipe, 5, rank * 8, 8, 4, part + rank * 8, part_shares + rank * 8);
	assert_memory_equal(shares, part_shares, sizeof(shares));
	for (uint32_t i = 0; i < COUNT; i++) {
		bool boxed = whole[i].top < whole[i].bottom && whole[i].left < whole[i].right;
		cut += boxed;
		blended += whole[i].share < 1;
		alone += !boxed && whole[i].share == 1;
		assert_true(!boxed || whole[i].share == 1);
		assert_int_equal(whole[i].partner, i ^ 1);
		assert_int_equal(part[i].partner + i / 4 * 4, i ^ 1);
		part[i].partner = whole[i].partner;
	}
	assert_memory_equal(whole, part, sizeof(whole));
	assert_true(cut && blended && alone);
	draw(&recipe, 6, 0, COUNT, COUNT, part, part_shares);
	assert_memory_not_equal(shares, part_shares, sizeof(shares));
}

TEST(by)
{
	struct recipe_train recipe = {.mixup = 1, .mix_prob = 1};
	struct device_blend blends[COUNT];
	float shares[COUNT];
	draw(&recipe, 1, 4, COUNT, COUNT, blends, shares);
	for (uint32_t i = 1; i < COUNT; i++)
		assert_true(shares[i] == shares[0]);
	recipe.mix_by = RECIPE_MIX_BY_PAIR;
	draw(&recipe, 1, 4, COUNT, COUNT, blends, shares);
	for (uint32_t i = 1; i < COUNT; i++)
		assert_true((shares[i] == shares[i - 1]) == (i % 2 == 1));
}

TEST(off)
{
	struct recipe_train recipe = {.mixup = 1};
	assert_false(mix_is_on(&recipe));
	recipe.mix_prob = 1;
	assert_true(mix_is_on(&recipe));
	recipe.mixup = 0;
	assert_false(mix_is_on(&recipe));
	recipe.cutmix = 1;
	assert_true(mix_is_on(&recipe));
}
