/*
 * The gradient noise scale: computed by hand, and for a linear model with known gradients and
 * noise.
 */
#include "tests/test.h"
#include "trainer/algorithms/noise.h"

#include <math.h>

/* The expectation on which the estimators are based (A.1): |G_B|^2 = |G|^2 + tr(Sigma) / B. */
static struct noise_norms expected_norms(double squared_norm, double trace, double small,
					 double big)
{
	return (struct noise_norms){small, big, squared_norm + trace / small,
				    squared_norm + trace / big};
}

TEST(expectations_give_the_scale)
{
	struct noise noise = {0};
	assert_true(isnan(noise_scale(&noise)));
	struct noise_norms norms = expected_norms(2, 300, 8, 64);
	noise_add(&noise, &norms);
	assert_true(fabs(noise_scale(&noise) - 150) < 1e-9);
	/* the averages are bias-corrected, so one step and many steps give the same */
	assert_true(fabs(noise.squared_norm / noise.weight - 2) < 1e-12);
	assert_true(fabs(noise.trace / noise.weight - 300) < 1e-9);
	norms = expected_norms(4, 300, 8, 64);
	for (int i = 0; i < 400; i++)
		noise_add(&noise, &norms);
	assert_true(fabs(noise_scale(&noise) - 75) < 1e-6);
}

TEST(ends_of_the_scale)
{
	struct noise silent = {0}, drowned = {0};
	struct noise_norms same = {8, 64, 3, 3}, larger = {8, 64, 80, 1};
	noise_add(&silent, &same);
	assert_true(noise_scale(&silent) == 0);
	/*
	 * the squared norm at 64 samples is less than an eighth of that at 8, so the estimate of
	 * |G|^2 is negative
	 */
	noise_add(&drowned, &larger);
	assert_true(isinf(noise_scale(&drowned)));
}

/* Uniform in -1..1, with variance 1/3. */
static double draw(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(*seed >> 11) / (double)(1ull << 52) - 1;
}

/*
 * A linear model y = w x with one output and n = SIZE inputs, trained on y = v x + e, where e is
 * uniform with deviation `error`. The inputs have variance m = 1/3 and fourth moment k. For the
 * difference d of w and v:
 * - gradient of a sample: (d x - e) x
 * - mean gradient: m d
 * - trace of the covariance: error^2 n m + |d|^2 (k + (n - 1) m^2) - m^2 |d|^2
 */
TEST(linear_model)
{
	enum { SIZE = 6, SMALL = 4, PARTS = 8, STEPS = 30000 };
	static const double d[SIZE] = {0.5, -0.25, 1, 0, 0.75, -0.5};
	double m = 1 / 3.0, k = 1 / 5.0, deviation = 2, squared = 0;
	uint64_t seed = 7;
	for (int i = 0; i < SIZE; i++)
		squared += d[i] * d[i];
	double trace = deviation * deviation * SIZE * m + squared * (k + (SIZE - 1) * m * m) -
		       m * m * squared;
	struct noise noise = {0};
	double scale = 0, norm = 0;
	for (int step = 0; step < STEPS; step++) {
		struct noise_norms norms = {SMALL, SMALL * PARTS, 0, 0};
		double sum[SIZE] = {0};
		for (int part = 0; part < PARTS; part++) {
			double gradient[SIZE] = {0};
			for (int sample = 0; sample < SMALL; sample++) {
				double x[SIZE], miss = -deviation * sqrt(3) * draw(&seed);
				for (int i = 0; i < SIZE; i++)
					miss += d[i] * (x[i] = draw(&seed));
				for (int i = 0; i < SIZE; i++)
					gradient[i] += miss * x[i] / SMALL;
			}
			for (int i = 0; i < SIZE; i++) {
				norms.small_squared += gradient[i] * gradient[i] / PARTS;
				sum[i] += gradient[i] / PARTS;
			}
		}
		for (int i = 0; i < SIZE; i++)
			norms.big_squared += sum[i] * sum[i];
		noise_add(&noise, &norms);
		/* averaged over far more steps than the moving average covers */
		scale += noise.trace / noise.weight / STEPS;
		norm += noise.squared_norm / noise.weight / STEPS;
	}
	assert_true(fabs(scale / trace - 1) < 0.01);
	assert_true(fabs(norm / (m * m * squared) - 1) < 0.05);
}
