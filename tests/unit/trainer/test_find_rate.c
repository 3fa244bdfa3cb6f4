/* Suggested rates for losses recorded under a growing rate. */
#include "tests/test.h"
#include "trainer/algorithms/find_rate.h"

enum { FIRST = 2 };

static void expect(const double *losses, unsigned count, unsigned steepest, unsigned min)
{
	unsigned found_steepest, found_min;
	find_rate_read(losses, FIRST, count, &found_steepest, &found_min);
	assert_int_equal(found_steepest, steepest);
	assert_int_equal(found_min, min);
}

TEST(falling)
{
	static const double losses[] = {2.3, 2.3, 2.3, 2.2, 1.9, 1.5, 1.4, 1.35};
	expect(losses, 8, 4, 7);
}

/* Ignores the descent after divergence, which is steeper than any by learning. */
TEST(diverged)
{
	static const double losses[] = {2.3, 2.3, 2.3, 2.2, 1.9, 1.7, 1.8, 4.0, 9.0, 5.0, 2.4};
	expect(losses, 11, 4, 5);
}

/* Ignores the first losses, which are hardly smoothed. */
TEST(settling)
{
	static const double losses[] = {9, 1, 2.3, 2.2, 1.9, 1.7, 1.8};
	expect(losses, 7, 4, 5);
}

/*
 * With small batches, noise makes losses of the first quarter lower than any that training reaches.
 */
TEST(noisy)
{
	static const double losses[] = {2.29,  2.28,  2.296, 2.339, 2.334, 2.335,
					2.343, 2.340, 2.338, 2.341, 2.329, 2.322,
					2.308, 2.346, 2.385, 2.421, 2.382, 2.473};
	expect(losses, 18, 11, 12);
}

TEST(never_falls)
{
	static const double losses[] = {2.3, 2.3, 2.3, 2.4, 2.5, 9, 8};
	expect(losses, 7, 2, 2);
}
