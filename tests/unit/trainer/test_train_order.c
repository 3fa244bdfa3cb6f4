/* Shares of datasets as whole numbers, and the UUID of several datasets. */
#include "tests/test.h"
#include "trainer/run/input/train_order.h"

#include <math.h>

static void whole(const double *shares, unsigned count, const uint32_t *expected)
{
	uint32_t found[4];
	train_order_whole_shares(shares, count, found);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(found[i], expected[i]);
}

/* The smallest whole numbers in the same proportion, as the Python client computes them. */
TEST(exact_shares)
{
	whole((double[]){1, 1}, 2, (uint32_t[]){1, 1});
	whole((double[]){6, 2}, 2, (uint32_t[]){3, 1});
	whole((double[]){0.7, 0.3}, 2, (uint32_t[]){7, 3});
	whole((double[]){0.07, 0.29, 0.64}, 3, (uint32_t[]){7, 29, 64});
	whole((double[]){0.5, 0, 1.25}, 3, (uint32_t[]){2, 0, 5});
	whole((double[]){1e-9, 2e-9}, 2, (uint32_t[]){1, 2});
	whole((double[]){65535, 1}, 2, (uint32_t[]){65535, 1});
}

/* If the exact shares sum to too much, the nearest; no share is lost. */
TEST(nearest_shares)
{
	static const double shares[] = {0.123456789, 0.7, 1e-9, 0};
	uint32_t found[4], sum = 0;
	train_order_whole_shares(shares, 4, found);
	for (unsigned i = 0; i < 4; i++)
		sum += found[i];
	assert_true(sum <= TRAIN_ORDER_SHARES_MAX);
	assert_true(fabs((double)found[0] / found[1] - shares[0] / shares[1]) < 1e-4);
	assert_int_equal(found[2], 1);
	assert_int_equal(found[3], 0);
	whole((double[]){1, 1e-12}, 2, (uint32_t[]){65533, 1});
	/* one third, with more decimals than are looked at */
	whole((double[]){1.0 / 3, 2.0 / 3}, 2, (uint32_t[]){21844, 43689});
}

TEST(order_of_a_recipe)
{
	char error[RECIPE_ERROR_MAX];
	struct recipe recipe;
	struct train_order *order;
	assert_int_equal(recipe_init(&recipe), 0);
	recipe_override(&recipe, "data.train=a.pimg", error);
	assert_int_equal(train_order_new(&recipe.data, &order, error), 0);
	assert_false(order->chooses);
	assert_string_equal(order->datasets[0].path, "a.pimg");
	train_order_free(order);

	recipe_override(&recipe, "data.train=a.pimg,b.pimg", error);
	recipe_override(&recipe, "data.shares=0.75, 0.25", error);
	recipe_override(&recipe, "data.ends=last", error);
	recipe_override(&recipe, "data.class_sampling=2, 0.5", error);
	assert_int_equal(train_order_new(&recipe.data, &order, error), 0);
	assert_true(order->chooses);
	assert_int_equal(order->feed.part_count, 2);
	assert_int_equal(order->feed.stages[0].shares[0], 3);
	assert_int_equal(order->feed.stages[0].shares[1], 1);
	assert_int_equal(order->feed.ends, FEED_ENDS_LAST);
	assert_string_equal(order->feed.parts[1]->dataset, "b.pimg");
	assert_int_equal(order->feed.parts[1]->class_weight_count, 2);
	assert_true(order->feed.parts[1]->class_weights[1] == 0.5F);

	assert_true(order->datasets[0].drawn == 0.75 && order->datasets[1].drawn == 0.25);

	/* an unknown UUID makes the whole unknown; their order counts */
	struct uuid ab, ba;
	order->datasets[0].uuid.bytes[0] = 1;
	train_order_uuid(order, &ab);
	assert_false(uuid_known(&ab));
	order->datasets[1].uuid.bytes[0] = 2;
	train_order_uuid(order, &ab);
	order->datasets[0].uuid.bytes[0] = 2;
	order->datasets[1].uuid.bytes[0] = 1;
	train_order_uuid(order, &ba);
	assert_true(uuid_differ(&ab, &ba));
	train_order_free(order);
	recipe_deinit(&recipe);
}

TEST(shares_that_change)
{
	char error[RECIPE_ERROR_MAX];
	struct recipe recipe;
	struct train_order *order;
	assert_int_equal(recipe_init(&recipe), 0);
	recipe_override(&recipe, "data.train=a.pimg,b.pimg", error);
	recipe_override(&recipe, "data.shares=6, 2@0; 0, 1@2.25", error);
	recipe_override(&recipe, "data.epoch_samples=1300", error);
	assert_int_equal(train_order_new(&recipe.data, &order, error), 0);
	assert_int_equal(order->feed.stage_count, 2);
	assert_int_equal(order->feed.stages[0].shares[0], 3);
	assert_int_equal(order->feed.stages[1].shares[0], 0);
	assert_int_equal(order->feed.stages[1].shares[1], 1);
	/* ten batches of 128 in an epoch */
	assert_int_equal(order->feed.stages[1].from, 23);
	assert_true(order->datasets[0].drawn == 0.375 && order->datasets[1].drawn == 0.625);
	train_order_free(order);
	recipe_deinit(&recipe);
}
