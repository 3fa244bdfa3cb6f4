/*
 * schedule.name = plateau: multiplies the learning rate by schedule.gamma when evaluations stop
 * improving, as torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode "rel".
 * schedule.final replaces min_lr, as a fraction of optim.lr. A plain value, initialised to zeros;
 * equal on all ranks and saved in checkpoints.
 */
#pragma once

#include "trainer/recipe/recipe.h"

struct plateau {
	uint64_t drops;
	uint64_t improved; /* number of evaluations that improved on the best metric */
	double best;       /* best metric, valid if improved > 0 */
	uint64_t bad;      /* consecutive evaluations without improvement */
	uint64_t resting;  /* remaining evaluations of the current cooldown */
};

/* Updates the state with an evaluation. score: higher is better. */
void plateau_evaluated(struct plateau *plateau, const struct recipe_schedule *keys, double loss,
		       double score);
