#include "trainer/algorithms/plateau.h"

#include <math.h>

static bool is_better(const struct plateau *plateau, const struct recipe_schedule *keys,
		      double value)
{
	if (!isfinite(value) || !plateau->improved)
		return isfinite(value);
	return keys->metric == RECIPE_METRIC_LOSS ? value < plateau->best * (1 - keys->threshold)
						  : value > plateau->best * (1 + keys->threshold);
}

void plateau_evaluated(struct plateau *plateau, const struct recipe_schedule *keys, double loss,
		       double score)
{
	double value = keys->metric == RECIPE_METRIC_LOSS ? loss : score;
	plateau->bad++;
	if (is_better(plateau, keys, value)) {
		plateau->best = value;
		plateau->improved++;
		plateau->bad = 0;
	}
	if (plateau->resting) {
		plateau->resting--;
		plateau->bad = 0;
	}
	if (plateau->bad > keys->patience) {
		plateau->drops++;
		plateau->resting = keys->cooldown;
		plateau->bad = 0;
	}
}
