#include "trainer/run/early_stopping.h"

#include <stdio.h>

/* Number of evaluations since the best one, computed from the steps of both. */
static uint64_t early_stopping_wait(const struct checkpoint_state *state,
				    const struct run_length *length)
{
	return state->eval_step / length->eval_every - state->best_step / length->eval_every;
}

bool early_stopping_is_due(struct early_stopping *stopping, const struct recipe_train *recipe,
			   const struct metric *score, const struct checkpoint_state *state,
			   const struct run_length *length)
{
	char now[METRIC_TEXT], best[METRIC_TEXT];
	metric_text(score, state->eval_metric[0], now);
	metric_text(score, state->best_score, best);
	char *reason = stopping->reason;
	if (state->step >= length->steps || !length->eval_every || !state->eval_samples ||
	    state->eval_step != state->step)
		return false;
	if (recipe->stop_at > 0 && state->eval_metric[0] >= recipe->stop_at)
		snprintf(reason, sizeof(stopping->reason), "%s of %s reached train.stop_at = %g",
			 score->name, now, recipe->stop_at);
	else if (recipe->stop_after && early_stopping_wait(state, length) >= recipe->stop_after)
		snprintf(reason, sizeof(stopping->reason),
			 "%s has not improved on %s at step %llu for train.stop_after = "
			 "%llu evaluations",
			 score->name, best, (unsigned long long)state->best_step,
			 (unsigned long long)recipe->stop_after);
	return *reason;
}
