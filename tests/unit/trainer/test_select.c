/* Selective backprop: the steps that select, and the samples that are kept, both as in Composer. */
#include "tests/test.h"
#include "trainer/algorithms/select.h"

#include <math.h>

enum { SAMPLES_MAX = 16, DRAWS = 40000 };

static const float scattered[SAMPLES_MAX] = {3,    0.5f, 7,     0.25f, 9,    1.5f, 0.75f, 2,
					     0.1f, 8,    0.05f, 4,     0.6f, 5,    0.3f,  6};

/* Ranks each sample by the number of samples with lower loss. */
static void rank(const float *losses, unsigned count, unsigned *ret_ranks)
{
	for (unsigned i = 0; i < count; i++) {
		ret_ranks[i] = 0;
		for (unsigned j = 0; j < count; j++)
			ret_ranks[i] += losses[j] < losses[i];
	}
}

/* Each sample is kept as often as in Composer's draws, within six standard deviations. */
static void check_selected(FILE *file)
{
	struct recipe_train recipe = {.seed = 9};
	unsigned samples, draws, ranks[SAMPLES_MAX], counts[SAMPLES_MAX] = {0};
	uint32_t picks[SAMPLES_MAX];
	assert_int_equal(fscanf(file, "%u %lf %u", &samples, &recipe.selective_backprop, &draws),
			 3);
	uint32_t kept = select_count(&recipe, samples);
	rank(scattered, samples, ranks);
	for (uint64_t step = 1; step <= DRAWS; step++) {
		assert_int_equal(select_draw(&recipe, step, scattered, samples, picks), 0);
		for (unsigned i = 0; i < kept; i++) {
			assert_true(picks[i] < samples && (!i || picks[i] > picks[i - 1]));
			counts[ranks[picks[i]]]++;
		}
	}
	for (unsigned i = 0; i < samples; i++) {
		unsigned wanted;
		assert_int_equal(fscanf(file, "%u", &wanted), 1);
		double share = (double)wanted / draws, got = (double)counts[i] / DRAWS;
		double deviation = sqrt(share * (1 - share) * (1. / draws + 1. / DRAWS));
		assert_true(fabs(got - share) <= 6 * deviation);
	}
}

static void check_due(FILE *file)
{
	struct recipe_train recipe = {.selective_backprop = 0.5};
	unsigned interrupt, steps, batches, due;
	assert_int_equal(fscanf(file, "%lf %lf %u %u %u", &recipe.selective_start,
				&recipe.selective_end, &interrupt, &steps, &batches),
			 5);
	recipe.selective_interrupt = interrupt;
	for (unsigned step = 0; step < steps; step++) {
		assert_int_equal(fscanf(file, "%u", &due), 1);
		assert_int_equal(select_is_due(&recipe, step, steps, step % batches), due);
	}
	recipe.selective_backprop = 0;
	assert_false(select_is_due(&recipe, steps / 2, steps, 0));
}

/* tests/golden/select has Composer's draws. */
TEST(golden)
{
	FILE *file = fopen(GOLDEN_SELECT, "r");
	char first[160], word[8];
	unsigned kept = 0, due = 0;
	assert_non_null(file);
	assert_non_null(fgets(first, sizeof(first), file));
	while (fscanf(file, "%7s", word) == 1) {
		bool keeps = strcmp(word, "kept") == 0;
		kept += keeps;
		due += !keeps;
		(keeps ? check_selected : check_due)(file);
	}
	fclose(file);
	assert_int_equal(kept, 5);
	assert_int_equal(due, 4);
}

/*
 * Equal arguments give equal draws, another step or seed gives others, and NaN counts as the
 * highest loss.
 */
TEST(draws)
{
	struct recipe_train recipe = {.seed = 1, .selective_backprop = 0.5};
	float losses[SAMPLES_MAX];
	uint32_t one[8], again[8], other[8];
	unsigned alike = 0, nans = 0;
	memcpy(losses, scattered, sizeof(losses));
	for (uint64_t step = 1; step <= 100; step++) {
		recipe.seed = 1;
		select_draw(&recipe, step, losses, SAMPLES_MAX, one);
		select_draw(&recipe, step, losses, SAMPLES_MAX, again);
		assert_memory_equal(one, again, sizeof(one));
		select_draw(&recipe, step + 1, losses, SAMPLES_MAX, other);
		alike += memcmp(one, other, sizeof(one)) == 0;
		recipe.seed = 2;
		select_draw(&recipe, step, losses, SAMPLES_MAX, other);
		alike += memcmp(one, other, sizeof(one)) == 0;
	}
	assert_true(alike < 10);
	/*
	 * One of 16 samples is drawn, with weight rank^9: the highest has probability 0.47, the
	 * next 0.26.
	 */
	recipe.selective_backprop = 0.1;
	for (unsigned i = 0; i < SAMPLES_MAX; i++)
		losses[i] = i == 5 ? NAN : 1;
	for (uint64_t step = 1; step <= 1000; step++) {
		select_draw(&recipe, step, losses, SAMPLES_MAX, one);
		nans += one[0] == 5;
	}
	assert_true(nans > 400);
}
