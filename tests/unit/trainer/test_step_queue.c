/* Results of device steps, combined into those of updates. */
#include "trainer/device/steps.h"
#include "trainer/run/step_queue.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct pending_step step(uint64_t number, bool last, bool again)
{
	return (struct pending_step){.step = number, .last = last, .again = again};
}

/* Combines results with those in the queue. Returns true if the update is complete. */
static bool combine(struct step_queue *queue, struct pending_step pending,
		    struct device_results *results)
{
	step_queue_push(queue, &pending);
	struct pending_step oldest = step_queue_pop(queue);
	return step_queue_combine(queue, &oldest, results);
}

/* The loss of an update is the mean over the samples of its micro-batches. */
static void test_micro_batches(void **state)
{
	struct step_queue queue = {0};
	struct device_results first = {.loss = 1, .samples = 1, .top1 = 1, .top5 = 1};
	struct device_results second = {.loss = 4, .samples = 2, .top1 = 0, .top5 = 2};
	assert_false(combine(&queue, step(1, false, false), &first));
	assert_true(combine(&queue, step(1, true, false), &second));
	assert_true(fabs(second.loss - 3) < 1e-12);
	assert_int_equal(second.samples, 3);
	assert_int_equal(second.top1, 1);
	assert_int_equal(second.top5, 3);
	/* the next update begins with empty sums */
	struct device_results next = {.loss = 7, .samples = 2};
	assert_true(combine(&queue, step(2, true, false), &next));
	assert_true(next.loss == 7 && next.samples == 2);
}

/* With a second pass over the batch, the update has the results of the first pass. */
static void test_second_pass(void **state)
{
	struct step_queue queue = {0};
	struct device_results first = {.loss = 2, .samples = 4, .top1 = 3, .top5 = 4};
	struct device_results second = {.loss = 9, .samples = 4, .top1 = 1, .top5 = 1};
	assert_false(combine(&queue, step(1, false, false), &first));
	assert_true(combine(&queue, step(1, true, true), &second));
	assert_true(second.loss == 2);
	assert_int_equal(second.samples, 4);
	assert_int_equal(second.top1, 3);
	assert_int_equal(second.top5, 4);
}

static void test_order(void **state)
{
	struct step_queue queue = {0};
	assert_int_equal(step_queue_collected(&queue, 5), 5);
	for (uint64_t i = 6; i < 6 + STEP_QUEUE_MAX; i++) {
		struct pending_step pending = step(i, true, false);
		step_queue_push(&queue, &pending);
	}
	assert_int_equal(queue.count, STEP_QUEUE_MAX);
	for (uint64_t i = 6; i < 6 + STEP_QUEUE_MAX; i++) {
		assert_int_equal(step_queue_collected(&queue, 99), i - 1);
		assert_int_equal(step_queue_pop(&queue).step, i);
	}
	assert_int_equal(step_queue_collected(&queue, 99), 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_micro_batches),
		cmocka_unit_test(test_second_pass),
		cmocka_unit_test(test_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
