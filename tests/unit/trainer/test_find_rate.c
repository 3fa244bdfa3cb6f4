/* Suggested rates for losses recorded under a growing rate. */
#include "trainer/algorithms/find_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { FIRST = 2 };

static void expect(const double *losses, unsigned count, unsigned steepest, unsigned least)
{
	unsigned found_steepest, found_min;
	find_rate_read(losses, FIRST, count, &found_steepest, &found_min);
	assert_int_equal(found_steepest, steepest);
	assert_int_equal(found_min, least);
}

static void test_falling(void **state)
{
	static const double losses[] = {2.3, 2.3, 2.3, 2.2, 1.9, 1.5, 1.4, 1.35};
	expect(losses, 8, 4, 7);
}

/* A diverged loss falls from its peak more steeply than it ever fell by learning. */
static void test_diverged(void **state)
{
	static const double losses[] = {2.3, 2.3, 2.3, 2.2, 1.9, 1.7, 1.8, 4.0, 9.0, 5.0, 2.4};
	expect(losses, 11, 4, 5);
}

/* The first losses are hardly smoothed. */
static void test_settling(void **state)
{
	static const double losses[] = {9, 1, 2.3, 2.2, 1.9, 1.7, 1.8};
	expect(losses, 7, 4, 5);
}

/* Small batches: by noise, losses of the first quarter are lower than any that training reaches. */
static void test_noisy(void **state)
{
	static const double losses[] = {2.29,  2.28,  2.296, 2.339, 2.334, 2.335,
					2.343, 2.340, 2.338, 2.341, 2.329, 2.322,
					2.308, 2.346, 2.385, 2.421, 2.382, 2.473};
	expect(losses, 18, 11, 12);
}

static void test_never_falls(void **state)
{
	static const double losses[] = {2.3, 2.3, 2.3, 2.4, 2.5, 9, 8};
	expect(losses, 7, 2, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_falling),     cmocka_unit_test(test_diverged),
		cmocka_unit_test(test_settling),    cmocka_unit_test(test_noisy),
		cmocka_unit_test(test_never_falls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
