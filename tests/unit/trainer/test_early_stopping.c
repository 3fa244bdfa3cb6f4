/* Early stopping: train.stop_at and train.stop_after. */
#include "trainer/run/early_stopping.h"

#include <setjmp.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct run_length length = {.steps = 100, .eval_every = 10};
static const struct metric *const score = &metrics_of_classes.metric[0];

/* The state right after an evaluation. */
static struct checkpoint_state evaluated(uint64_t step, double share, uint64_t best_step)
{
	return (struct checkpoint_state){.step = step,
					 .eval_step = step,
					 .eval_samples = 50,
					 .eval_metric = {share},
					 .best_step = best_step,
					 .best_score = 0.5};
}

static void test_good_enough(void **state)
{
	struct recipe_train recipe = {.stop_at = 0.4};
	struct early_stopping stopping = {0};
	struct checkpoint_state now = evaluated(20, 0.39, 20);
	assert_false(early_stopping_is_due(&stopping, &recipe, score, &now, &length));
	now.eval_metric[0] = 0.4;
	assert_true(early_stopping_is_due(&stopping, &recipe, score, &now, &length));
	assert_string_equal(stopping.reason, "top-1 of 40.00 % reached train.stop_at = 0.4");
}

/* train.stop_after counts evaluations, not steps, since the best one. */
static void test_no_improvement(void **state)
{
	struct recipe_train recipe = {.stop_after = 3};
	struct early_stopping stopping = {0};
	struct checkpoint_state now = evaluated(60, 0.1, 40);
	assert_false(early_stopping_is_due(&stopping, &recipe, score, &now, &length));
	now = evaluated(70, 0.1, 40);
	assert_true(early_stopping_is_due(&stopping, &recipe, score, &now, &length));
	assert_non_null(strstr(stopping.reason, "train.stop_after = 3"));
}

/* Runs do not stop early at their end, between evaluations, or without evaluations. */
static void test_not_due(void **state)
{
	struct recipe_train recipe = {.stop_at = 0.1, .stop_after = 1};
	struct early_stopping stopping = {0};
	struct checkpoint_state now = evaluated(100, 0.9, 20);
	assert_false(early_stopping_is_due(&stopping, &recipe, score, &now, &length));
	now = evaluated(50, 0.9, 20);
	now.step = 51;
	assert_false(early_stopping_is_due(&stopping, &recipe, score, &now, &length));
	now = evaluated(50, 0.9, 20);
	now.eval_samples = 0;
	assert_false(early_stopping_is_due(&stopping, &recipe, score, &now, &length));
	const struct run_length only_end = {.steps = 100};
	now = evaluated(50, 0.9, 20);
	assert_false(early_stopping_is_due(&stopping, &recipe, score, &now, &only_end));
	assert_string_equal(stopping.reason, "");
}

/* Events are due every `every` steps and at the end, but not before the first step. */
static void test_run_length(void **state)
{
	assert_false(run_length_is_due(&length, 0, 10));
	assert_false(run_length_is_due(&length, 15, 10));
	assert_true(run_length_is_due(&length, 20, 10));
	assert_true(run_length_is_due(&length, 100, 0));
	assert_false(run_length_is_due(&length, 20, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_enough),
		cmocka_unit_test(test_no_improvement),
		cmocka_unit_test(test_not_due),
		cmocka_unit_test(test_run_length),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
