/*
 * The trainer's random generator: known answers, moments, and values that must be equal on every
 * machine.
 */
#include "tests/test.h"
#include "trainer/model/random.h"

#include <math.h>

/* First vector of Random123's known answers, with key 0 and counter 0. */
TEST(known_answer)
{
	uint32_t words[4];
	random_block(0, 0, 0, words);
	assert_int_equal(words[0], 0x6627e8d5);
	assert_int_equal(words[1], 0xe169c58d);
	assert_int_equal(words[2], 0xbc57ac4c);
	assert_int_equal(words[3], 0x9b00dbd8);
}

TEST(keys_differ)
{
	assert_true(random_key(0, "a") != random_key(0, "b"));
	assert_true(random_key(0, "a") != random_key(1, "a"));
	assert_true(random_key(1, "") != random_key(2, ""));
}

/* Mean, variance, third and fourth moment of 2^18 numbers are within five standard errors. */
TEST(moments)
{
	enum { N = 1 << 18 };
	uint64_t key = random_key(7, "moments");
	double m[5] = {0}, u1 = 0, u2 = 0;
	for (int i = 0; i < N; i++) {
		double x = random_normal(key, (uint64_t)i), u = random_uniform(key, (uint64_t)i),
		       power = 1;
		for (int k = 1; k <= 4; k++)
			m[k] += (power *= x);
		assert_true(u >= -1 && u < 1);
		u1 += u;
		u2 += u * u;
	}
	double error = 5 / sqrt(N);
	assert_true(fabs(m[1] / N) < error);
	assert_true(fabs(m[2] / N - 1) < error * sqrt(2));
	assert_true(fabs(m[3] / N) < error * sqrt(15));
	assert_true(fabs(m[4] / N - 3) < error * sqrt(96));
	assert_true(fabs(u1 / N) < error / sqrt(3));
	assert_true(fabs(u2 / N - 1.0 / 3) < error * sqrt(4.0 / 45));
}

/* random.c computes logarithms without libm: compare normal numbers with those from libm's. */
TEST(logarithm)
{
	uint64_t key = random_key(3, "log");
	for (uint64_t i = 0; i < 10000; i++) {
		double expected = 0;
		for (uint32_t attempt = 0;; attempt++) {
			uint32_t w[4];
			random_block(key, i, attempt, w);
			double u = (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-52 - 1;
			double v = (double)(((uint64_t)w[2] << 32 | w[3]) >> 11) * 0x1p-52 - 1;
			double s = u * u + v * v;
			if (s > 0 && s < 1) {
				expected = u * sqrt(-2 * log(s) / s);
				break;
			}
		}
		double x = random_normal(key, i);
		if (fabs(x - expected) > 1e-14 * fabs(expected) + 1e-15)
			fail_msg("%.17g is not %.17g", x, expected);
	}
}

TEST(pinned)
{
	static const double expected[4] = {0x1.16ec29d87debbp-1, -0x1.2cd1be98b9fd9p-2,
					   -0x1.1b6cd063317fp+1, -0x1.943784cd22ea6p-2};
	uint64_t key = random_key(42, "layer1.0.conv1.weight");
	for (uint64_t i = 0; i < 4; i++) {
		double x = random_normal(key, i * 1000000007);
		if (x != expected[i])
			fail_msg("number %d is %a", (int)i, x);
	}
}
