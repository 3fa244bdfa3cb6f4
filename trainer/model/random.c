#include "trainer/model/random.h"

#include "format/base/random.h"

#include <math.h>

uint64_t random_key(uint64_t seed, const char *name)
{
	uint64_t hash = 0xcbf29ce484222325;
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
	/* splitmix64's finisher, so that similar seeds give very different keys. */
	uint64_t x = hash + seed * 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

void random_block(uint64_t key, uint64_t index, uint32_t attempt, uint32_t ret_words[4])
{
	const uint32_t halves[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
	const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), attempt, 0};
	random_philox(halves, counter, ret_words);
}

/* Combines 53 bits of two words into a multiple of 2^-52 in [-1, 1). */
static double signed_unit(uint32_t high, uint32_t low)
{
	uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
	return (double)bits * 0x1p-52 - 1;
}

double random_uniform(uint64_t key, uint64_t index)
{
	uint32_t words[4];
	random_block(key, index, 0, words);
	return signed_unit(words[0], words[1]);
}

/*
 * Returns the natural logarithm of x in (0, 1). Uses only additions, products and one division,
 * whose rounding IEEE 754 defines, so unlike libm's result it is the same everywhere. Method:
 * - x = m * 2^e, with m between 1 / sqrt(2) and sqrt(2)
 * - log m = 2 artanh((m - 1) / (m + 1)), as a series
 */
static double exact_log(double x)
{
	int exponent;
	double m = frexp(x, &exponent);
	if (m < 0.70710678118654752) {
		m *= 2;
		exponent--;
	}
	double z = (m - 1) / (m + 1), square = z * z, sum = 0;
	for (int k = 23; k >= 1; k -= 2)
		sum = sum * square + 1.0 / k;
	return 2 * z * sum + exponent * 0.69314718055994531;
}

double random_normal(uint64_t key, uint64_t index)
{
	for (uint32_t attempt = 0;; attempt++) {
		uint32_t words[4];
		random_block(key, index, attempt, words);
		double u = signed_unit(words[0], words[1]), v = signed_unit(words[2], words[3]);
		double s = u * u + v * v;
		if (s > 0 && s < 1)
			return u * sqrt(-2 * exact_log(s) / s);
	}
}
