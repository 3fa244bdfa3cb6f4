#include "tests/unit/augment/stats.h"
#include "format/augment/grammar/draw.h"
#include "tests/test.h"

#include <math.h>

void stats_draw(const char *text, uint64_t sample, struct effect_list *list)
{
	static struct pipeline *pipeline;
	static char known[256];
	struct pipeline_error error;
	struct random_stream random;

	if (strcmp(text, known) != 0) {
		pipeline_free(pipeline);
		pipeline = NULL;
		if (pipeline_parse(text, &pipeline, &error) < 0)
			fail_msg("'%s': %s", text, error.text);
		snprintf(known, sizeof(known), "%s", text);
	}
	random_init(&random, 5, 0, sample, RANDOM_AUGMENT);
	list->count = 0;
	draw_effects(&pipeline->transforms[0],
		     &(struct drawing){STATS_WIDTH, STATS_HEIGHT, &random, list});
	assert_true(list->count <= draw_effects_max(&pipeline->transforms[0]));
}

void stats_expect(const unsigned *counts, const double *probabilities, unsigned size)
{
	double total = 0, statistic = 0;
	unsigned classes = 0;

	for (unsigned i = 0; i < size; i++)
		total += counts[i];
	for (unsigned i = 0; i < size; i++) {
		double expected = total * (probabilities ? probabilities[i] : 1.0 / size);

		if (expected == 0) {
			assert_int_equal(counts[i], 0);
			continue;
		}
		classes++;
		statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
	}
	/* A chi-square variable has mean classes - 1 and twice that as its variance. */
	if (statistic > classes - 1 + 5 * sqrt(2.0 * (classes - 1)))
		fail_msg("chi-square is %g for %u classes", statistic, classes);
}

void stats_expect_uniform(const unsigned *counts, unsigned size)
{
	stats_expect(counts, NULL, size);
}
