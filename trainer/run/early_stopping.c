/*
 * Ends a run before its last epoch if an evaluation is good enough (train.stop_at) or none has
 * improved for a while (train.stop_after; early stopping, Prechelt 1998). Both depend only on the
 * last evaluation in the state, so a run that ended this way ends again when resumed.
 */
#include "trainer/run/run.h"

#include <stdio.h>

/* Number of evaluations due since the best one. */
static uint64_t early_stopping_wait(const struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	return state->eval_step / run->eval_every - state->best_step / run->eval_every;
}

bool run_stops_early(struct run *run)
{
	const struct checkpoint_state *state = &run->state;
	const struct recipe_train *keys = &run->recipe->train;
	if (state->step >= run->steps || !run->eval_every || !state->eval_samples ||
	    state->eval_step != state->step)
		return false;
	if (keys->stop_at > 0 && state->eval_top1 >= keys->stop_at)
		snprintf(run->why, sizeof(run->why), "top-1 %.2f %% reaches train.stop_at = %g",
			 100 * state->eval_top1, keys->stop_at);
	else if (keys->stop_after && early_stopping_wait(run) >= keys->stop_after)
		snprintf(run->why, sizeof(run->why),
			 "no evaluation was better than top-1 %.2f %% at step %llu, and "
			 "train.stop_after = %llu",
			 100 * state->best_top1, (unsigned long long)state->best_step,
			 (unsigned long long)keys->stop_after);
	return *run->why;
}
