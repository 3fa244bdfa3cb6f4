/*
 * Ends a run before its last epoch if an evaluation is good enough (train.stop_at) or none has
 * improved for a while (train.stop_after; Prechelt 1998). Both depend only on the last evaluation
 * in the state, so a run that ended this way ends again when resumed. Written by its function only.
 */
#pragma once

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/run/run_length.h"

struct early_stopping {
	char reason[256]; /* why the run ends before its last epoch, or "" */
};

/*
 * After an evaluation: returns true, and sets the reason, if it ends the run. The same on all
 * ranks.
 */
bool early_stopping_is_due(struct early_stopping *stopping, const struct recipe_train *recipe,
			   const struct checkpoint_state *state, const struct run_length *length);
