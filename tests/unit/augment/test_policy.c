/*
 * Which operations the policies choose, and how often: compares many samples with torchvision's
 * probabilities.
 */
#include "format/augment/grammar/policy.h"
#include "tests/test.h"
#include "tests/unit/augment/stats.h"

#include <math.h>

enum { OPERATIONS = POLICY_INVERT + 1 };

/*
 * Returns the operation that made an effect. The element in which a warp's matrix differs from the
 * identity distinguishes translations and shears.
 */
static enum policy_operation operation_of(const struct effect *effect)
{
	const float *m = effect->warp.matrix;

	switch (effect->kind) {
	case EFFECT_POSTERIZE:
		return POLICY_POSTERIZE;
	case EFFECT_SOLARIZE:
		return POLICY_SOLARIZE;
	case EFFECT_AUTOCONTRAST:
		return POLICY_AUTOCONTRAST;
	case EFFECT_EQUALIZE:
		return POLICY_EQUALIZE;
	case EFFECT_BRIGHTNESS:
		return POLICY_BRIGHTNESS;
	case EFFECT_SATURATION:
		return POLICY_COLOR;
	case EFFECT_CONTRAST:
		return POLICY_CONTRAST;
	case EFFECT_SHARPNESS:
		return POLICY_SHARPNESS;
	case EFFECT_INVERT:
		return POLICY_INVERT;
	default:
		break;
	}
	assert_int_equal(effect->kind, EFFECT_WARP);
	if (m[1] != 0 && m[3] != 0)
		return POLICY_ROTATE;
	if (m[1] != 0)
		return POLICY_SHEAR_X;
	if (m[3] != 0)
		return POLICY_SHEAR_Y;
	return m[2] != 0 ? POLICY_TRANSLATE_X : POLICY_TRANSLATE_Y;
}

TEST(rand_augment_is_uniform)
{
	enum { SAMPLES = 7000 };
	/*
	 * Skips samples without an effect, whose operation is unknown: Identity, and operations
	 * with a neutral magnitude, have no effect.
	 */
	unsigned counts[POLICY_INVERT] = {0}, signs[2] = {0};
	struct effect_list list;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		stats_draw("rand_augment(2, 9)", sample, &list);
		counts[POLICY_IDENTITY] += 2 - list.count;
		for (unsigned i = 0; i < list.count; i++) {
			const struct effect *effect = &list.effects[i];
			enum policy_operation operation = operation_of(effect);

			assert_true(operation < POLICY_INVERT);
			counts[operation]++;
			if (operation == POLICY_BRIGHTNESS) {
				assert_true(fabs(fabs(effect->factor - 1) - 0.27) < 1e-6);
				signs[effect->factor > 1]++;
			}
			assert_true(effect->kind != EFFECT_WARP ||
				    (!effect->warp.bilinear && !effect->warp.filled));
		}
	}
	stats_expect_uniform(counts, POLICY_INVERT);
	stats_expect_uniform(signs, 2);
	stats_draw("rand_augment(num_ops=5, magnitude=30, interpolation=bilinear, fill=7)", 0,
		   &list);
	assert_true(list.count >= 1 && list.count <= 5);
}

TEST(trivial_augment_is_uniform)
{
	enum { SAMPLES = 30000, BINS = 31 };
	unsigned counts[POLICY_INVERT] = {0}, bins[BINS] = {0}, factors[2 * BINS - 1] = {0};
	double expected[2 * BINS - 1];
	struct effect_list list;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		stats_draw("trivial_augment_wide", sample, &list);
		if (list.count == 0) {
			counts[POLICY_IDENTITY]++;
			continue;
		}
		const struct effect *effect = &list.effects[0];

		/* Skip warps: at magnitude 0 their direction is unknown. */
		if (effect->kind == EFFECT_WARP)
			continue;
		counts[operation_of(effect)]++;
		if (effect->kind == EFFECT_SOLARIZE)
			bins[(int)lrint((255 - effect->factor) / 255 * (BINS - 1))]++;
		if (effect->kind == EFFECT_CONTRAST)
			factors[(int)lrint((effect->factor - 0.01) / 0.99 * (BINS - 1))]++;
	}
	stats_expect_uniform(counts + POLICY_POSTERIZE, POLICY_INVERT - POLICY_POSTERIZE);
	stats_expect_uniform(bins, BINS);
	/* The centre bin counts magnitude 0 with both signs. */
	for (int i = 0; i < 2 * BINS - 1; i++)
		expected[i] = (i == BINS - 1 ? 1.0 : 0.5) / BINS;
	stats_expect(factors, expected, 2 * BINS - 1);
}

