/*
 * schedule.name = plateau: multiplies the rate by schedule.gamma when evaluations stop improving,
 * as torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode "rel"; min_lr is given as a
 * share, schedule.final. A plain value, equal on all ranks and saved in checkpoints; starts as
 * zeros.
 */
#pragma once

#include "trainer/recipe/recipe.h"

struct plateau {
	uint64_t drops;
	uint64_t improved; /* number of evaluations that were the best so far */
	double best;       /* best metric, valid if improved > 0 */
	uint64_t bad;      /* consecutive evaluations without improvement */
	uint64_t resting;  /* remaining evaluations of schedule.cooldown */
};

/* Takes an evaluation into account. top1 is a fraction. */
void plateau_evaluated(struct plateau *plateau, const struct recipe_schedule *keys, double loss,
		       double top1);
