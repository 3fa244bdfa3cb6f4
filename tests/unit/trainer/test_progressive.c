/* Progressive resizing: image sizes of each step as in Composer, and the limits of the device. */
#include "tests/test.h"
#include "trainer/algorithms/progressive.h"

/* tests/golden/progressive has Composer's sizes. */
TEST(sizes)
{
	FILE *file = fopen(GOLDEN_SIZES, "r");
	struct recipe_data recipe = {0};
	unsigned cases = 0, compared = 0, height, width, steps, increment;
	char first[128];
	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (fscanf(file, "%lf %lf %lf %u %u %u %u", &recipe.initial_scale,
		      &recipe.delay_fraction, &recipe.finetune_fraction, &increment, &height,
		      &width, &steps) == 7) {
		recipe.size_increment = increment;
		for (unsigned step = 0; step < steps; step++) {
			uint32_t got[2] = {height, width}, wanted[2];
			assert_int_equal(fscanf(file, "%u %u", &wanted[0], &wanted[1]), 2);
			progressive_size(&recipe, step, steps, &got[0], &got[1]);
			compared += wanted[0] != 0;
			/*
			 * in the last steps, images have their full size, even if it is not a
			 * multiple of the increment
			 */
			assert_int_equal(got[0], wanted[0] ? wanted[0] : height);
			assert_int_equal(got[1], wanted[1] ? wanted[1] : width);
		}
		cases++;
	}
	fclose(file);
	assert_int_equal(cases, 7);
	assert_int_equal(compared, 333);
}

TEST(bounds)
{
	struct recipe_data recipe = {.initial_scale = 0.25,
				     .finetune_fraction = 0.2,
				     .delay_fraction = 0.5,
				     .size_increment = 4};
	uint32_t height = 34, width = 17;
	/* 4.25 is rounded up, since 4 would be less than a quarter of 17 */
	progressive_size(&recipe, 0, 10, &height, &width);
	assert_int_equal(width, 5);
	assert_int_equal(height, 9);
	assert_true(progressive_is_on(&recipe));
	recipe.initial_scale = 1;
	assert_false(progressive_is_on(&recipe));
	height = width = 17;
	progressive_size(&recipe, 0, 10, &height, &width);
	assert_int_equal(height, 17);
	assert_int_equal(width, 17);
}
