/* Mixup and CutMix: draws that depend only on the index of the sample. */
#include "tests/test.h"
#include "trainer/algorithms/mix.h"
#include "trainer/device/steps.h"

enum { COUNT = 24 };

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
