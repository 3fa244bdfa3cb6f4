/*
 * Early stopping: ends a run before its last epoch if an evaluation reaches train.stop_at or if
 * none has improved for train.stop_after evaluations (Prechelt 1998). Depends only on the last
 * evaluation in the state, so a resumed run ends at the same step. Only early_stopping.c writes the
 * struct.
 */
#pragma once

#include "trainer/run/evaluate/metrics.h"
#include "trainer/run/run_length.h"

struct early_stopping {
	char reason[256]; /* why the run ends before its last epoch, or "" */
};

/*
 * Call after an evaluation, whose first metric is `score`. Returns true and sets the reason if the
 * evaluation ends the run. All ranks get the same result.
 */
bool early_stopping_is_due(struct early_stopping *stopping, const struct recipe_train *recipe,
			   const struct metric *score, const struct checkpoint_state *state,
			   const struct run_length *length);