TEST(auto_augment_follows_its_table)
{
	enum { SAMPLES = 25000 };
	static const char *const texts[] = {"auto_augment(imagenet)", "auto_augment(cifar10)",
					    "auto_augment(svhn)"};
	struct effect_list list;

	for (int learned = 0; learned < TRANSFORM_LEARNED_COUNT; learned++) {
		double expected[OPERATIONS] = {0}, total = 0;
		unsigned counts[OPERATIONS] = {0}, applied = 0;

		for (int i = 0; i < POLICY_AUTO_PAIRS; i++)
			for (int k = 0; k < 2; k++) {
				const struct policy_auto *p = &policy_learned[learned][i][k];

				expected[p->operation] += p->probability;
				total += p->probability;
			}
		for (int i = 0; i < OPERATIONS; i++)
			expected[i] /= total;
		for (uint64_t sample = 0; sample < SAMPLES; sample++) {
			stats_draw(texts[learned], sample, &list);
			applied += list.count;
			for (unsigned i = 0; i < list.count; i++)
				counts[operation_of(&list.effects[i])]++;
		}
		stats_expect(counts, expected, OPERATIONS);
		assert_true(fabs(applied - total / POLICY_AUTO_PAIRS * SAMPLES) <
			    5 * sqrt(0.5 * SAMPLES));
	}
}

/* Returns the bin of a value between 0 and 1. */
static unsigned bin_of(double value, unsigned bins)
{
	assert_true(value >= 0 && value <= 1);
	return value == 1 ? bins - 1 : (unsigned)(value * bins);
}

TEST(aug_mix_is_dirichlet)
{
	enum { SAMPLES = 6000, BINS = 20 };
	unsigned own[BINS] = {0}, chains[3][BINS] = {{0}}, depths[3] = {0},
		 operations[POLICY_IDENTITY] = {0};
	struct effect_list list;

	for (uint64_t sample = 0; sample < SAMPLES; sample++) {
		unsigned chain = 0, depth = 0;

		stats_draw("aug_mix", sample, &list);
		assert_int_equal(list.effects[0].kind, EFFECT_MIX_BEGIN);
		assert_int_equal(list.effects[list.count - 1].kind, EFFECT_MIX_END);
		double sum = (double)list.effects[0].weight;
		own[bin_of(sum, BINS)]++;
		for (unsigned i = 1; i + 1 < list.count; i++) {
			const struct effect *effect = &list.effects[i];

			if (effect->kind != EFFECT_MIX_ADD) {
				depth++;
				/*
				 * At severity 3 a third of the magnitudes are zero, which leaves no
				 * trace of a warp.
				 */
				if (effect->kind != EFFECT_WARP)
					operations[operation_of(effect)]++;
				assert_true(effect->kind != EFFECT_WARP || effect->warp.bilinear);
				continue;
			}
			double weight = (double)effect->weight;
			double share = sum < 1 && list.effects[0].weight < 0.999f
					       ? weight / (1 - (double)list.effects[0].weight)
					       : 0;

			sum += weight;
			/* The weight of one chain of three has the distribution 1 - (1 - x)^2. */
			if (list.effects[0].weight < 0.999f)
				chains[chain]
				      [bin_of(fmin(1 - (1 - share) * (1 - share), 1), BINS)]++;
			assert_true(depth >= 1 && depth <= 3 && chain < 3);
			depths[depth - 1]++;
			depth = 0;
			chain++;
		}
		assert_int_equal(chain, 3);
		assert_true(fabs(sum - 1) < 1e-5);
	}
	stats_expect_uniform(own, BINS);
	for (int i = 0; i < 3; i++)
		stats_expect_uniform(chains[i], BINS);
	stats_expect_uniform(depths, 3);
	stats_expect_uniform(operations + POLICY_POSTERIZE, POLICY_IDENTITY - POLICY_POSTERIZE);
}

/*
 * With two chains each weight has a beta distribution with mean 1/2 and variance 1 / (8 alpha + 4).
 */
TEST(aug_mix_alpha)
{
	enum { SAMPLES = 20000 };
	static const double alphas[] = {0.2, 1, 3.5};

	for (int i = 0; i < 3; i++) {
		double sum = 0, squares = 0, variance = 1 / (8 * alphas[i] + 4);
		struct effect_list list;
		char text[64];

		snprintf(text, sizeof(text), "aug_mix(1, 1, 1, alpha=%g, all_ops=false)",
			 alphas[i]);
		for (uint64_t sample = 0; sample < SAMPLES; sample++) {
			stats_draw(text, sample, &list);
			assert_int_equal(list.count, 4);
			assert_true(list.effects[1].kind == EFFECT_WARP ||
				    operation_of(&list.effects[1]) < POLICY_BRIGHTNESS);
			double weight = (double)list.effects[0].weight - 0.5;

			sum += weight;
			squares += weight * weight;
		}
		assert_true(fabs(sum / SAMPLES) < 5 * sqrt(variance / SAMPLES));
		assert_true(fabs(squares / SAMPLES - variance) < 0.05 * variance);
	}
}
