#include "trainer/run/early_stopping.h"

#include <stdio.h>

/* Number of evaluations since the best one, computed from the steps of both. */
static uint64_t early_stopping_wait(const struct checkpoint_state *state,
				    const struct run_length *length)
{
	return state->eval_step / length->eval_every - state->best_step / length->eval_every;
}

bool early_stopping_is_due(struct early_stopping *stopping, const struct recipe_train *recipe,
			   const struct checkpoint_state *state, const struct run_length *length)
{
	char *reason = stopping->reason;
	if (state->step >= length->steps || !length->eval_every || !state->eval_samples ||
	    state->eval_step != state->step)
		return false;
	if (recipe->stop_at > 0 && state->eval_top1 >= recipe->stop_at)
		snprintf(reason, sizeof(stopping->reason),
			 "top-1 of %.2f %% reached train.stop_at = %g", 100 * state->eval_top1,
			 recipe->stop_at);
	else if (recipe->stop_after && early_stopping_wait(state, length) >= recipe->stop_after)
		snprintf(reason, sizeof(stopping->reason),
			 "top-1 has not improved on %.2f %% at step %llu for train.stop_after = "
			 "%llu evaluations",
			 100 * state->best_top1, (unsigned long long)state->best_step,
			 (unsigned long long)recipe->stop_after);
	return *reason;
}
